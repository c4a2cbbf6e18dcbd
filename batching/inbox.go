package batching

import (
	"slices"

	"millrace/stream"
)

// Inbox is where tokens wait: the common one of a group, or that of a worker with
// affinity. Its rings are entered without a lock; the pending batches behind them
// are the gatherer's.
type Inbox struct {
	rings   [stream.Priorities]*Ring[*stream.Stream]
	pending []*pendingBatch
	visits  uint // by a gatherer
}

func newInbox(places int) *Inbox {
	x := &Inbox{}
	for i := range x.rings {
		x.rings[i] = NewRing[*stream.Stream](places)
	}
	return x
}

// queued returns how many tokens are in the rings.
func (x *Inbox) queued() int {
	n := 0
	for _, r := range x.rings {
		n += r.Len()
	}
	return n
}

// formable returns how many pending batches have a token.
func (x *Inbox) formable() int {
	n := 0
	for _, p := range x.pending {
		if !p.empty() {
			n++
		}
	}
	return n
}

// order is the priorities as they are served at this visit: higher ones first, but
// every eighth time the lower ones, so that none starves.
func (x *Inbox) order() [stream.Priorities]stream.Priority {
	if x.visits%8 == 0 {
		return [...]stream.Priority{stream.Low, stream.Normal, stream.High}
	}
	return [...]stream.Priority{stream.High, stream.Normal, stream.Low}
}

// remove takes an empty pending batch out, but keeps the last one for its memory.
func (x *Inbox) remove(p *pendingBatch) bool {
	if len(x.pending) == 1 {
		return false
	}
	x.pending = slices.DeleteFunc(x.pending, func(o *pendingBatch) bool { return o == p })
	return true
}

// takeOldest takes the oldest batch that still waits to be full, or nil: with no
// memory left for another it runs as it is.
func (x *Inbox) takeOldest() *Batch {
	var first *pendingBatch
	for _, p := range x.pending {
		if p.batch != nil && (first == nil || p.batch.Gathered < first.batch.Gathered) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	b := first.batch
	first.batch = nil
	return b
}

// takePartial takes all batches that wait to be full.
func (x *Inbox) takePartial() (out []*Batch) {
	for b := x.takeOldest(); b != nil; b = x.takeOldest() {
		out = append(out, b)
	}
	return out
}
