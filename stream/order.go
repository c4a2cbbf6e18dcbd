package stream

import "slices"

// endLocked ends r, a request in no batch, unless r has already ended.
func (s *Stream) endLocked(r *Request, o Outcome, why Reason, err error) {
	if !r.outcome.CompareAndSwap(uint32(Pending), uint32(o)) {
		return
	}
	r.result.Reason, r.result.Err = why, err
	s.complete(r)
}

// ended is called once for each request, after the outcome was set.
func (s *Stream) ended(r *Request) {
	now := Now()
	s.mu.Lock()
	defer s.unlock()
	r.Timing.Done = now
	s.lastActive = now
	s.complete(r)
}

// complete fills in the result of r, counts the result and pushes the endings in turn.
func (s *Stream) complete(r *Request) {
	res := &r.result
	if begun := Instant(r.runStart.Load()); begun != 0 {
		r.Timing.Started = begun
	}
	res.Outcome = r.Outcome()
	res.Seq, res.CaptureUS = r.Seq, r.CaptureUS
	res.Width, res.Height, res.BatchSize = r.SentWidth, r.SentHeight, r.BatchSize
	res.Timing, res.Trace, res.Span = r.Timing, r.Trace, r.Span
	res.counts = r.counts
	done := r.Timing.Done
	if done == 0 { // no result was made
		done = Now()
	}
	r.counts.end(res, done.Sub(r.Timing.Received))
	if r.first && res.Outcome != Answered {
		s.lose(Errorf(Conflict, "sequence_start",
			"the first request of the sequence had no result: start the sequence again"))
	}
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
		s.token = notQueued
		if res.Model != s.model {
			s.states.drop() // a move came while the old model's worker was using the state
		}
	}
	if !r.bound {
		res.Model = s.model
		r.Unbind()
	}
	s.queue.Ended(r)
	r.early.wake()
	if s.policy.Mode == Latest && !r.bound && res.Outcome != Answered {
		s.pushAtOnce(r)
	}
	s.pushInTurn()
	if s.token == notQueued && len(s.waiting) > 0 && s.closed == "" && !s.paused {
		s.requeue()
	}
	s.finishIfDone()
}

func (s *Stream) finishIfDone() {
	if s.closed == "" || len(s.order) > 0 || s.finishedLocked() {
		return
	}
	s.states.drop()
	left := s.token == queued
	if !left {
		s.queue.Detach(s)
	}
	s.pushed = true
	s.sink.Done(s.closed)
	if s.opts.Place {
		s.opts.Account.Release(QuotaStreams)
	}
	close(s.finished)
	if left { // last: the queue looks for tokens of finished streams
		s.queue.AddWaiting(0) // makes a worker remove the token and free the stream's place in the queue
	}
}

// pushInTurn pushes the endings at the head of the order. In Latest, the result of a run ends older running frames,
// so that the result need not wait for their runs.
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
			s.flushEarly(o)
			break
		}
		s.push(o)
		n++
	}
	s.order = slices.Delete(s.order, 0, n)
}

// overtake drops an older frame with a running batch. overtake fails when the frame is just ending and its worker
// waits for the stream's lock: then the frame is pushed in turn, directly before the newer frames.
func (s *Stream) overtake(o *Request) bool { return s.endRunning(o, Dropped, Overtaken, nil) }

// endRunning ends a frame whose batch may be running, without pushing the ending. endRunning reports whether this
// ending was the first.
//
// The worker may still be writing to the request, so endRunning reads only fields written under the lock.
func (s *Stream) endRunning(o *Request, outcome Outcome, why Reason, err error) bool {
	if !o.outcome.CompareAndSwap(uint32(Pending), uint32(outcome)) {
		return false
	}
	if outcome == Dropped {
		s.counts.Drops++
	} else {
		s.counts.Errors++
	}
	if o.detached {
		o.detached, s.token = false, notQueued
	}
	res := &o.result
	res.Outcome, res.Reason, res.Err = outcome, why, err
	res.Seq, res.CaptureUS = o.Seq, o.CaptureUS
	res.Timing.Received, res.Timing.Dequeued = o.Timing.Received, o.Timing.Dequeued
	res.Trace, res.Span = o.Trace, o.Span
	o.counts.end(res, Now().Sub(o.Timing.Received))
	s.queue.Ended(o)
	if o.onEnd != nil {
		o.onEnd()
	}
	return true
}

// pushAtOnce pushes, in Latest, the drop or error of a frame in no batch: a superseded frame, for example, does not
// wait for frames in flight.
func (s *Stream) pushAtOnce(r *Request) {
	i := len(s.order) - 1 // r is among the last
	for s.order[i] != r {
		i--
	}
	s.order = slices.Delete(s.order, i, i+1)
	s.push(r)
}

func (s *Stream) push(r *Request) {
	s.flushEarly(r)
	s.pushed = true
	s.sink.Push(&r.result)
}
