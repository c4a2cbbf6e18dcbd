package stream_test

import (
	"math"
	"testing"

	"millrace/stream"
)

// The worker's state and that of the stages are two, and end together; when only
// the worker that had the state is gone, the stages keep theirs.
func TestStagesKeepTheirOwnState(t *testing.T) {
	for what, end := range map[string]struct {
		do     func(b *bench, r *stream.Request)
		worker int // releases
		stages int
	}{
		"closed":        {func(b *bench, _ *stream.Request) { b.Close(stream.ByClient) }, 1, 1},
		"idle":          {func(b *bench, _ *stream.Request) { b.DropIdleState(math.MaxInt64) }, 1, 1},
		"moved":         {func(b *bench, _ *stream.Request) { b.Move(b.ep, stateful("other")) }, 1, 1},
		"worker gone":   {func(b *bench, _ *stream.Request) { b.ClearAffinity("a worker") }, 1, 0},
		"other is gone": {func(b *bench, _ *stream.Request) { b.ClearAffinity("another") }, 0, 0},
	} {
		b := newBench(stateful("s"), every)
		worker, stages := 0, 0
		_ = b.offer()
		r := b.take(t)
		b.SetAffinity(b.ep, "a worker")
		r.SetState("worker", func(v any) {
			if v != "worker" {
				t.Errorf("%s: the worker is given %v", what, v)
			}
			worker++
		})
		r.SetStageState("stages", func(v any) {
			if v != "stages" {
				t.Errorf("%s: the stages are given %v", what, v)
			}
			stages++
		})
		if r.State() != "worker" || r.StageState() != "stages" {
			t.Fatalf("%v, %v", r.State(), r.StageState())
		}
		answer(b.mem, r)
		r.Unbind()
		end.do(b, r)
		if worker != end.worker || stages != end.stages {
			t.Errorf("%s: %d releases of the worker's, %d of the stages'", what, worker, stages)
		}
	}
}

func TestDetachedStatesGoWithTheirRun(t *testing.T) {
	b := newBench(stateful("s"), every)
	_ = b.offer()
	r := b.take(t)
	released := ""
	note := func(v any) { released += v.(string) }
	r.SetState("w", note)
	r.SetStageState("s", note)
	r.DetachState()
	if released != "" || b.Kept() != nil || r.State() != "w" || r.StageState() != "s" {
		t.Fatalf("%q, %v, %v", released, r.State(), r.StageState())
	}
	r.Fail(stream.Errorf(stream.Timeout, "", "hangs"))
	r.Unbind()
	if released != "ws" {
		t.Fatalf("%q", released)
	}
}
