package workers_test

import (
	"strings"
	"sync"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// TestQueueSizeIsExact: when many streams submit frames at once while the only worker is busy, exactly queue.max_size
// frames wait, and every other frame is refused.
func TestQueueSizeIsExact(t *testing.T) {
	const most, streams, each = 37, 16, 20
	r := newRig(t)
	g := r.load(t, workers.Config{
		Kind: "faulty", Queue: stream.QueuePolicy{MaxSize: most}, Batching: workers.Batching{Kind: batching.Hard,
			MaxSize: 1},
	})
	first, e := open(t, g, every)
	if err := first.Submit(r.frame(t, 0, "hang")); err != nil {
		t.Fatal(err)
	}
	waitBusy(t, g)
	var wg sync.WaitGroup
	all := make([]*endings, streams)
	for i := range all {
		s, told := open(t, g, stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: each}})
		all[i] = told
		frames := make([]stream.Frame, each)
		for seq := range frames {
			frames[seq] = r.frame(t, uint64(seq), "x")
		}
		wg.Go(func() {
			for _, f := range frames {
				if err := s.Submit(f); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := g.Stats().Waiting; n != most {
		t.Errorf("%d frames wait, want %d", n, most)
	}
	releaseHung()
	e.wait(t, 1)
	answered, refused := 0, 0
	for _, told := range all {
		for _, x := range told.wait(t, each) {
			switch {
			case x.outcome == stream.Answered:
				answered++
			case stream.CodeOf(x.err) == stream.Overloaded && strings.Contains(x.err.Error(), "queue.max_size"):
				refused++
			default:
				t.Errorf("%+v", x)
			}
		}
	}
	if answered != most || refused != streams*each-most {
		t.Errorf("%d are answered and %d refused, want %d and %d", answered, refused, most, streams*each-most)
	}
}
