package stream

// states are what is kept for a stream from one frame to the next.
type states struct {
	worker kept // of the model's worker
	stages kept // of the stages before and after its runs
}

type kept struct {
	value   any
	release func(any)
}

func (k *kept) drop() {
	was := *k
	*k = kept{}
	if was.value != nil && was.release != nil {
		was.release(was.value)
	}
}

func (s *states) drop() {
	s.worker.drop()
	s.stages.drop()
}

func (s *states) empty() bool { return s.worker.value == nil && s.stages.value == nil }

// states returns what is kept for r, or nil, with its stream's lock held.
func (r *Request) states() *states {
	if r.holdsToken {
		return &r.Stream.states
	}
	return r.own
}

// statesToSet is states for one that will be set.
func (r *Request) statesToSet() *states {
	if !r.holdsToken && r.own == nil {
		r.own = &states{}
	}
	return r.states()
}

// State returns what SetState kept with the request's stream, for stateful
// models. It, SetState and what they return are for the worker that runs the
// request, until it has answered it: the stream's next frame may run from then
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

// SetState keeps v with the stream, in place of what it kept before, which is the
// caller's again. release is called with v once, when the stream ends, moves or
// is idle for too long. A request that has ended, or was given up, keeps v to
// itself: then release is called when its run has returned.
func (r *Request) SetState(v any, release func(any)) {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	r.statesToSet().worker = kept{v, release}
}

// StageState is State for the stages before and after a model's runs, which keep
// theirs beside the worker's.
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
	r.statesToSet().stages = kept{v, release}
}

// DetachState takes the states away from the stream when the request's run hangs or
// panicked: the next frame starts with none. The request keeps what was taken, and
// releases it when the run has returned. It does nothing when the request has
// ended, since the next frame may have the states already.
func (r *Request) DetachState() {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holdsToken && r.Outcome() == Pending {
		own := s.states
		r.own, s.states = &own, states{}
		r.holdsToken, r.detached = false, true
	}
}
