package stream

// State returns what SetState kept with the request's stream, for stateful
// models. It, SetState and what they return are for the worker that runs the
// request, until it has answered it: the stream's next frame may run from then
// on.
func (r *Request) State() any {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holds {
		return s.state
	}
	return r.orphan
}

// SetState keeps v with the stream, in place of what it kept before, which is the
// caller's again. release is called with v once, when the stream ends, moves or
// is idle for too long. A request that has ended, or was given up, keeps v to
// itself: then release is called when its run has returned.
func (r *Request) SetState(v any, release func(any)) {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holds {
		s.state, s.release = v, release
		return
	}
	r.orphan, r.bury = v, release
}

// OrphanState takes the state away from a stream whose frame is in a run that
// hangs or panicked with it: the next frame starts with none. What was taken is
// the request's own and is released when the run has returned. It does nothing
// when the request has ended, since the next frame may have the state already.
func (r *Request) OrphanState() {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.holds && r.Outcome() == Pending {
		r.orphan, r.bury = s.state, s.release
		s.state, s.release = nil, nil
		r.holds, r.orphaned = false, true
	}
}
