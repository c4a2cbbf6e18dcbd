package ws

import "sync"

// forms says in which form the result of each frame of a stream is sent: in the
// one that held when the frame came. It is safe for concurrent use.
//
// An entry is added by a message that is answered through the session's outbox,
// whose bound is theirs, too.
type forms struct {
	mu  sync.Mutex
	all []formAfter // the oldest first
}

// formAfter holds for the frames above a seq, as far as no later one does. The
// first of a stream's holds for all.
type formAfter struct {
	seq  uint64
	form outputs
}

// set has the form hold for the frames above seq. When none up to it is on its
// way any more, nothing else is kept.
func (f *forms) set(form outputs, seq uint64, alone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.all)
	switch {
	case alone:
		n = 0
	case n > 1 && f.all[n-1].seq == seq: // no frame has come in between
		n--
	}
	f.all = append(f.all[:n], formAfter{seq, form})
}

// of returns the form for a frame's result.
func (f *forms) of(seq uint64) outputs {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.all) - 1; i > 0; i-- {
		if seq > f.all[i].seq {
			return f.all[i].form
		}
	}
	if len(f.all) == 0 {
		return asJSON
	}
	return f.all[0].form
}
