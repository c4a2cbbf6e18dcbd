package stream

import (
	"errors"
	"math"
	"time"

	"millrace/stream/buf"
)

// Submit offers a frame. It takes f.Lease over in every case. A nil error means
// that the frame is accepted: exactly one ending will be pushed to the sink,
// perhaps before Submit returns (a frame the model does not take is accepted
// and ends as an error, in its turn; one that completes no request is answered
// without outputs: see Assembler). Otherwise the frame was refused with
// FlowControl (the window is full), or with the reason for which the stream is
// closed, and nothing will be pushed.
func (s *Stream) Submit(f Frame) error { return s.SubmitAt(f, Now()) }

// SubmitAt is Submit for a frame received at now.
func (s *Stream) SubmitAt(f Frame, now Instant) error {
	r := &Request{Frame: f, Stream: s}
	r.Timing.Received = now
	if r.Params == nil {
		r.Params = s.opts.Params
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusal(f.Must); err != nil {
		f.Lease.Release()
		return err
	}
	s.accept(r, now)
	err := s.prepare(r)
	r.Deadline = s.deadline(r, now)
	switch {
	case errors.Is(err, buf.ErrBudget):
		s.endLocked(r, Dropped, Memory, nil)
		return nil
	case err != nil:
		s.endLocked(r, Failed, "", err)
		return nil
	case r.Rows == 0:
		s.endLocked(r, Answered, "", nil)
		return nil
	case s.tooSoon(r, now):
		s.endLocked(r, Dropped, RateLimit, nil)
		return nil
	}
	if s.policy.Mode == Latest {
		s.supersede()
	}
	s.waiting = append(s.waiting, r)
	s.waitingCount.Add(weight(r))
	if s.token == idle && !s.paused {
		s.token = queued
		s.endpoint.Enqueue(s, s.affinity)
	}
	s.endpoint.Waiting(1)
	return nil
}

// refusal says why the stream takes no further frame now, or nil.
func (s *Stream) refusal(must bool) (err error) {
	if s.closed != "" {
		return s.closedError()
	}
	if n := s.outstanding(must); n >= s.policy.Window && s.counts.Accepted >= s.acceptUpTo {
		err = Errorf(FlowControl, "window", "%d frames are in flight already: wait for results, or open the stream with a larger window", n)
	} else if s.policy.Mode == Latest && len(s.order)-len(s.waiting) >= MaxWindow {
		err = Errorf(FlowControl, "window", "%d frames wait for one before them that is in flight: wait for results, or send larger frames", MaxWindow)
	}
	if err != nil && s.policy.Mode == Latest {
		s.resetAssembler() // a live source does not send the frame again
	}
	return err
}

// accept counts r, whose ending will be pushed.
func (s *Stream) accept(r *Request, now Instant) {
	s.lastActive = now
	s.counts.Accepted++
	s.order = append(s.order, r)
}

// outstanding returns how many frames count against the window of the next one.
func (s *Stream) outstanding(must bool) int {
	switch {
	case s.policy.Mode == Every:
		return len(s.order)
	case must:
		n := 0
		for _, w := range s.waiting {
			if w.Must { // the others will be superseded
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
	if d == 0 || d > math.MaxInt64-time.Duration(now) {
		return 0
	}
	return now.Add(d)
}

// tooSoon keeps to MaxFPS. A frame may come a quarter of an interval early, so
// that a source that jitters around its own rate loses nothing.
func (s *Stream) tooSoon(r *Request, now Instant) bool {
	if s.policy.MaxFPS <= 0 || r.Must {
		return false
	}
	step := time.Duration(float64(time.Second) / s.policy.MaxFPS)
	if s.nextFrameAt != 0 && now < s.nextFrameAt.Add(-step/4) {
		return true
	}
	if s.nextFrameAt == 0 || now > s.nextFrameAt.Add(step) {
		s.nextFrameAt = now // first frame, or a pause: no burst is saved up
	}
	s.nextFrameAt = s.nextFrameAt.Add(step)
	return false
}

// supersede ends the waiting frames that a newer one replaces.
func (s *Stream) supersede() {
	kept := s.waiting[:0]
	for _, w := range s.waiting {
		if w.Must {
			kept = append(kept, w)
			continue
		}
		s.waitingCount.Add(-weight(w))
		s.endLocked(w, Dropped, Superseded, nil)
	}
	s.notifyWaiting(len(kept) - len(s.waiting))
	clear(s.waiting[len(kept):])
	s.waiting = kept
}

// SubmitEnded accepts a frame, received at now, that was lost before it reached
// the stream (a video decoder made no picture of it), and ends it in its turn: as
// dropped for why, or as failed when err is set. It is counted as every frame is,
// and what comes next does not follow on what came. It takes f.Lease over. An error
// means that the stream is closed: nothing will be pushed.
func (s *Stream) SubmitEnded(f Frame, now Instant, why Reason, err error) error {
	r := &Request{Frame: f, Stream: s}
	r.Timing.Received = now
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != "" {
		f.Lease.Release()
		return s.closedError()
	}
	s.accept(r, now)
	s.resetAssembler()
	outcome := Dropped
	if err != nil {
		outcome, why = Failed, ""
	}
	s.endLocked(r, outcome, why, err)
	return nil
}
