package batching

import (
	"math"
	"slices"

	"millrace/stream"
)

// open is a batch that is being collected: the tokens whose frames it can bind,
// by priority.
type open struct {
	class  uint64
	tokens [stream.Priorities]queue
	batch  *Batch // bound so far, only where full batches are awaited
}

// ticket is a token in its place of an open batch.
type ticket struct {
	stream *stream.Stream
	number uint64         // counts up
	since  stream.Instant // when the next frame was received, where that is asked for
}

func (o *open) empty() bool {
	for p := range o.tokens {
		if o.tokens[p].peek() != nil {
			return false
		}
	}
	return true
}

// first returns the queue that is served first in the given order, or nil when
// all are empty.
func (o *open) first(order [stream.Priorities]stream.Priority) *queue {
	for _, p := range order {
		if o.tokens[p].peek() != nil {
			return &o.tokens[p]
		}
	}
	return nil
}

// rank orders open batches: by the priority of what they would bind first, then
// by how long that has been there.
func (o *open) rank(order [stream.Priorities]stream.Priority) uint64 {
	const priorityShift = 62
	for i, p := range order {
		if t := o.tokens[p].peek(); t != nil {
			return uint64(i)<<priorityShift | t.number
		}
	}
	return math.MaxUint64
}

// oldest returns when the frame came that has waited for longest, at most now.
func (o *open) oldest(now stream.Instant) stream.Instant {
	for p := range o.tokens {
		q := &o.tokens[p]
		for _, t := range q.items[q.head:] {
			now = min(now, t.since)
		}
	}
	return now
}

// remove takes an empty open batch out, but keeps the last one for its memory.
func (l *Lane) remove(o *open) bool {
	if len(l.open) == 1 {
		return false
	}
	l.open = slices.DeleteFunc(l.open, func(x *open) bool { return x == o })
	return true
}

// oldest takes the oldest batch that still waits to be full, when no memory is
// left for another: it goes as it is.
func (l *Lane) oldest() *Batch {
	var first *open
	for _, o := range l.open {
		if o.batch != nil && (first == nil || o.batch.Gathered < first.batch.Gathered) {
			first = o
		}
	}
	if first == nil {
		return nil
	}
	b := first.batch
	first.batch = nil
	return b
}

// partial takes all batches that wait to be full.
func (l *Lane) partial() (out []*Batch) {
	for b := l.oldest(); b != nil; b = l.oldest() {
		out = append(out, b)
	}
	return out
}

// queue is tokens, first in first out.
type queue struct {
	items []ticket
	head  int
}

func (q *queue) push(t ticket) { q.items = append(q.items, t) }

func (q *queue) peek() *ticket {
	if q.head == len(q.items) {
		return nil
	}
	return &q.items[q.head]
}

func (q *queue) pop() {
	q.items[q.head] = ticket{}
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head >= 64 && 2*q.head >= len(q.items):
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}

// keep takes out the tokens for which f says not to keep them, until it says
// that no more need be looked at. What is behind those is not touched: it may be
// long.
func (q *queue) keep(f func(*stream.Stream) (keep, more bool)) {
	i, kept := q.head, q.head
	for ; i < len(q.items); i++ {
		stay, more := f(q.items[i].stream)
		if !more {
			break
		}
		if stay {
			q.items[kept] = q.items[i]
			kept++
		}
	}
	if kept == i {
		return
	}
	gap := i - kept
	copy(q.items[q.head+gap:i], q.items[q.head:kept])
	clear(q.items[q.head : q.head+gap])
	if q.head += gap; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
}
