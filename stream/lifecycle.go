package stream

// Close ends the stream: waiting frames are dropped, frames in flight finish and are still pushed, then the sink's
// Done is called and Finished is closed. Only the first call has an effect.
func (s *Stream) Close(why CloseReason) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed != "" {
		return
	}
	if why == ClientGone || why == SlowConsumer {
		s.clientGone.Store(true)
	}
	s.close(why, Dropped, Closed, nil)
}

// CloseWith closes the stream and ends waiting frames with err: after an unload, when no worker is left, and when the
// client has lost access. The stream refuses later frames, for ByError with err.
func (s *Stream) CloseWith(why CloseReason, err error) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed == "" {
		s.closedWith = err
		s.close(why, Failed, "", err)
	}
}

// Abandon closes the stream of a caller that no longer waits: every frame ends with err now. Runs of frames in flight
// are not interrupted.
func (s *Stream) Abandon(err error) {
	s.mu.Lock()
	defer s.unlock()
	s.clientGone.Store(true)
	for _, o := range s.order {
		if !o.bound {
			continue
		}
		s.detachState(o)
		s.endRunning(o, Failed, "", err)
	}
	s.pushInTurn()
	if s.closed == "" {
		s.close(ClientGone, Failed, "", err)
		return
	}
	s.finishIfDone()
}

func (s *Stream) close(why CloseReason, o Outcome, reason Reason, err error) {
	waiting := s.waiting
	s.waiting = nil
	s.waitingCount.Store(0)
	s.notifyWaiting(-len(waiting))
	for _, w := range waiting {
		s.endLocked(w, o, reason, err)
	}
	s.closed = why
	s.expiry.stop()
	s.resetAssembler()
	s.finishIfDone()
}

func (s *Stream) closedError() error {
	switch s.closed {
	case ByUnload:
		return Errorf(Unloaded, "", "model %s was unloaded", s.model.Name)
	case ByDrain:
		return Errorf(Draining, "", "the server is shutting down")
	case ByError:
		if s.closedWith != nil {
			return s.closedWith
		}
	}
	return Errorf(Conflict, "", "the stream is closed (%s)", s.closed)
}

// Move attaches the stream to q, the queue of model m, for a swap. A queued token is also queued in q; the caller
// removes the token from the old queue. Move returns false, and changes nothing, when the stream has finished.
func (s *Stream) Move(q Queue, m *Model) bool {
	s.mu.Lock()
	defer s.unlock()
	if s.finishedLocked() {
		return false
	}
	s.notifyWaiting(-len(s.waiting))
	s.queue, s.model = q, m
	s.useCounts(m)
	adopted := s.assembler != nil && s.assembler.Adopt(m)
	if !adopted {
		s.resetAssembler()
		s.assembler = m.newAssembler(s.opts.OneShot)
	}
	waiting := s.waiting
	s.waiting = nil
	s.waitingCount.Store(0)
	for _, w := range waiting {
		if err := s.recheck(w, adopted); err != nil {
			s.endLocked(w, Failed, "", err)
			continue
		}
		s.waiting = append(s.waiting, w)
		s.waitingCount.Add(weight(w))
	}
	n := len(s.waiting)
	if s.token != taken {
		s.states.drop()
	}
	s.affinity = nil
	if s.token == queued {
		s.token = notQueued
	}
	if n > 0 && s.token == notQueued && !s.paused {
		s.requeue()
	}
	s.notifyWaiting(n)
	return true
}

// DropIdleState releases the state and the assembler's memory of a stream idle since before the given moment, and
// reports the release. DropIdleState never releases the state of a Sequence.
func (s *Stream) DropIdleState(before Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Sequence || s.states.empty() && s.assembler == nil || len(s.order) > 0 || s.lastActive > before {
		return false
	}
	s.states.drop()
	s.resetAssembler()
	return true
}

// SetAffinity sets the worker with the stream's state, for models with affinity: the worker is passed to
// Queue.Enqueue. SetAffinity does nothing when the stream has left q.
func (s *Stream) SetAffinity(q Queue, worker any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == q {
		s.affinity = worker
	}
}

// ClearAffinity releases the stream's state if the state was in the given worker, and then lets any worker take the
// stream. The state is lost.
func (s *Stream) ClearAffinity(worker any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.affinity == worker {
		s.affinity = nil
		if s.states.worker.value != nil {
			s.lose(errStateLost)
		}
		s.states.worker.drop()
	}
}
