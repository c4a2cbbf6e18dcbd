package results

import (
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// Stage is what one worker has of a kind of stage. A function that is nil is not
// called; all are called from the worker's goroutine.
type Stage struct {
	// Before may answer a frame that is about to be prepared for a run: then it does
	// not run. The stages behind this one see the answer as they see a result.
	Before func(r *stream.Request) (a Answer, ok bool)
	// After makes a frame's outputs of those of the worker, or of the stage before.
	// What it returns is valid until the next call, except for the shapes, which are
	// never written again.
	After func(r *stream.Request, in Outputs) ([]stream.Tensor, error)
	// Answered gets the outputs that left this stage before they are sent. Their data
	// are in lease, which a stage that keeps them retains; the slice is valid during
	// the call. Frames that were answered before a run are left out.
	Answered func(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf)
}

// Answer is an answer to a frame that need not run. Stages behind the one that gave
// it may add outputs, not change these.
type Answer struct {
	Outputs []stream.Tensor
	Lease   *buf.Buf // the memory under Outputs; the frame's result takes it over
}

// Env is what a stage is made with.
type Env struct {
	Worker *stream.Model // what the worker computes
	// Model is what clients see: as the stages before leave it. A stage changes it to
	// what it leaves.
	Model   *stream.Model
	Decoded bool // a stage before makes results of the worker's outputs
	// Look makes a picture of a frame's, for comparisons.
	Look func(r *stream.Request, to codec.Target, dst []byte) (codec.Placed, error)

	slots int
}

// Slot returns a place of the stage's own in every stream. Frames of one stream
// then run one at a time.
func (e *Env) Slot() Slot {
	e.Model.Stateful = true
	e.slots++
	return Slot(e.slots - 1)
}

// Slot is where a stage keeps something for a stream. One-shot requests come from
// different callers: what is kept for them concerns none of them.
type Slot int

type kept struct {
	value   any
	release func(any)
}

// Get returns what Set kept with r's stream.
func (s Slot) Get(r *stream.Request) any {
	if all, _ := r.StageState().(*[]kept); all != nil && int(s) < len(*all) {
		return (*all)[s].value
	}
	return nil
}

// Set keeps v with r's stream. release, which may be nil, is called with v once:
// when the stream ends, moves to another model or is idle for too long.
func (s Slot) Set(r *stream.Request, v any, release func(any)) {
	all, _ := r.StageState().(*[]kept)
	if all == nil {
		all = &[]kept{}
		r.SetStageState(all, releaseAll)
	}
	for len(*all) <= int(s) {
		*all = append(*all, kept{})
	}
	(*all)[s] = kept{v, release}
}

func releaseAll(v any) {
	for _, k := range *v.(*[]kept) {
		if k.release != nil {
			k.release(k.value)
		}
	}
}
