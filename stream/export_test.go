package stream

// Kept is the stream's state, whoever asks.
func (s *Stream) Kept() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states.worker.value
}
