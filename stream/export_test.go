package stream

// Kept returns the stream's state, also to a caller that may not use it.
func (s *Stream) Kept() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states.worker.value
}

// ExpiryAt returns the moment for which the stream's timer is set.
func (s *Stream) ExpiryAt() Instant { return s.expiry.at }
