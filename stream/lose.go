package stream

// Lose accepts a frame, received at now, of which nothing can be analysed, and
// ends it in its turn: as dropped for why, or as failed when err is set. It takes
// f.Lease over. What stands before a stream, say the decoder of a video, so has
// what it lost counted with everything else, and windows start again behind it. An
// error means that the stream is closed: nothing will be pushed.
func (s *Stream) Lose(f Frame, now Instant, why Reason, err error) error {
	r := &Request{Frame: f, Stream: s}
	r.Timing.Received = now
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != "" {
		f.Lease.Release()
		return s.closedError()
	}
	s.active = now
	s.counts.Accepted++
	s.cutter.reset()
	if s.policy.Mode == Every {
		s.order = append(s.order, r)
	}
	outcome := Dropped
	if err != nil {
		outcome, why = Failed, ""
	}
	s.endLocked(r, outcome, why, err)
	return nil
}
