package stream

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
	s.lastActive = now
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
