package stream

// Update changes the policy of a running stream: fields of p that are set replace those
// in force, for frames submitted from now on. The mode cannot change, because the order
// of frames in flight depends on it. After a change to a smaller window, frames that
// the larger one had room for are still accepted, since the client may have sent them
// already. Errors: InvalidArgument, and Conflict for another mode.
func (s *Stream) Update(p Policy) error {
	return s.change(p, func() Policy { return s.policy })
}

// Replace is Update for a whole policy: fields of p that are not set take the model's
// defaults, as when a stream is opened. The mode stays when p has none.
func (s *Stream) Replace(p Policy) error {
	return s.change(p, func() Policy { return s.model.Policy })
}

// change makes p the policy. Fields that are not set are those of defaults, which is
// called with mu held.
func (s *Stream) change(p Policy, defaults func() Policy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Mode == "" {
		p.Mode = s.policy.Mode
	}
	if p.Mode != s.policy.Mode {
		return Errorf(Conflict, "policy", "is %s and cannot become %s: open another stream", s.policy.Mode, p.Mode)
	}
	next := p.WithDefaults(defaults())
	if next.MaxFPS != s.policy.MaxFPS {
		s.nextFrameAt = 0
	}
	if room := s.policy.Window - s.outstanding(true); next.Window < s.policy.Window && room > 0 {
		s.acceptUpTo = max(s.acceptUpTo, s.counts.Accepted+uint64(room))
	}
	s.policy = next
	s.policyCopy.Store(&next)
	return nil
}

// Pause stops binding frames to batches. Frames wait: in Latest the newest, in Every as
// many as the window allows, and no longer than their deadlines.
func (s *Stream) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// Resume ends a pause.
func (s *Stream) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	if s.token == notQueued && len(s.waiting) > 0 {
		s.requeue()
	}
}

// Flush drops the frames that wait and are not yet bound to a batch. The next frame
// does not follow on them.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.unlock()
	if s.closed != "" {
		return
	}
	s.flushes++
	s.resetAssembler()
	waiting := s.waiting
	s.waiting = nil
	s.waitingCount.Store(0)
	s.notifyWaiting(-len(waiting))
	for _, w := range waiting {
		s.endLocked(w, Dropped, Flushed, nil)
	}
}
