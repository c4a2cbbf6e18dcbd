package stream

// states returns the states that r may use, or nil. The stream's lock is held.
func (r *Request) states() *states {
	if r.holdsToken {
		return &r.Stream.states
	}
	return r.own
}

// statesToSet is states for a caller that will set one: it is never nil.
func (r *Request) statesToSet() *states {
	if !r.holdsToken && r.own == nil {
		r.own = &states{}
	}
	return r.states()
}

// State returns what SetState kept with the request's stream, for stateful models. Only
// the worker that runs the request may call State and SetState or use what they return,
// and only until it has answered the request: the stream's next frame may run from then
// on.
func (r *Request) State() any {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := r.states(); k != nil {
		return k.worker.value
	}
	return nil
}

// SetState keeps v with the stream. It replaces what was kept before, which the caller
// then owns again. release is called with v once: when the stream ends, moves or is
// idle for too long. When the request has ended or was detached, v is kept with the
// request alone, and release is called when its run has returned.
func (r *Request) SetState(v any, release func(any)) {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	r.statesToSet().worker = state{v, release}
}

// StageState is State for the stages before and after a model's runs, whose state is
// separate from the worker's.
func (r *Request) StageState() any {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := r.states(); k != nil {
		return k.stages.value
	}
	return nil
}

// SetStageState is SetState for the stages before and after a model's runs.
func (r *Request) SetStageState(v any, release func(any)) {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	r.statesToSet().stages = state{v, release}
}

// DetachState takes the states away from the stream when the request's run hangs or has
// panicked: the next frame starts without any. The request keeps what was taken, and
// releases it when the run has returned. It does nothing when the request has ended,
// since the next frame may have the states already.
func (r *Request) DetachState() {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holdsToken && r.Outcome() == Pending {
		s.lose(errStateLost)
	}
	s.detachState(r)
}

// lose makes the further frames of a Sequence fail with err.
func (s *Stream) lose(err error) {
	if s.opts.Sequence && s.lost == nil {
		s.lost = err
	}
}

// LostState returns why the frames of a Sequence fail, or nil: its state is lost.
func (s *Stream) LostState() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// errStateLost is the error of frames that would follow on a state that is lost.
var errStateLost = Errorf(Unavailable, "sequence_id", "the state of the sequence is lost, because the worker that had it was replaced: start the sequence again")

// detachState is Request.DetachState with the lock held.
func (s *Stream) detachState(r *Request) {
	if r.holdsToken && r.Outcome() == Pending {
		own := s.states
		r.own, s.states = &own, states{}
		r.holdsToken, r.detached = false, true
	}
}
