package stream

// states returns the states for use by r, or nil. The stream's lock is held.
func (r *Request) states() *states {
	if r.holdsToken {
		return &r.Stream.states
	}
	return r.detachedStates
}

// statesToSet is states for a caller that sets a state: never nil.
func (r *Request) statesToSet() *states {
	if !r.holdsToken && r.detachedStates == nil {
		r.detachedStates = &states{}
	}
	return r.states()
}

// State returns the value kept by SetState for the request's stream, for stateful models. Only the worker running the
// request may call State and SetState or use the returned value, and only until the worker has answered the request:
// the stream's next frame may run from then on.
func (r *Request) State() any {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := r.states(); k != nil {
		return k.worker.value
	}
	return nil
}

// SetState keeps v with the stream, in place of the earlier value, which the caller then owns again. release is
// called once with v: when the stream ends, moves or is idle for too long. When the request has ended or was
// detached, v is kept with the request alone, and release is called after the run has returned.
func (r *Request) SetState(v any, release func(any)) {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	r.statesToSet().worker = state{v, release}
}

// StageState is State for the stages before and after a model's runs, with a state separate from the worker's.
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

// DetachState takes the states away from the stream when the request's run hangs or has panicked: the next frame
// starts without state. The request keeps the states and releases them when the run has returned. DetachState does
// nothing when the request has ended, since the next frame may already use the states.
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

// LostState returns the error of the frames of a Sequence after loss of the state, or nil.
func (s *Stream) LostState() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// errStateLost is the error of frames following a lost state.
var errStateLost = Errorf(Unavailable, "sequence_id",
	"the state of the sequence is lost, because the worker that had it was replaced: start the sequence again")

// detachState is Request.DetachState with the lock held.
func (s *Stream) detachState(r *Request) {
	if r.holdsToken && r.Outcome() == Pending {
		own := s.states
		r.detachedStates, s.states = &own, states{}
		r.holdsToken, r.detached = false, true
	}
}
