package stream

import (
	"cmp"
	"errors"
	"time"

	"millrace/stream/buf"
)

// Submit offers a frame and takes over f.Lease in every case. A nil error means acceptance: exactly one ending will
// be pushed to the sink, perhaps before Submit returns. A frame that the model does not take is accepted and ends as
// an error, in turn; a frame that completes no request is answered without outputs (see Assembler). An error means
// refusal, with FlowControl (the window is full) or with the reason for the stream's close, and nothing will be
// pushed; the frame counts as refused unless Options.OwnRefusals is set.
func (s *Stream) Submit(f Frame) error { return s.submit(&f, Now(), nil, false) }

// Offer is Submit for a caller with another use for a refused frame: Offer takes over f.Lease only when the frame is
// accepted. The queue may lend a worker to the goroutine of by; nil = none.
func (s *Stream) Offer(f Frame, by *Caller) error { return s.submit(&f, Now(), by, true) }

// SubmitAt is Submit for a frame received at now.
func (s *Stream) SubmitAt(f Frame, now Instant) error { return s.submit(&f, now, nil, false) }

// SubmitBy is SubmitAt with a caller as of Offer.
func (s *Stream) SubmitBy(f Frame, by *Caller, now Instant) error {
	return s.submit(&f, now, by, false)
}

func (s *Stream) submit(f *Frame, now Instant, by *Caller, keep bool) error {
	r := newRequest(f, s, by)
	r.Timing.Received = now
	r.Span = r.TraceContext.allot(&s.opts.Trace)
	r.Bytes = f.size()
	if r.Params == nil {
		r.Params = s.opts.Params
	}
	if r.Account == nil {
		r.Account = s.opts.Account
	}
	if s.hasCache.Load() && r.Call == nil {
		r.result.key = digest(&r.Frame)
	}
	s.mu.Lock()
	defer s.unlock()
	accepted, prepared := false, false
	defer func() {
		switch {
		case !accepted: // refused, or a panic in progress
			if !keep {
				f.Lease.Release()
			}
		case !prepared: // a panic
			s.endLocked(r, Failed, "", Errorf(Internal, "", "the frame could not be prepared for its model"))
		}
	}()
	// One return: with many, each defer would be a record at run time.
	err := s.refusal(f.Must)
	if err != nil {
		err = s.refused(&r.Frame, err)
	} else {
		s.accept(r, now)
		accepted = true
		wrong := s.prepare(r)
		if wrong == nil && (r.QueueTimeout != 0 || s.model.Queue.Timeout != 0) {
			wrong = s.setQueueTimeout(r)
		}
		prepared = true
		s.queueOrEnd(r, now, wrong)
	}
	return err
}

// queueOrEnd lets an accepted request wait for a worker, or ends the request; err says why the model does not take the
// request.
func (s *Stream) queueOrEnd(r *Request, now Instant, err error) {
	r.Deadline = s.deadline(r, now)
	switch {
	case err != nil && errors.Is(err, buf.ErrBudget):
		s.endLocked(r, Dropped, Memory, nil)
		return
	case err != nil:
		s.endLocked(r, Failed, "", err)
		return
	case r.Rows == 0:
		s.endLocked(r, Answered, "", nil)
		return
	case s.tooSoon(r, now):
		s.endLocked(r, Dropped, RateLimit, nil)
		return
	case s.opts.Account != nil && s.opts.Account.TakeFrame(&r.Frame, now) != nil:
		s.endLocked(r, Dropped, OverQuota, nil)
		return
	case r.result.key != nil && s.fromCache(r):
		return
	}
	inPlace := s.policy.Mode == Latest && s.supersede()
	s.waiting = append(s.waiting, r)
	s.waitingCount.Add(weight(r))
	if err := s.queue.Admit(inPlace); err != nil {
		last := len(s.waiting) - 1
		s.waiting[last], s.waiting = nil, s.waiting[:last]
		s.waitingCount.Add(-weight(r))
		s.endLocked(r, Failed, "", err)
		return
	}
	if s.token == notQueued && !s.paused {
		s.requeue()
	}
	if r.Deadline != 0 || r.QueueTimeout != 0 {
		s.watchExpiry(s.expiresAt(r))
	}
}

