package workers_test

import (
	"testing"
	"time"

	"millrace/stream"
	"millrace/workers"
)

// The frames collected by a silent, stateless stream for the next window are released, and counting starts again.
func TestIdleWindowIsGivenBack(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "dense", Window: workers.Window{Length: 3},
		Limits: workers.Limits{IdleState: 20 * time.Millisecond, Run: 40 * time.Millisecond}})
	s, e := open(t, g, every)
	send := func(seq uint64, samples int) {
		t.Helper()
		if err := s.Submit(stream.Frame{Seq: seq, Codec: stream.PCMFloat,
			Payload: make([]byte, 4*samples)}); err != nil {
			t.Fatal(err)
		}
	}
	send(0, 2)
	e.wait(t, 1)
	until(t, "the idle stream's samples are given back", func() bool { return r.mem.Stats().Leases == 0 })
	send(1, 2)
	if x := e.wait(t, 2)[1]; x.outcome != stream.Answered || x.data != "" {
		t.Fatalf("%+v: two samples after a silence completed a window of three", x)
	}
	s.Close(stream.ByClient)
	<-s.Finished()
}
