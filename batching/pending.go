package batching

import (
	"math"

	"millrace/stream"
)

// pendingBatch is a batch under collection: tokens by priority, whose frames can be bound to the batch.
type pendingBatch struct {
	class  uint64
	tokens [stream.Priorities]tokenQueue
	batch  *Batch // the bound requests so far, for a batcher with Needs.Full
}

// token is a stream's place in a pending batch.
type token struct {
	stream   *stream.Stream
	request  *stream.Request // in place of the stream's token: bound already, with decoded pictures; or nil
	number   uint64          // in the order of arrival
	received stream.Instant  // receipt of the next frame, for batchers with Needs.Oldest
	deadline stream.Instant  // nearest deadline since the token arrived, for batchers with Needs.Deadline; 0 = none
}

func (p *pendingBatch) empty() bool {
	for i := range p.tokens {
		if p.tokens[i].peek() != nil {
			return false
		}
	}
	return true
}

// first returns the first nonempty queue in the given order and the queue's priority, or nil when all queues are
// empty.
func (p *pendingBatch) first(order order) (*tokenQueue, stream.Priority) {
	for _, priority := range order {
		if p.tokens[priority].peek() != nil {
			return &p.tokens[priority], priority
		}
	}
	return nil, 0
}

// rank orders pending batches by the priority of the next token, then by the token's waiting time.
func (p *pendingBatch) rank(order order) uint64 {
	const priorityShift = 62
	for i, priority := range order {
		if t := p.tokens[priority].peek(); t != nil {
			return uint64(i)<<priorityShift | t.number
		}
	}
	return math.MaxUint64
}

// oldest returns when the oldest waiting frame was received, at most now. Without low, frames of low priority do not
// count.
func (p *pendingBatch) oldest(now stream.Instant, low bool) stream.Instant {
	for i := range p.tokens {
		if !low && i == int(stream.Low) {
			continue
		}
		for _, t := range p.tokens[i].all() {
			now = min(now, t.received)
		}
	}
	return now
}

// nearestDeadline returns the nearest deadline of the waiting frames; 0 = none. The deadline of a superseded frame
// still counts: if each newer frame replaced the deadline, a stream could wait for ever. Without low, frames of low
// priority do not count.
func (p *pendingBatch) nearestDeadline(low bool) (nearest stream.Instant) {
	for i := range p.tokens {
		if !low && i == int(stream.Low) {
			continue
		}
		all := p.tokens[i].all()
		for k := range all {
			t := &all[k]
			if t.request != nil {
				nearest = earlierDeadline(nearest, t.deadline)
				continue
			}
			if head, ok := t.stream.Head(); ok {
				t.deadline = earlierDeadline(t.deadline, head.Deadline)
			}
			nearest = earlierDeadline(nearest, t.deadline)
		}
	}
	return nearest
}

// earlierDeadline returns the earlier of two deadlines, where 0 means none.
func earlierDeadline(a, b stream.Instant) stream.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// tokenQueue is a first-in-first-out queue of tokens.
type tokenQueue struct {
	items []token
	head  int
}

func (q *tokenQueue) push(t token) { q.items = append(q.items, t) }

func (q *tokenQueue) all() []token { return q.items[q.head:] }

func (q *tokenQueue) peek() *token {
	if q.head == len(q.items) {
		return nil
	}
	return &q.items[q.head]
}

func (q *tokenQueue) pop() {
	q.items[q.head] = token{}
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

// filter removes the tokens for which f returns keep false, and stops when f returns more false. Tokens after the
// stop, perhaps many, are not touched.
func (q *tokenQueue) filter(f func(*token) (keep, more bool)) {
	i, kept := q.head, q.head
	for ; i < len(q.items); i++ {
		keep, more := f(&q.items[i])
		if !more {
			break
		}
		if keep {
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
