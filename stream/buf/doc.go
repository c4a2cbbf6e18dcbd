// Package buf owns the memory of frames and results: leased, reference-counted byte buffers from size-classed pools
// under one byte budget.
//
// A buffer has one holder at a time; the holder passes on the buffer together with the duty to release the buffer.
// The package knows nothing of frames, tensors or protocols.
package buf
