package results

import (
	"slices"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// Chain is the stages of one worker, in the order in which outputs pass through
// them. It is for the worker's goroutine.
type Chain struct {
	stages []Stage
	tools  Tools

	frame *stream.Request // the one that went through After last
	cut   cutter
	left  []int // how many outputs of it left each stage
}

// Tools are what a chain needs of its worker.
type Tools struct {
	// Look makes a picture of a frame's: see Env.
	Look func(r *stream.Request, to codec.Target, dst []byte) (codec.Placed, error)
	// Skipped is called for a frame that is answered without a run, before it ends.
	Skipped func(r *stream.Request)
}

// New makes the stages that are on in parts, for a worker that computes m, and
// returns the model as clients see it. Without any the chain is nil and the model m.
func New(parts []any, m *stream.Model, tools Tools) (*Chain, *stream.Model, error) {
	seen := *m
	env := &Env{Worker: m, Model: &seen, Look: tools.Look}
	c := &Chain{tools: tools}
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
	c.left = make([]int, len(c.stages))
	return c, &seen, nil
}

// Transforms says whether a stage makes other outputs of the worker's.
func (c *Chain) Transforms() bool {
	return c != nil && slices.ContainsFunc(c.stages, func(s Stage) bool { return s.After != nil })
}

// Before lets the stages look at a frame that is about to be prepared, and reports
// whether one of them has ended it.
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

// answer ends r with a, after the stages from number behind on.
func (c *Chain) answer(r *stream.Request, a Answer, behind int) bool {
	outputs, err := c.after(r, Outputs{Tensors: a.Outputs}, behind)
	if err != nil {
		a.Lease.Release()
		return false // its run will say what is wrong
	}
	contiguous := len(outputs) == len(a.Outputs)
	if !contiguous { // what was added is valid until the next call only
		outputs = slices.Clone(outputs)
		for k := len(a.Outputs); k < len(outputs); k++ {
			outputs[k].Data = slices.Clone(outputs[k].Data)
		}
	}
	r.Timing.Started = stream.Now()
	if c.tools.Skipped != nil {
		c.tools.Skipped(r)
	}
	r.Finish(outputs, a.Lease, contiguous)
	return true
}

// After makes the result of r of the worker's outputs, of which the rows from row on
// are r's. It is valid until the next call.
func (c *Chain) After(r *stream.Request, outputs []stream.Tensor, row int) (out []stream.Tensor, err error) {
	defer func() { // outputs on which a stage panics fail one member
		if x := recover(); x != nil {
			err = stream.Errorf(stream.Internal, "output", "turning the outputs of model %s into results panicked: %v", r.Stream.Model().Name, x)
		}
	}()
	c.frame = r
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
		c.left[i] = len(in.Tensors)
	}
	return in.Tensors, nil
}

// Answered shows the stages a result before it is sent. lease is the memory under
// its outputs.
func (c *Chain) Answered(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf) {
	through := c.frame == r // else the worker has answered it itself
	c.frame = nil
	for i, s := range c.stages {
		switch {
		case s.Answered == nil:
		case through:
			s.Answered(r, outputs[:c.left[i]], lease)
		default:
			s.Answered(r, outputs, lease)
		}
	}
}
