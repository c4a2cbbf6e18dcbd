package batching

import (
	"cmp"
	"slices"
	"sync/atomic"

	"millrace/stream"
)

// Inbox holds waiting tokens: the common inbox of a group, or the inbox of one worker with affinity. Tokens enter the
// rings without a lock; only the gathering worker uses the pending batches.
type Inbox struct {
	places  int
	rings   [stream.Priorities]atomic.Pointer[Ring[*stream.Stream]] // nil until a token of the priority has entered
	pending []*pendingBatch
	visits  uint // number of gatherings from the inbox
	low     uint // visits, when a frame of low priority was taken last
	closed  bool // no worker gathers from the inbox now: see Intake.Close
}

func newInbox(places int) *Inbox {
	return &Inbox{places: places}
}

// ring returns the ring of a priority, and makes the ring if necessary.
func (x *Inbox) ring(p stream.Priority) *Ring[*stream.Stream] {
	if r := x.rings[p].Load(); r != nil {
		return r
	}
	x.rings[p].CompareAndSwap(nil, NewRing[*stream.Stream](x.places))
	return x.rings[p].Load()
}

// pop takes a token of a priority from the ring.
func (x *Inbox) pop(p stream.Priority) (*stream.Stream, bool) {
	if r := x.rings[p].Load(); r != nil {
		return r.Pop()
	}
	return nil, false
}

// popAny takes a token out of a ring.
func (x *Inbox) popAny() (s *stream.Stream, ok bool) {
	for p := range stream.Priority(stream.Priorities) {
		if s, ok = x.pop(p); ok {
			break
		}
	}
	return s, ok
}

// queued returns how many tokens are in the rings.
func (x *Inbox) queued() int {
	n := 0
	for i := range x.rings {
		if r := x.rings[i].Load(); r != nil {
			n += r.Len()
		}
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

// turn is the number of visits after which lower priorities come first, so that no priority starves.
const turn = 8

// order returns the order of priorities for this visit: higher priorities first, but in each turn once lower
// priorities first. Delayed frames are always last.
func (x *Inbox) order() order {
	switch {
	case x.visits%turn != 0:
		return order{stream.High, stream.Normal, stream.Low, stream.Delayed}
	case x.lowFirst():
		return order{stream.Low, stream.Normal, stream.High, stream.Delayed}
	default:
		return order{stream.Normal, stream.High, stream.Low, stream.Delayed}
	}
}

// lowFirst reports whether low priority comes first in this visit: once in each turn without a frame of low priority.
func (x *Inbox) lowFirst() bool { return x.visits%turn == 0 && x.visits-x.low >= turn }

// sort puts the pending batch with the oldest token of the highest priority first, so that no class starves.
func (x *Inbox) sort(order order) {
	slices.SortFunc(x.pending, func(a, b *pendingBatch) int { return cmp.Compare(a.rank(order), b.rank(order)) })
}

// pendingOf returns the pending batch of a class, and makes the batch if necessary.
func (x *Inbox) pendingOf(class uint64) *pendingBatch {
	for _, p := range x.pending {
		if p.class == class {
			return p
		}
	}
	p := &pendingBatch{class: class}
	x.pending = append(x.pending, p)
	return p
}

// order lists the priorities, first served first.
type order [4]stream.Priority

// withoutLow returns the order without low priority.
func (o order) withoutLow() order {
	for i := range o {
		if o[i] == stream.Low {
			o[i] = stream.Delayed // which is last anyway
		}
	}
	return o
}

// remove removes an empty pending batch, but keeps the last pending batch to reuse its memory.
func (x *Inbox) remove(p *pendingBatch) bool {
	if len(x.pending) == 1 {
		return false
	}
	x.pending = slices.DeleteFunc(x.pending, func(o *pendingBatch) bool { return o == p })
	return true
}

// takeOldest takes the oldest partial batch, or returns nil. When no other batch is free, the partial batch runs
// without being full.
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
	first.batch, b.Cause = nil, Partial
	return b
}

// takePartial takes all batches waiting to be full.
func (x *Inbox) takePartial() (out []*Batch) {
	for b := x.takeOldest(); b != nil; b = x.takeOldest() {
		out = append(out, b)
	}
	return out
}
