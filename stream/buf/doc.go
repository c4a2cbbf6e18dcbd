// Package buf owns the memory that frames and results travel in: leased,
// reference-counted byte buffers from size-classed pools under one byte budget.
//
// A buffer has one holder at a time; whoever passes it on passes the duty to
// release it. The package knows nothing of frames, tensors or protocols.
package buf
