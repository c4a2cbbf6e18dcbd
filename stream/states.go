package stream

// states holds the states of a stream from one frame to the next.
type states struct {
	worker state // of the model's worker
	stages state // of the stages before and after runs
}

type state struct {
	value   any
	release func(any)
}

func (k *state) drop() {
	was := *k
	*k = state{}
	if was.value != nil && was.release != nil {
		was.release(was.value)
	}
}

func (s *states) drop() {
	s.worker.drop()
	s.stages.drop()
}

func (s *states) empty() bool { return s.worker.value == nil && s.stages.value == nil }
