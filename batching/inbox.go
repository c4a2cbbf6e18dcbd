package batching

import (
	"cmp"
	"slices"
	"sync/atomic"

	"millrace/stream"
)

// Inbox is where tokens wait: the common inbox of a group, or the inbox of one worker
// with affinity. Tokens enter its rings without a lock; only the gathering worker uses
// its pending batches.
type Inbox struct {
	places  int
	rings   [stream.Priorities]atomic.Pointer[Ring[*stream.Stream]] // nil until a token of the priority has entered
	pending []*pendingBatch
	visits  uint // how often a worker gathered from it
	closed  bool // no worker gathers from it now: see Intake.Close
}

func newInbox(places int) *Inbox {
	return &Inbox{places: places}
}

// ring returns the ring of a priority, which it makes if there is none.
func (x *Inbox) ring(p stream.Priority) *Ring[*stream.Stream] {
	if r := x.rings[p].Load(); r != nil {
		return r
	}
	x.rings[p].CompareAndSwap(nil, NewRing[*stream.Stream](x.places))
	return x.rings[p].Load()
}

// pop takes a token of a priority out of its ring.
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

// order returns the order in which the priorities are served at this visit: higher ones
// first, but every eighth time the lower ones, so that none starves. Delayed frames are
// always the last.
func (x *Inbox) order() order {
	if x.visits%8 == 0 {
		return order{stream.Low, stream.Normal, stream.High, stream.Delayed}
	}
	return order{stream.High, stream.Normal, stream.Low, stream.Delayed}
}

// sort sorts the pending batches: first the one with the oldest token of the highest
// priority, so that no class starves.
func (x *Inbox) sort(order order) {
	slices.SortFunc(x.pending, func(a, b *pendingBatch) int { return cmp.Compare(a.rank(order), b.rank(order)) })
}

// pendingOf returns the pending batch of a class, which it makes if there is none.
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

// order is the priorities in the order in which they are served.
type order [4]stream.Priority

// remove removes an empty pending batch, but keeps the last one to reuse its memory.
func (x *Inbox) remove(p *pendingBatch) bool {
	if len(x.pending) == 1 {
		return false
	}
	x.pending = slices.DeleteFunc(x.pending, func(o *pendingBatch) bool { return o == p })
	return true
}

// takeOldest takes the oldest partial batch that waits to be full, or returns nil. When
// no other batch is free, it runs although it is not full.
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

// takePartial takes all batches that wait to be full.
func (x *Inbox) takePartial() (out []*Batch) {
	for b := x.takeOldest(); b != nil; b = x.takeOldest() {
		out = append(out, b)
	}
	return out
}
