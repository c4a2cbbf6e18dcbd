package v1

import (
	"sync"

	"millrace/ingest/ws/encode"
)

// outputs says in which form the result of each frame of a stream is sent: in the one that held when the frame came. It is
// safe for concurrent use.
//
// An entry is added by a message that is answered through the session's outbox, whose bound holds for entries, too.
type outputs struct {
	mu  sync.Mutex
	all []outputsAfter // the oldest first
}

// outputsAfter is the form for the frames above seq, up to the seq of the entry after it. The first entry of a stream holds
// for all frames.
type outputsAfter struct {
	seq  uint64
	form encode.Outputs
}

// set has the form hold for the frames above seq. Where none of the frames up to seq is in flight (alone), earlier forms go.
func (o *outputs) set(form encode.Outputs, seq uint64, alone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.all)
	switch {
	case alone:
		n = 0
	case n > 1 && o.all[n-1].seq == seq: // no frame has come in between
		n--
	}
	o.all = append(o.all[:n], outputsAfter{seq, form})
}

// of returns the form for a frame's result.
func (o *outputs) of(seq uint64) encode.Outputs {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.all) - 1; i > 0; i-- {
		if seq > o.all[i].seq {
			return o.all[i].form
		}
	}
	if len(o.all) == 0 {
		return encode.JSON
	}
	return o.all[0].form
}
