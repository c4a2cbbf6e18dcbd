package stream

// State returns what SetState kept with the request's stream, for stateful
// models. It, SetState and what they return are for the worker that runs the
// request, until it has answered it: the stream's next frame may run from then
// on.
func (r *Request) State() any {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holdsToken {
		return s.state
	}
	return r.ownState
}

// SetState keeps v with the stream, in place of what it kept before, which is the
// caller's again. release is called with v once, when the stream ends, moves or
// is idle for too long. A request that has ended, or was given up, keeps v to
// itself: then release is called when its run has returned.
func (r *Request) SetState(v any, release func(any)) {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holdsToken {
		s.state, s.releaseState = v, release
		return
	}
	r.ownState, r.releaseOwn = v, release
}

// DetachState takes the state away from the stream when the request's run hangs or
// panicked: the next frame starts with none. The request keeps what was taken, and
// releases it when the run has returned. It does nothing when the request has
// ended, since the next frame may have the state already.
func (r *Request) DetachState() {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holdsToken && r.Outcome() == Pending {
		r.ownState, r.releaseOwn = s.state, s.releaseState
		s.state, s.releaseState = nil, nil
		r.holdsToken, r.detached = false, true
	}
}
