package stream

import "time"

// expiry is the timer that ends frames whose time passes while they wait. A stream has at
// most one. It is only set to an earlier moment, never to a later one: when it ends and
// no frame's time has passed, it is set to the next moment. So a stream whose frames are
// taken in time sets it once in the time that they have, not for each frame. Under the
// stream's lock.
type expiry struct {
	at    Instant // for which the timer is set; 0 = it is not
	timer *time.Timer
}

func (e *expiry) stop() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

// expiresAt returns when r ends if it still waits; 0 = never.
func (s *Stream) expiresAt(r *Request) Instant {
	at := r.Deadline
	if end := r.queueEnd(); end != 0 && (at == 0 || end < at) && !s.delays() {
		at = end
	}
	return at
}

// watchExpiry makes the timer end at the given moment at the latest; 0 = it need not.
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

// expire ends the waiting frames whose time has passed.
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
