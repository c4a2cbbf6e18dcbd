package stream

import "time"

// Take binds the stream's next frame to a batch with room for the given rows of the given class (any class when class
// is nil) and a predicted duration of predict. The caller must hold the token. Take gives up the token unless kept is
// true: then the next frame needs more rows, and the caller still holds the token. Without kept, a nil request means
// that the mailbox is empty, the waiting frames were too late, or the next frame is of another class; in the last
// case Take queues the token again.
func (s *Stream) Take(now Instant, room int, class *uint64, predict time.Duration) (r *Request, kept bool) {
	r, kept, _ = s.TakeFiltered(now, room, class, predict, nil)
	return r, kept
}

// TakeFiltered is Take with a filter: when skip returns true for the next frame, the frame stays in the mailbox, and
// the caller still holds the token. skip is called with the stream's lock held.
func (s *Stream) TakeFiltered(now Instant, room int, class *uint64, predict time.Duration,
	skip func(*Request) bool) (r *Request, kept, skipped bool) {
	s.mu.Lock()
	defer s.unlock()
	s.token = taken // so that endings below do not queue a second token
	for len(s.waiting) > 0 && !s.paused {
		r = s.waiting[0]
		if s.lost != nil {
			s.pop()
			s.endLocked(r, Failed, "", s.lost)
			continue
		}
		if r.Deadline != 0 && now.Add(predict) > r.Deadline {
			s.pop()
			s.endLocked(r, Dropped, Stale, nil)
			continue
		}
		if end := r.queueEnd(); end != 0 && now >= end && !r.delayed {
			if s.delays() {
				r.delayed = true
				s.requeueAt(Delayed)
				return nil, false, false
			}
			s.pop()
			s.endLocked(r, Dropped, Stale, r.queueError())
			continue
		}
		if class != nil && *class != r.Class {
			s.requeue()
			return nil, false, false
		}
		if r.Rows > room {
			s.token = queued
			return nil, true, false
		}
		if skip != nil && skip(r) {
			s.token = queued
			return nil, false, true
		}
		s.pop()
		r.bound, r.holdsToken, r.gathered = true, s.model.Stateful, now
		// A worker reads the clock once for a batch: a frame received since then was in the queue for no time.
		r.Timing.Dequeued, r.Flushes = max(now, r.Timing.Received), s.flushes
		r.result.Model = s.model
		if r.holdsToken {
			return r, false, false
		}
		s.token = notQueued
		if len(s.waiting) > 0 {
			s.requeue()
		}
		return r, false, false
	}
	s.returnToken()
	return nil, false, false
}

// ReleaseToken gives up the token if no frame waits, and reports whether the token was given up. The caller must hold
// the token.
func (s *Stream) ReleaseToken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 && !s.paused {
		return false
	}
	s.returnToken()
	return true
}

// ForgetToken records that q removed the stream's token without taking a frame.
func (s *Stream) ForgetToken(q Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == q && s.token == queued {
		s.returnToken()
	}
}

// returnToken gives up a token that is in no queue. A stream that ended while the token was queued also frees its
// place.
func (s *Stream) returnToken() {
	s.token = notQueued
	if s.finishedLocked() {
		s.queue.Detach(s)
	}
}

// Head describes a stream's next frame before binding.
type Head struct {
	Class    uint64
	Received Instant
	Deadline Instant // the nearest deadline of all waiting frames; 0 = none
}

// Head returns the description of the next frame; ok is false when none waits.
func (s *Stream) Head() (h Head, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.paused {
		return h, false
	}
	r := s.waiting[0]
	h = Head{Class: r.Class, Received: r.Timing.Received, Deadline: r.Deadline}
	for _, w := range s.waiting[1:] {
		if w.Deadline != 0 && (h.Deadline == 0 || w.Deadline < h.Deadline) {
			h.Deadline = w.Deadline
		}
	}
	return h, true
}

func (s *Stream) pop() {
	s.waitingCount.Add(-weight(s.waiting[0]))
	copy(s.waiting, s.waiting[1:])
	s.waiting[len(s.waiting)-1] = nil
	s.waiting = s.waiting[:len(s.waiting)-1]
	s.queue.AddWaiting(-1)
}
