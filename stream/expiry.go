package stream

import "time"

// expiry is the timer that ends waiting frames at their deadline or time-out. A stream has at most one timer, set
// only to earlier times, never to a later time. When the timer fires before the first expiry, the timer is set to the
// next expiry. So a stream whose frames are taken in time sets the timer once per time-out, not once per frame.
// Guarded by the stream's lock.
type expiry struct {
	at    Instant // when the timer fires; 0 = not set
	timer *time.Timer
}

func (e *expiry) stop() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

// expiresAt returns when r ends if r is still waiting; 0 = never.
func (s *Stream) expiresAt(r *Request) Instant {
	at := r.Deadline
	if end := r.queueEnd(); end != 0 && (at == 0 || end < at) && !s.delays() {
		at = end
	}
	return at
}

// watchExpiry makes the timer fire no later than at; 0 = no limit.
func (s *Stream) watchExpiry(at Instant) {
	e := &s.expiry
	if at == 0 || e.at != 0 && e.at <= at {
		return
	}
	e.at = at
	if e.timer == nil {
		e.timer = time.AfterFunc(at.Sub(Now()), s.expire)
		return
	}
	e.timer.Reset(at.Sub(Now()))
}

// expire ends the waiting frames whose deadline or time-out has passed.
func (s *Stream) expire() {
	now := Now()
	s.mu.Lock()
	defer s.unlock()
	if s.closed != "" {
		return
	}
	var next Instant
	var late []*Request
	kept := s.waiting[:0]
	for _, r := range s.waiting {
		at := s.expiresAt(r)
		if at != 0 && at <= now {
			late = append(late, r)
			s.waitingCount.Add(-weight(r))
			continue
		}
		kept = append(kept, r)
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
	s.notifyWaiting(-len(late))
	for _, r := range late {
		var err error
		if r.Deadline == 0 || r.Deadline > now {
			err = r.queueError()
		}
		s.endLocked(r, Dropped, Stale, err)
	}
	s.expiry.at = 0
	s.watchExpiry(next)
}
