package identity_test

import (
	"context"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	_ "millrace/workers/identity"
)

type results chan *stream.Result

func (c results) Push(r *stream.Result)   { c <- r }
func (c results) Done(stream.CloseReason) {}

// TestTextIsLeased: the answer to a frame of bytes lies in the memory budget, in the frame's memory with the length
// in front, or in a copy if the frame has other holders. A lack of memory for the copy drops the frame.
func TestTextIsLeased(t *testing.T) {
	const size = 1 << 20
	mem := buf.NewPool(5 * size)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem})
	defer func() { _ = m.Close(context.Background()) }()
	if _, err := m.LoadConfig(context.Background(), workers.Config{Name: "m", Source: "identity"}, true); err != nil {
		t.Fatal(err)
	}
	g, err := m.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	got := make(results, 1)
	s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}}, got)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close(stream.ByClient); <-s.Finished() }()
	ask := func(lease *buf.Buf) *stream.Result {
		if err := s.Submit(stream.Frame{Codec: stream.Opaque, Payload: lease.Bytes(), Lease: lease}); err != nil {
			t.Fatal(err)
		}
		return <-got
	}
	frame := func() *buf.Buf {
		lease, err := mem.Lease(size)
		if err != nil {
			t.Fatal(err)
		}
		lease.Bytes()[size-1] = 42
		return lease
	}
	for name, held := range map[string]bool{"in place": false, "a copy": true} {
		lease := frame()
		if held {
			lease.Retain()
		}
		r := ask(lease)
		if held {
			lease.Release()
		}
		if r.Outcome != stream.Answered || len(r.Outputs[0].Data) != 4+size || r.Outputs[0].Data[3+size] != 42 ||
			r.Lease == nil || mem.Stats().Leased < size {
			t.Errorf("%s: %v, %d bytes, lease %v, %+v", name, r.Outcome, len(r.Outputs[0].Data), r.Lease, mem.Stats())
		}
		r.Release()
		until(t, func() bool { return mem.Stats().Leases == 0 }) // a request releases its memory after its result
	}
	lease, rest := frame(), []*buf.Buf(nil)
	for {
		b, err := mem.Lease(size)
		if err != nil {
			break
		}
		rest = append(rest, b)
	}
	if r := ask(lease.Retain()); r.Outcome != stream.Dropped || r.Reason != stream.Memory {
		t.Errorf("without memory: %v %v", r.Outcome, r.Reason)
	} else {
		r.Release()
	}
	lease.Release()
	for _, b := range rest {
		b.Release()
	}
	until(t, func() bool { return mem.Stats().Leases == 0 })
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it has not come to be")
		}
	}
}
