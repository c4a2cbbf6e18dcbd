package results

import (
	"slices"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// Chain has the stages of one worker, in the order of processing. Only the worker's goroutine uses a Chain.
type Chain struct {
	stages []Stage
	model  *stream.Model // as seen by clients
	tools  Tools

	frame  *stream.Request // the last frame passed to After
	cut    cutter
	counts []int // number of outputs of each stage for frame
}

// Tools are the functions of a worker used by the worker's chain.
type Tools struct {
	// Picture decodes a frame's picture: see Env.
	Picture func(r *stream.Request, to codec.Target, dst []byte) (codec.Placed, error)
	// Skipped is called for a frame answered without a run, before the frame ends.
	Skipped func(r *stream.Request)
}

// New makes the stages turned on by parts, for a worker that computes m, and returns the model as seen by clients.
// Without any stage the chain is nil and the model m.
func New(parts []any, m *stream.Model, tools Tools) (*Chain, *stream.Model, error) {
	seen := *m
	env := &Env{Worker: m, Model: &seen, Picture: tools.Picture}
	c := &Chain{tools: tools, model: &seen}
	for _, k := range kinds {
		stage, on, err := k.create(parts, env)
		if err != nil {
			return nil, nil, err
		}
		if on {
			c.stages = append(c.stages, stage)
			env.Decoded = env.Decoded || stage.After != nil
		}
	}
	if len(c.stages) == 0 {
		return nil, m, nil
	}
	c.counts = make([]int, len(c.stages))
	return c, &seen, nil
}

// Transforms reports whether a stage changes the worker's outputs.
func (c *Chain) Transforms() bool {
	return c != nil && slices.ContainsFunc(c.stages, func(s Stage) bool { return s.After != nil })
}

// Before calls the stages' Before for a frame before the frame's preparation, and reports whether a stage has ended
// the frame.
func (c *Chain) Before(r *stream.Request) (ended bool) {
	defer func() {
		if x := recover(); x != nil {
			ended = true
			r.Fail(stream.Errorf(stream.Internal, "frame", "a stage before the run panicked: %v", x))
		}
	}()
	for i, s := range c.stages {
		if s.Before == nil {
			continue
		}
		if a, ok := s.Before(r); ok && c.answer(r, a, i+1) {
			return true
		}
	}
	return false
}

// answer ends r with a, after the processing by the stages from number next on.
func (c *Chain) answer(r *stream.Request, a Answer, next int) bool {
	outputs, err := c.after(r, Outputs{Tensors: a.Outputs}, next)
	if err != nil {
		a.Lease.Release()
		return false // the run of r will return the error
	}
	contiguous := len(outputs) == len(a.Outputs)
	if !contiguous { // added outputs are valid until the next call only
		outputs = slices.Clone(outputs)
		for k := len(a.Outputs); k < len(outputs); k++ {
			outputs[k].Data = slices.Clone(outputs[k].Data)
		}
	}
	if seen := c.model; seen.Axis != stream.FreeAxis {
		outputs = slices.Clone(outputs) // a stage may keep these
		seen.TrimRows(outputs)
	}
	r.Timing.Started = stream.Now()
	if c.tools.Skipped != nil {
		c.tools.Skipped(r)
	}
	r.Finish(outputs, a.Lease, contiguous)
	return true
}

// AllRows as a row means that the frame has all rows of the outputs.
const AllRows = -1

// After makes the result of r from the worker's outputs; r has the rows from row on.
// The result is valid until the next call.
func (c *Chain) After(r *stream.Request, outputs []stream.Tensor, row int) (out []stream.Tensor, err error) {
	defer func() { // a stage's panic fails only this request
		if x := recover(); x != nil {
			err = stream.Errorf(stream.Internal, "output", "a stage after the run of model %s panicked: %v",
				r.Stream.Model().Name, x)
		}
	}()
	c.frame = r
	if row == AllRows {
		return c.after(r, Outputs{Tensors: outputs}, 0)
	}
	return c.after(r, Outputs{outputs, row, &c.cut}, 0)
}

func (c *Chain) after(r *stream.Request, in Outputs, first int) ([]stream.Tensor, error) {
	for i := first; i < len(c.stages); i++ {
		if after := c.stages[i].After; after != nil {
			out, err := after(r, in)
			if err != nil {
				return nil, err
			}
			in = Outputs{Tensors: out}
		}
		c.counts[i] = len(in.Tensors)
	}
	return in.Tensors, nil
}

// Answered passes a result to the stages before the result is sent. lease is the memory of outputs.
func (c *Chain) Answered(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf) {
	through := c.frame == r // otherwise the worker has answered r itself
	c.frame = nil
	for i, s := range c.stages {
		switch {
		case s.Answered == nil:
		case through:
			s.Answered(r, outputs[:c.counts[i]], lease)
		default:
			s.Answered(r, outputs, lease)
		}
	}
}
