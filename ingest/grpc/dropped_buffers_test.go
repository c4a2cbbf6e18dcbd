package grpc

import (
	"runtime"
	"testing"
	"time"

	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// The memory of a reply is released even if the transport drops the reply's buffers without returning the buffers, as
// grpc-go does when a call ends before the write.
func TestDroppedBuffers(t *testing.T) {
	pool := buf.NewPool(0)
	const size = 100 << 10
	func() {
		lease, err := pool.Lease(size)
		if err != nil {
			t.Fatal(err)
		}
		k := newCall()
		k.Response.Outputs = []oip.Tensor{{Name: "x", Datatype: "UINT8", Shape: []int{size}, Data: lease.Bytes()}}
		r, err := newReply(k, &stream.Result{Lease: lease}, false)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.buffers()); n < 2 {
			t.Errorf("the output is not sent from its memory: %d buffers", n)
		}
	}()
	limit := time.Now().Add(20 * time.Second)
	for pool.Stats().Leases != 0 {
		if time.Now().After(limit) {
			t.Fatalf("%+v", pool.Stats())
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}
