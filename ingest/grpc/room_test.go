package grpc

import (
	"testing"
	"testing/synctest"
	"time"

	"millrace/stream"
)

// A worker waits 10 s for a slow client: the limit covers all partial results of a request together, and starts again
// with the next request.
func TestRoomInSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &session{room: make(chan struct{}), wake: make(chan struct{}, 1)}
		one, two := &call{}, &call{}
		one.seq, two.seq = 1, 2
		one.after, one.behind = two, two
		x.first, x.last = one, two
		f := &feed{x: x, first: one, last: two, seq: 2}
		taking := time.NewTicker(9 * time.Second)
		defer taking.Stop()
		for seq := range uint64(2) {
			emitted := 0
			begun := time.Now()
			done := make(chan error)
			go func() { // the worker
				for {
					if err := f.WaitForRoom(); err != nil {
						done <- err
						return
					}
					f.Push(&stream.Result{Partial: true, Seq: seq + 1})
					emitted++
				}
			}()
			var err error
			for err == nil {
				select {
				case err = <-done:
				case <-taking.C:
					x.next()
				}
			}
			if took := time.Since(begun); stream.CodeOf(err) != stream.FlowControl || took != 10*time.Second {
				t.Errorf("after %v and %d partial results: %v", took, emitted, err)
			}
			f.Push(&stream.Result{Outcome: stream.Failed, Err: err, Seq: seq + 1})
			for _, _, last, _ := x.next(); !last; _, _, last, _ = x.next() {
			}
			taking.Reset(9 * time.Second)
		}
	})
}
