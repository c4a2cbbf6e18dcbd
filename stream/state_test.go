package stream_test

import (
	"math"
	"testing"

	"millrace/stream"
)

// The states of the worker and of the stages are separate, and end together; when only
// the worker that had the state ends, the stages keep theirs.
func TestStagesKeepTheirOwnState(t *testing.T) {
	for what, end := range map[string]struct {
		do     func(b *bench, r *stream.Request)
		worker int // releases
		stages int
	}{
		"closed":       {func(b *bench, _ *stream.Request) { b.Close(stream.ByClient) }, 1, 1},
		"idle":         {func(b *bench, _ *stream.Request) { b.DropIdleState(math.MaxInt64) }, 1, 1},
		"moved":        {func(b *bench, _ *stream.Request) { b.Move(b.ep, stateful("other")) }, 1, 1},
		"worker ended": {func(b *bench, _ *stream.Request) { b.ClearAffinity("a worker") }, 1, 0},
		"other ended":  {func(b *bench, _ *stream.Request) { b.ClearAffinity("another") }, 0, 0},
	} {
		b := newBench(stateful("s"), every)
		worker, stages := 0, 0
		_ = b.offer()
		r := b.take(t)
		b.SetAffinity(b.ep, "a worker")
		r.SetState("worker", func(v any) {
			if v != "worker" {
				t.Errorf("%s: releases %v of the worker", what, v)
			}
			worker++
		})
		r.SetStageState("stages", func(v any) {
			if v != "stages" {
				t.Errorf("%s: releases %v of the stages", what, v)
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

func TestDetachedStatesAreReleasedAfterTheirRun(t *testing.T) {
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
