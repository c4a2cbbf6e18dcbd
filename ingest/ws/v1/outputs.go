package v1

import (
	"slices"
	"sync"

	"millrace/ingest/ws/encode"
	"millrace/stream"
)

// maxOutputs is the most forms of one stream: one for each frame that may be unanswered
// in `every`, and one for later frames.
const maxOutputs = stream.MaxWindow + 1

// outputs says in which form the result of each frame of a stream is sent: in the form
// that was set when the frame was received. It is safe for concurrent use: the reader
// sets forms, the writer reads them.
type outputs struct {
	mu  sync.Mutex
	all []outputsAfter // the oldest first; maxOutputs at most
}

// outputsAfter is the form for the frames above seq, up to the seq of the next entry.
// The first entry is also for all frames before that.
type outputsAfter struct {
	seq  uint64
	form encode.Outputs
}

// full reports that no other form can be set while frames are unanswered.
func (o *outputs) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all) >= maxOutputs
}

// set has the form hold for the frames above seq. Where no frame up to seq is unanswered (alone), earlier forms go.
func (o *outputs) set(form encode.Outputs, seq uint64, alone bool) {
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

// of returns the form for a frame's result; set was called before. It is called in the order of the frames, so it removes the
// forms of those before this one.
func (o *outputs) of(seq uint64) encode.Outputs {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := len(o.all) - 1
	for i > 0 && seq <= o.all[i].seq {
		i--
	}
	o.all = slices.Delete(o.all, 0, i)
	return o.all[0].form
}
