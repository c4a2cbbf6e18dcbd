package results

import (
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// Stage is a stage of one worker. A function that is nil is not called; all are called
// in the worker's goroutine.
type Stage struct {
	// Before may answer a frame that is about to be prepared for a run, which then does
	// not run. Later stages process the answer like a result.
	Before func(r *stream.Request) (a Answer, ok bool)
	// After makes a frame's outputs from those of the worker, or of the stage before.
	// They are valid until the next call, except for the shapes, which are never
	// written again.
	After func(r *stream.Request, in Outputs) ([]stream.Tensor, error)
	// Answered gets the outputs of this stage before they are sent. Their data are in
	// lease, which a stage that keeps them retains; the slice is valid during the call.
	// It is not called for frames that were answered before a run.
	Answered func(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf)
}

// Answer is an answer to a frame that need not run. Later stages may add outputs to it
// but not change these.
type Answer struct {
	Outputs []stream.Tensor
	Lease   *buf.Buf // the memory under Outputs; the frame's result takes it over
}

// Env has what a stage is made from.
type Env struct {
	Worker *stream.Model // what the worker computes
	// Model is what clients see after the stages before. A stage changes it to describe
	// its own outputs.
	Model   *stream.Model
	Decoded bool // an earlier stage makes results from the worker's outputs
	// Picture decodes a frame's picture, for comparisons.
	Picture func(r *stream.Request, to codec.Target, dst []byte) (codec.Placed, error)

	slots int
}

// Slot returns a place in every stream that only this stage uses. With a slot, the
// frames of one stream run one at a time.
func (e *Env) Slot() Slot {
	e.Model.Stateful = true
	e.slots++
	return Slot(e.slots - 1)
}

// Slot is where a stage keeps its state of a stream. One-shot requests come from
// different callers: nothing must be kept for them.
type Slot int

type slotValue struct {
	value   any
	release func(any)
}

// Get returns what Set kept with r's stream.
func (s Slot) Get(r *stream.Request) any {
	if all, _ := r.StageState().(*[]slotValue); all != nil && int(s) < len(*all) {
		return (*all)[s].value
	}
	return nil
}

// Set keeps v with r's stream. release, which may be nil, is called with v once:
// when the stream ends, moves to another model or is idle for too long.
func (s Slot) Set(r *stream.Request, v any, release func(any)) {
	all, _ := r.StageState().(*[]slotValue)
	if all == nil {
		all = &[]slotValue{}
		r.SetStageState(all, releaseAll)
	}
	for len(*all) <= int(s) {
		*all = append(*all, slotValue{})
	}
	(*all)[s] = slotValue{v, release}
}

func releaseAll(v any) {
	for _, k := range *v.(*[]slotValue) {
		if k.release != nil {
			k.release(k.value)
		}
	}
}
