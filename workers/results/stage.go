package results

import (
	"time"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// Stage is a stage of one worker. A nil function is not called; all functions run in the worker's goroutine.
type Stage struct {
	// Before may answer a frame instead of a run, before the frame's preparation. Later stages process the answer
	// like a result.
	Before func(r *stream.Request) (a Answer, ok bool)
	// After makes a frame's outputs from the outputs of the worker, or of the stage before. The new outputs are valid
	// until the next call, except the shapes, which are never written again.
	After func(r *stream.Request, in Outputs) ([]stream.Tensor, error)
	// Answered gets the outputs of this stage before the outputs are sent. lease is the memory of the data: a stage
	// that keeps data retains lease; the slice is valid during the call. Answered is not called for frames answered
	// before a run.
	Answered func(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf)
}

// Answer is an answer to a frame without a run. Later stages may add outputs but not change the given outputs.
type Answer struct {
	Outputs []stream.Tensor
	Lease   *buf.Buf // the memory of Outputs; the frame's result takes ownership
}

// Env has the arguments for making a stage.
type Env struct {
	Worker *stream.Model // outputs of the worker
	// Model is the model as seen by clients after the earlier stages. A stage changes Model to describe its own
	// outputs.
	Model   *stream.Model
	Decoded bool // an earlier stage makes results from the worker's outputs
	// Picture decodes a frame's picture, for comparisons.
	Picture func(r *stream.Request, to codec.Target, dst []byte) (codec.Placed, error)
	MaxAge  time.Duration // of tracking: the longest time without a box before an id ends

	slots int
}

// Slot returns a place in every stream for this stage alone. With a slot, the frames of one stream run one at a time.
func (e *Env) Slot() Slot {
	e.Model.Stateful = true
	e.slots++
	return Slot(e.slots - 1)
}

// Slot is the place of a stage's state in a stream. One-shot requests come from different callers: a stage must keep
// no state for them.
type Slot int

type slotValue struct {
	value   any
	release func(any)
}

// Get returns the value kept by Set in r's stream.
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
