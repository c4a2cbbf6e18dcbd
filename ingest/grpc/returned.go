package grpc

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// returned receives the buffers of a reply back from the transport. The last buffer frees the reply.
type returned struct {
	reply *reply
	left  atomic.Int32
}

var _ mem.BufferPool = (*returned)(nil)

// Get implements mem.BufferPool. Existing buffers never call Get.
func (*returned) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool.
func (p *returned) Put(*[]byte) {
	if p.left.Add(-1) == 0 {
		p.reply.free()
	}
}
