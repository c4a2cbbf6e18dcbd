package workers

import (
	"fmt"
	"testing"
	"time"

	"millrace/stream"
)

// TestTotalsAreKeptForAWhile checks that the totals of a model stay for a while after the end of the last group,
// continue after another load of the model, and are bounded.
func TestTotalsAreKeptForAWhile(t *testing.T) {
	var l ledger
	at := func(d time.Duration) stream.Instant { return stream.Instant(time.Hour + d) }
	listed := func(d time.Duration) map[string]uint64 {
		out := map[string]uint64{}
		for _, st := range l.stats(at(d)) {
			out[st.Model.Name+" "+st.State] = st.Frames.Accepted
		}
		return out
	}
	want := func(d time.Duration, want map[string]uint64) {
		t.Helper()
		if got := listed(d); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after %v: %v, want %v", d, got, want)
		}
	}
	serve := func(name string) (*totals, *Group) {
		g := &Group{}
		g.model = &stream.Model{Name: name, Version: "1"}
		u := l.use(name, "1")
		l.mu.Lock()
		u.served = true
		l.mu.Unlock()
		return u, g
	}
	first, a := serve("m")
	first.frames.Refuse(stream.Memory, nil)
	second, b := serve("m")
	if first != second {
		t.Fatal("two groups of a model and version have different totals")
	}
	l.drop(first, a, at(0))
	want(keepEnded, map[string]uint64{"m UNLOADED": 1}) // the second group still uses the totals
	l.drop(second, b, at(time.Second))
	second.frames.Refuse(stream.Memory, nil) // a frame after the end
	want(keepEnded, map[string]uint64{"m UNLOADED": 2})
	third, c := serve("m")
	if third != first {
		t.Error("a model that is loaded again begins anew")
	}
	l.drop(third, c, at(2*time.Second))
	want(keepEnded+time.Second, map[string]uint64{"m UNLOADED": 2})
	want(keepEnded+2*time.Second, map[string]uint64{})

	failed := l.use("broken", "1")
	l.drop(failed, nil, at(0))
	want(0, map[string]uint64{})
	for i := range maxEnded + 5 {
		u, g := serve(fmt.Sprintf("m%02d", i))
		l.drop(u, g, at(time.Duration(i)))
	}
	got := listed(time.Second)
	if _, old := got["m04 UNLOADED"]; len(got) != maxEnded || old {
		t.Errorf("%d ended models are kept, the oldest: %v; want the newest %d", len(got), old, maxEnded)
	}
}
