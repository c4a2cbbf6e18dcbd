package process

import (
	"strconv"
	"time"

	"millrace/stream"
)

// streamState is kept with a stream whose state a child has.
type streamState struct {
	proc *process
	id   uint64
}

// newState tells the child, in the message of a request, that the stream has no state yet.
func (w *Worker) newState(dst []byte, r *stream.Request) []byte {
	if !w.model.Stateful || r.Stream.Options().OneShot {
		return dst
	}
	if had, ok := r.State().(*streamState); ok && had.proc == w.proc {
		return dst
	}
	// The state of a former child is gone: a new state begins.
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

// maxReleased bounds the states of one message, so that the system writes the message whole or not at all: the rest
// of a partial message might have to wait for room.
const maxReleased = 1000

// releaseStates tells the child the droppable states. releaseStates waits up to limit for room for each message, and
// the caller holds writing. States without room for their message are told later; if the child has gone, its states
// are gone, too.
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
