package native_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"millrace/ingest/native"
	"millrace/stream"
	"millrace/workers"
)

// whenWaiting is a context that calls begun once a goroutine waits for the context's end.
type whenWaiting struct {
	context.Context
	begun func()
}

func (c whenWaiting) Done() <-chan struct{} {
	c.begun()
	return c.Context.Done()
}

// paused opens a paused stream in mode Every, with waiting frames.
func paused(t *testing.T, frames int) (in *native.Stream, outcomes *[]stream.Outcome, closed *stream.CloseReason) {
	t.Helper()
	s, stop := start(workers.Config{Name: "echo", Source: "identity"})
	t.Cleanup(stop)
	outcomes, closed = new([]stream.Outcome), new(stream.CloseReason)
	st, err := s.Native().Stream("echo", stream.Options{Policy: stream.Policy{Mode: stream.Every}},
		func(r *stream.Result) { *outcomes = append(*outcomes, r.Outcome) },
		func(why stream.CloseReason) { *closed = why })
	if err != nil {
		t.Fatal(err)
	}
	st.Pause()
	for i := range frames {
		if err := st.Send(uint64(i), stream.Opaque, []byte("frame")); err != nil {
			t.Fatal(err)
		}
	}
	return st, outcomes, closed
}

// TestFinish checks that Finish waits for the results of waiting frames, and then closes the stream.
func TestFinish(t *testing.T) {
	in, outcomes, closed := paused(t, 3)
	if err := in.Finish(whenWaiting{context.Background(), in.Resume}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(*outcomes, []stream.Outcome{stream.Answered, stream.Answered, stream.Answered}) ||
		*closed != stream.ByClient {
		t.Errorf("endings %v, closed by %q: want three results, by the client", *outcomes, *closed)
	}
	if err := in.Send(3, stream.Opaque, nil); stream.CodeOf(err) != stream.Conflict {
		t.Errorf("a frame after Finish: %v, want conflict", err)
	}
	if err := in.Finish(context.Background()); err != nil {
		t.Errorf("a second Finish: %v", err)
	}
}

// TestFinishGivesUp checks that Finish returns when its context ends, and drops waiting frames.
func TestFinishGivesUp(t *testing.T) {
	in, outcomes, closed := paused(t, 3)
	ctx, cancel := context.WithCancel(context.Background())
	if err := in.Finish(whenWaiting{ctx, cancel}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want the error of the context", err)
	}
	<-in.Finished()
	if !slices.Equal(*outcomes, []stream.Outcome{stream.Dropped, stream.Dropped, stream.Dropped}) ||
		*closed != stream.ByClient {
		t.Errorf("endings %v, closed by %q: want three drops, by the client", *outcomes, *closed)
	}
}

// TestFinishClosed checks that Finish returns when another goroutine closes the stream.
func TestFinishClosed(t *testing.T) {
	in, outcomes, closed := paused(t, 3)
	unload := func() { in.CloseWith(stream.ByUnload, errors.New("unloaded")) }
	if err := in.Finish(whenWaiting{context.Background(), unload}); err != nil {
		t.Fatal(err)
	}
	if len(*outcomes) != 3 || *closed != stream.ByUnload {
		t.Errorf("endings %v, closed by %q: want three, by the unload", *outcomes, *closed)
	}
}

// TestFinishTwice checks that two concurrent calls of Finish both return.
func TestFinishTwice(t *testing.T) {
	in, outcomes, _ := paused(t, 1)
	var both sync.WaitGroup
	both.Add(2)
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- in.Finish(whenWaiting{context.Background(), sync.OnceFunc(both.Done)}) }()
	}
	both.Wait()
	in.Resume()
	if err := errors.Join(<-errs, <-errs); err != nil || len(*outcomes) != 1 {
		t.Errorf("%v, endings %v: want one", err, *outcomes)
	}
}
