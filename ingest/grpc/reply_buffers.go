package grpc

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// replyBuffers receives the buffers of a reply back from the transport. The last buffer frees the reply.
type replyBuffers struct {
	reply      *reply
	unreleased atomic.Int32
}

var _ mem.BufferPool = (*replyBuffers)(nil)

// Get implements mem.BufferPool. Existing buffers never call Get.
func (*replyBuffers) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool.
func (p *replyBuffers) Put(*[]byte) {
	if p.unreleased.Add(-1) == 0 {
		p.reply.free()
	}
}
