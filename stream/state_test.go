package stream_test

import (
	"math"
	"testing"

	"millrace/stream"
)

// The states of the worker and of the stages are separate, and end together; when only the worker with the state
// ends, the stages keep their state.
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

// Abandon ends all frames at once; a frame in a running batch keeps its state until the run has returned.
func TestAbandonedFramesEndAtOnce(t *testing.T) {
	for what, m := range map[string]*stream.Model{"without a state": anything, "stateful": stateful("s")} {
		t.Run(what, func(t *testing.T) {
			counts := &stream.FrameCounts{}
			m := *m
			m.Counts = counts
			b := newBench(&m, every)
			_ = b.offer()
			_ = b.offer()
			r := b.take(t)
			released := 0
			if m.Stateful {
				r.SetState("state", func(any) { released++ })
			}
			err := stream.Errorf(stream.Canceled, "", "nobody waits")
			b.Abandon(err)
			b.check(t, "0 error canceled", "1 error canceled")
			if released != 0 || r.Payload == nil || r.Wanted() {
				t.Errorf("while the run goes on: %d releases of the state, payload %q, wanted %v", released, r.Payload,
					r.Wanted())
			}
			if !b.IsFinished() {
				t.Error("the stream waits for the run")
			}
			if answer(b.mem, r) {
				t.Error("a frame that was abandoned was answered")
			}
			r.Unbind()
			if m.Stateful && released != 1 {
				t.Errorf("%d releases of the state after the run", released)
			}
			b.Abandon(err)
			b.check(t, "0 error canceled", "1 error canceled")
			b.checkFinished(t)
			if got := counts.Totals(); got.Accepted != 2 || got.Errors[stream.Canceled] != 2 || got.InFlight != 0 {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

// A stream closed during a frame's run can be abandoned: the frame ends.
func TestAbandonedAfterItsEnd(t *testing.T) {
	b := newBench(anything, every)
	_ = b.offer()
	r := b.take(t)
	b.Close(stream.ByClient)
	b.Abandon(stream.Errorf(stream.Canceled, "", "nobody waits"))
	b.check(t, "0 error canceled")
	r.Unbind()
	b.checkFinished(t)
}
