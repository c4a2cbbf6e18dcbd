package v1

import (
	"slices"
	"sync"

	"millrace/ingest/ws/conn"
	"millrace/stream"
)

// maxOutputs is the most forms per stream: one per unanswered frame in `every`, and one for later frames.
const maxOutputs = stream.MaxWindow + 1

// outputs holds the form for the result of each frame of a stream: the form in force when the frame was received.
// outputs is safe for concurrent use: the reader sets forms, the writer reads forms.
type outputs struct {
	mu  sync.Mutex
	all []outputsAfter // the oldest first; maxOutputs at most
}

// outputsAfter is the form for the frames above seq, up to the seq of the next entry. The first entry also applies to
// all earlier frames.
type outputsAfter struct {
	seq  uint64
	form conn.Outputs
}

// full reports that no further form can be set while frames are unanswered.
func (o *outputs) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all) >= maxOutputs
}

// set applies a form to the frames above seq. With alone (no frame up to seq is unanswered), set removes earlier
// forms.
func (o *outputs) set(form conn.Outputs, seq uint64, alone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.all)
	switch {
	case alone:
		n = 0
	case n > 1 && o.all[n-1].seq == seq: // no frame was received in between
		n--
	}
	o.all = o.all[:n]
	if n == 0 || o.all[n-1].form != form {
		o.all = append(o.all, outputsAfter{seq, form})
	}
}

// of returns the form for a frame's result. Call set before of, and of in the order of the frames: of removes the
// forms of earlier frames.
func (o *outputs) of(seq uint64) conn.Outputs {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := len(o.all) - 1
	for i > 0 && seq <= o.all[i].seq {
		i--
	}
	o.all = slices.Delete(o.all, 0, i)
	return o.all[0].form
}
