// Package buf owns the memory of frames and results: leased, reference-counted byte
// buffers from size-classed pools under one byte budget.
//
// A buffer has one holder at a time; a holder that passes it on passes on the duty to
// release it. The package knows nothing of frames, tensors or protocols.
package buf
