package grpc

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// returned is where the transport returns the buffers of a reply; with the last one the reply
// is free.
type returned struct {
	reply *reply
	left  atomic.Int32
}

var _ mem.BufferPool = (*returned)(nil)

// Get implements mem.BufferPool. It is not called for buffers that exist.
func (*returned) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool.
func (p *returned) Put(*[]byte) {
	if p.left.Add(-1) == 0 {
		p.reply.free()
	}
}
