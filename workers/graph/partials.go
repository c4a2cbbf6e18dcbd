package graph

import (
	"slices"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

// A model may answer a request several times, or never: such a model is decoupled. The steps after a decoupled step
// run for each of the step's answers, one answer at a time, in order; the outputs of the graph are then a part of the
// graph's answer. The steps before have ended, and no other step runs meanwhile, so that each answer has one meaning.

const (
	// maxParts is the number of answers of a step that wait for earlier answers; at the limit the step's model waits.
	maxParts = 16
	// maxPartWait is the longest wait of the model for one of its answers, less than the limit of a run.
	maxPartWait = 10 * time.Second
)

// partial is an answer of a decoupled step.
type partial struct {
	step    *step
	outputs []stream.Tensor
	lease   *buf.Buf
}

// findDecoupled finds the steps with decoupled models, and the steps that run for each answer.
func (b *builder) findDecoupled() error {
	for i, s := range b.p.steps {
		if !b.models[i].Decoupled {
			continue
		}
		if s.set.Crop != nil {
			return s.errorf(coded.Unsupported, "crop",
				"cuts out boxes for model %s, which may answer more than once: use a model that answers once",
				s.set.Model)
		}
		b.p.decoupled, s.decoupled, s.after = true, true, s.following(nil)
		for _, k := range b.p.steps {
			later := k == s || slices.Contains(s.after, k)
			switch {
			case !later && !slices.Contains(k.following(nil), s):
				return k.errorf(coded.Unsupported, "", "runs beside step %s, whose model %s may answer more than "+
					"once: let one of the two steps take an output of the other, or make two graphs", s.set.title(),
					s.set.Model)
			case later && k.keeps:
				return k.errorf(coded.Unsupported, "model", "keeps state (%s), and would run for each answer of "+
					"step %s, whose model %s may answer more than once: use a model without state", k.set.Model,
					s.set.title(), s.set.Model)
			case later && (k.set.Crop != nil || k.pixels):
				return k.errorf(coded.Unsupported, "input", "takes the picture, and would run for each answer of "+
					"step %s, whose model %s may answer more than once: put the step before that one", s.set.title(),
					s.set.Model)
			}
		}
	}
	return nil
}

// following appends the steps that wait for s, directly or indirectly.
func (s *step) following(to []*step) []*step {
	for _, k := range s.next {
		if !slices.Contains(to, k) {
			to = k.following(append(to, k))
		}
	}
	return to
}

// target is where the answers of a decoupled step go.
type target struct {
	run  *run
	step *step
}

// waitForRoom waits until one more answer of a step may wait, and the graph's client has room for the answer.
func (n *run) waitForRoom() error {
	if err := n.r.WaitForRoom(); err != nil {
		return err
	}
	limit := time.NewTimer(maxPartWait)
	defer limit.Stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.partials) >= maxParts && !n.failed && !n.over {
		if n.taken == nil {
			n.taken = make(chan struct{})
		}
		taken := n.taken
		n.mu.Unlock()
		select {
		case <-taken:
			n.mu.Lock()
		case <-limit.C:
			n.mu.Lock()
			return stream.Errorf(stream.FlowControl, "", "the next steps of graph %s have not taken an answer "+
				"within %v, and %d wait: give them more instances, or answer less often", n.w.env.Name, maxPartWait,
				maxParts)
		}
	}
	return nil
}

// wakeRoom ends the waits for room. mu is held.
func (n *run) wakeRoom() {
	if n.taken != nil {
		close(n.taken)
		n.taken = nil
	}
}

// addPart takes over an answer of a decoupled step.
func (n *run) addPart(p partial) {
	n.mu.Lock()
	if n.failed || n.over {
		n.mu.Unlock()
		p.lease.Release()
		return
	}
	n.partials = append(n.partials, p)
	n.mu.Unlock()
	n.nextPart()
}

// nextPart begins the run of the steps after a decoupled step for the oldest waiting answer, unless such a run is in
// progress.
func (n *run) nextPart() {
	n.mu.Lock()
	if n.child != nil || n.failed || len(n.partials) == 0 {
		n.mu.Unlock()
		return
	}
	p := n.partials[0]
	n.partials = slices.Delete(n.partials, 0, 1)
	c := n.newChild(p.step)
	n.child = c
	n.wakeRoom()
	n.mu.Unlock()
	defer c.endWait()
	defer c.recover()
	c.made(p.step, p.outputs, p.lease, stream.Answered, nil)
}

// newChild makes, but does not begin, the run of the steps after s for one answer. mu is held.
func (n *run) newChild(s *step) *run {
	c := &run{w: n.w, r: n.r, parent: n, begun: stream.Now(), stepsLeft: 1 + len(s.after), busy: 1, width: n.width,
		height: n.height}
	steps := n.w.plan.steps
	c.values, c.waits, c.steps, c.active = slices.Clone(n.values), make([]int8, len(steps)),
		make([]stream.Step, len(steps)), c.active0[:0]
	for i := range c.values {
		retain(c.values[i].lease)
	}
	for i, k := range steps {
		c.steps[i].Name = k.set.title()
	}
	c.steps[s.index].From, c.steps[s.index].Span = c.begun, n.steps[s.index].Span
	for _, k := range append([]*step{s}, s.after...) {
		for _, later := range k.next {
			c.waits[later.index]++
		}
	}
	return c
}

// partsEnded goes on after the last answer of a decoupled step, which may be without outputs.
func (n *run) partsEnded(s *step, res *stream.Result) {
	if len(res.Outputs) > 0 {
		n.addPart(partial{s, res.Outputs, res.Lease})
		res.Outputs, res.Lease = nil, nil
	}
	res.Release()
	n.mu.Lock()
	st := &n.steps[s.index]
	failed := n.failed
	if !failed {
		st.To, st.Outcome = stream.Now(), stream.Answered
	}
	n.stepsLeft, n.split = 0, true // every other step is before s, or has run for the answers of s
	n.mu.Unlock()
	if !failed {
		n.w.env.Step(st)
	}
}

// endPart ends the run of one answer of a decoupled step: the run's outputs are a part of the graph's answer.
func (n *run) endPart() {
	switch {
	case n.failed && n.err != nil:
		n.parent.fail("", n.err)
	case n.failed && n.reason != "":
		n.parent.end("", nil, n.reason)
	case n.failed, n.split:
	default:
		outputs, lease := n.outputs()
		if len(outputs) == 0 { // no condition held
			lease.Release()
			return
		}
		n.r.Pass(outputs, lease)
	}
}

// childEnded goes on after the run of one answer.
func (n *run) childEnded() {
	n.mu.Lock()
	n.child = nil
	n.mu.Unlock()
	n.nextPart()
	n.finishIfDone()
}