// refusal returns the reason why the stream does not accept a frame now, or nil.
func (s *Stream) refusal(must bool) (err error) {
	if s.closed != "" {
		return s.closedError()
	}
	if s.lost != nil {
		return s.lost
	}
	if n := s.outstanding(must); n >= s.policy.Window && s.counts.Accepted >= s.acceptUpTo {
		err = Errorf(FlowControl, "window", "%d frames are in flight already: wait for results, or open the stream "+
			"with a larger window", n)
	} else if s.policy.Mode == Latest && len(s.order)-len(s.waiting) >= MaxWindow {
		err = Errorf(FlowControl, "window", "%d frames wait for an older one in flight: wait for results, or send "+
			"larger frames", MaxWindow)
	}
	if err != nil && s.policy.Mode == Latest {
		s.resetAssembler() // a live source does not send the frame again
	}
	return err
}

// refused counts a frame refused with err, and returns err.
func (s *Stream) refused(f *Frame, err error) error {
	if !s.opts.OwnRefusals {
		s.Refuse(f, "", err)
	}
	return err
}

// accept counts r as accepted.
func (s *Stream) accept(r *Request, now Instant) {
	s.lastActive = now
	s.counts.Accepted++
	r.first = s.counts.Accepted == 1
	r.counts = s.modelCounts.Load()
	r.counts.accept(cmp.Or(r.Priority, s.policy.Priority), now)
	s.order = append(s.order, r)
}

// outstanding returns how many frames the next one's window already counts.
func (s *Stream) outstanding(must bool) int {
	switch {
	case s.policy.Mode == Every:
		return len(s.order)
	case must:
		n := 0
		for _, w := range s.waiting {
			if w.Must { // waiting frames that are not Must will be superseded
				n++
			}
		}
		return n
	}
	return 0
}

func (s *Stream) deadline(r *Request, now Instant) Instant {
	if r.Must {
		return 0
	}
	d := time.Duration(0)
	for _, x := range [...]time.Duration{s.policy.MaxAge, s.policy.Deadline, r.Frame.Deadline} {
		if x > 0 && (d == 0 || x < d) {
			d = x
		}
	}
	end := now.Add(d)
	if end <= now { // d is 0, or too long for the clock
		return 0
	}
	return end
}

// tooSoon reports whether r exceeds the rate MaxFPS. A frame may come a quarter of an interval early, so that a
// source with slightly varying intervals loses no frame.
func (s *Stream) tooSoon(r *Request, now Instant) bool {
	if s.policy.MaxFPS <= 0 || r.Must {
		return false
	}
	step := time.Duration(float64(time.Second) / s.policy.MaxFPS)
	if s.nextFrameAt != 0 && now < s.nextFrameAt.Add(-step/4) {
		return true
	}
	if s.nextFrameAt == 0 || now > s.nextFrameAt.Add(step) {
		s.nextFrameAt = now // first frame, or the first after a pause, without a burst
	}
	s.nextFrameAt = s.nextFrameAt.Add(step)
	return false
}

// supersede ends the waiting frame replaced by a newer frame, if any, and reports whether a frame was replaced. The
// queue still counts the replaced frame as waiting.
func (s *Stream) supersede() bool {
	kept := s.waiting[:0]
	for _, w := range s.waiting {
		if w.Must {
			kept = append(kept, w)
			continue
		}
		s.waitingCount.Add(-weight(w))
		s.endLocked(w, Dropped, Superseded, nil)
	}
	any := len(kept) < len(s.waiting)
	clear(s.waiting[len(kept):])
	s.waiting = kept
	return any
}

// SubmitEnded accepts a frame, received at now and lost before reaching the stream (for example because a video
// decoder returned no picture), and ends the frame in turn: as dropped for why, or as failed when err is set. The
// frame counts like every frame, and leaves a gap before the next frame. SubmitEnded takes over f.Lease. An error
// means that the stream is closed and nothing will be pushed; the frame then counts as refused.
func (s *Stream) SubmitEnded(f Frame, now Instant, why Reason, err error) error {
	r := &Request{Frame: f, Stream: s}
	r.Timing.Received = now
	r.Span = r.TraceContext.allot(&s.opts.Trace)
	s.mu.Lock()
	defer s.unlock()
	if s.closed != "" {
		f.Lease.Release()
		return s.refused(&r.Frame, s.closedError())
	}
	s.accept(r, now)
	outcome := Dropped
	if err != nil {
		outcome, why = Failed, ""
	}
	s.endLocked(r, outcome, why, err)
	s.resetAssembler() // last, because of a possible panic
	return nil
}
