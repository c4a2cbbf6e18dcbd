package ingest_test

import (
	"sync/atomic"
	"testing"

	"millrace/ingest"
	"millrace/stream"
	"millrace/workers"
)

// reloading is a backend that unloads and reloads the model after opening each of the first streams, before the
// stream's first frame.
type reloading struct {
	*backend
	t     *testing.T
	times atomic.Int32
}

func (r *reloading) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	s, err := r.backend.Open(model, version, opts, sink)
	if err == nil && r.times.Add(-1) >= 0 {
		if err := r.Unload(r.t.Context(), model, ""); err != nil {
			r.t.Error(err)
		}
		r.load(r.t, workers.Config{Name: model, Kind: "plain"})
	}
	return s, err
}

// TestStreamsEndedBeforeTheirFrame: when a new stream ends before the first frame, the request moves to another
// stream, a bounded number of times.
func TestStreamsEndedBeforeTheirFrame(t *testing.T) {
	for times, want := range map[int32]stream.Code{1: "", 3: "", 4: stream.Unloaded} {
		d := &reloading{backend: newBackend(t), t: t}
		d.load(t, workers.Config{Name: "m", Kind: "plain"})
		d.times.Store(times)
		gate := ingest.NewGate(d, nil)
		one := ingest.NewOneShot(gate, "test", &d.noModel)
		r, err := one.Infer(t.Context(), gate.Owner(), "m", "", d.frame("x"))
		if stream.CodeOf(err) != want {
			t.Errorf("ended %d times: %v, want %q", times, err, want)
		}
		if err == nil {
			r.Release()
		}
		one.Close()
	}
}
