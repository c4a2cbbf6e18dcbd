package stream

// Kept returns the stream's state, even to a caller without access to the state.
func (s *Stream) Kept() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states.worker.value
}

// ExpiryAt returns when the stream's timer fires.
func (s *Stream) ExpiryAt() Instant { return s.expiry.at }
