package stream

import "slices"

// endLocked ends r, which no batch holds, if nothing ended it before.
func (s *Stream) endLocked(r *Request, o Outcome, why Reason, err error) {
	if !r.state.CompareAndSwap(uint32(Pending), uint32(o)) {
		return
	}
	r.result.Reason, r.result.Err = why, err
	s.complete(r)
}

// ended is called once for each request, after its state was set.
func (s *Stream) ended(r *Request) {
	now := Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Timing.Done = now
	s.lastActive = now
	s.complete(r)
}

// complete fills the result in, counts it and pushes what is now in turn.
func (s *Stream) complete(r *Request) {
	res := &r.result
	res.Outcome = r.Outcome()
	res.Seq, res.CaptureUS = r.Seq, r.CaptureUS
	res.Width, res.Height, res.BatchSize = r.SentWidth, r.SentHeight, r.BatchSize
	res.Timing, res.Trace, res.Span = r.Timing, r.Trace, r.Span
	switch res.Outcome {
	case Answered:
		s.counts.Results++
	case Dropped:
		s.counts.Drops++
	default:
		s.counts.Errors++
	}
	if r.holdsToken || r.detached {
		r.holdsToken, r.detached = false, false
		s.token = idle
		if res.Model != s.model {
			s.states.drop() // the stream was moved while the old model's worker had its state
		}
	}
	if !r.bound {
		res.Model = s.model
		r.Unbind()
	}
	s.endpoint.Ended(r)
	if s.policy.Mode == Latest && !r.bound && res.Outcome != Answered {
		s.pushAtOnce(r)
	}
	s.pushInTurn()
	if s.token == idle && len(s.waiting) > 0 && s.closed == "" && !s.paused {
		s.requeue()
	}
	s.finishIfDone()
}

// pushInTurn pushes the endings at the head of the order. In Latest a result of a
// run ends the older frames that still run, so that it need not wait for them.
func (s *Stream) pushInTurn() {
	answered := -1
	if s.policy.Mode == Latest {
		for i, o := range s.order {
			if o.bound && o.result.Outcome == Answered {
				answered = i
			}
		}
	}
	n := 0
	for i, o := range s.order {
		if o.result.Outcome == Pending && (i > answered || o.Must || !s.overtake(o)) {
			s.flushPartial(o)
			break
		}
		s.push(o)
		n++
	}
	s.order = slices.Delete(s.order, 0, n)
}

// overtake ends an older frame in flight whose batch still runs. It fails when
// the frame is ending at this moment and its worker waits for our lock: then
// the frame is pushed in its turn, and what is behind it follows at once.
//
// Its worker may still be writing to the request, so only what was written
// under the lock is read.
func (s *Stream) overtake(o *Request) bool {
	if !o.state.CompareAndSwap(uint32(Pending), uint32(Dropped)) {
		return false
	}
	s.counts.Drops++
	res := &o.result
	res.Outcome, res.Reason = Dropped, Overtaken
	res.Seq, res.CaptureUS = o.Seq, o.CaptureUS
	res.Timing.Received, res.Timing.Dequeued = o.Timing.Received, o.Timing.Dequeued
	res.Trace = o.Trace
	s.endpoint.Ended(o)
	return true
}

// pushAtOnce pushes, in Latest, the drop or error of a frame that no batch holds: a
// frame that was superseded, say, does not wait for those in flight.
func (s *Stream) pushAtOnce(r *Request) {
	i := len(s.order) - 1 // or close to it
	for s.order[i] != r {
		i--
	}
	s.order = slices.Delete(s.order, i, i+1)
	s.push(r)
}

func (s *Stream) push(r *Request) {
	s.flushPartial(r)
	s.sink.Push(&r.result)
}

func (s *Stream) flushPartial(r *Request) {
	for _, p := range r.partial {
		s.sink.Push(p)
	}
	r.partial = nil
}

func (s *Stream) emit(r *Request, p *Result) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Outcome() != Pending {
		p.Lease.Release()
		return false
	}
	p.Seq, p.CaptureUS, p.Model, p.Timing = r.Seq, r.CaptureUS, r.result.Model, r.Timing
	if s.order[0] == r {
		s.flushPartial(r)
		s.sink.Push(p)
	} else {
		r.partial = append(r.partial, p)
	}
	return true
}
