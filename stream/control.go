package stream

// Update changes the policy of a running stream: the set fields of p replace the present fields, for frames submitted
// from now on. The mode cannot change, because the order of frames in flight depends on the mode. After a change to a
// smaller window, the stream still accepts frames for which the larger window had room, since the client may have
// sent those frames already. Errors: InvalidArgument, and Conflict for another mode.
func (s *Stream) Update(p Policy) error {
	return s.change(p, func() Policy { return s.policy })
}

// Replace is Update for a whole policy: unset fields of p take the model's defaults, as when opening a stream. The
// mode stays when p has no mode.
func (s *Stream) Replace(p Policy) error {
	return s.change(p, func() Policy { return s.model.Policy })
}

// change makes p the policy. Unset fields come from defaults, called with mu held.
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

// Flush drops all waiting frames not yet bound to a batch. The next frame starts a new sequence.
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
