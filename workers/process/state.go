package process

import (
	"strconv"
	"time"

	"millrace/stream"
)

// streamState is what is kept with a stream whose state a child has.
type streamState struct {
	proc *process
	id   uint64
}

// newState says in the message of a request that the child has no state of its stream yet.
func (w *Worker) newState(dst []byte, r *stream.Request) []byte {
	if !w.model.Stateful || r.Stream.Options().OneShot {
		return dst
	}
	if had, ok := r.State().(*streamState); ok && had.proc == w.proc {
		return dst
	}
	// State that another child had is gone: this one begins anew.
	r.SetState(&streamState{w.proc, r.Stream.ID()}, release)
	return append(dst, `,"new":true`...)
}

// release is called when a stream's state is not needed any more, perhaps with the stream's lock
// held: the child is told later.
func release(of any) {
	s := of.(*streamState)
	s.proc.mu.Lock()
	defer s.proc.mu.Unlock()
	s.proc.release = append(s.proc.release, s.id)
}

// maxReleased bounds the states of one message, so that the system takes it whole or not at all: a
// part of it would have to be followed by the rest, which may have to wait for room.
const maxReleased = 1000

// releaseStates tells the child which states it can drop. It waits up to limit for room for each
// message, and the caller holds writing. Those for which there is none are told later; if the child
// has gone, so have they.
func (w *Worker) releaseStates(limit time.Duration) {
	p := w.proc
	for {
		p.mu.Lock()
		ids := p.release[:min(len(p.release), maxReleased)]
		p.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		text := []byte(`{"type":"release","streams":[`)
		for i, id := range ids {
			if i > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendUint(text, id, 10)
		}
		if !w.postLocked(append(text, `]}`...), -1, limit) {
			return
		}
		p.mu.Lock()
		if p.release = p.release[len(ids):]; len(p.release) == 0 {
			p.release = nil
		}
		p.mu.Unlock()
	}
}
