package batching

import (
	"runtime"
	"sync/atomic"
)

// Ring is a bounded queue for many producers and many consumers without a lock, after Dmitry Vyukov's bounded MPMC
// queue: each cell has a sequence number that tells whether the cell can be filled or emptied, and claiming a cell is
// one compare-and-swap.
//
// Ring is not lock-free in the strict sense, because values leave in order. A producer interrupted between claiming
// and filling a cell delays every consumer once the cell is at the head; a consumer interrupted between claiming and
// emptying a cell delays every producer once the tail reaches the cell again. A delayed goroutine yields its
// processor and tries again.
type Ring[T any] struct {
	mask  uint64
	cells []cell[T]
	_     [64]byte // separate cache lines for head and tail, since different cores change each
	tail  atomic.Uint64
	_     [56]byte
	head  atomic.Uint64
	_     [56]byte
}

type cell[T any] struct {
	turn atomic.Uint64
	val  T
}

// NewRing returns a ring of at least n cells.
func NewRing[T any](n int) *Ring[T] {
	size := 2
	for size < n {
		size <<= 1
	}
	r := &Ring[T]{mask: uint64(size - 1), cells: make([]cell[T], size)}
	for i := range r.cells {
		r.cells[i].turn.Store(uint64(i))
	}
	return r
}

// Len returns the number of values in the ring at some moment of the call. A value counts from the producer's claim
// of a cell until a consumer's claim of the cell.
func (r *Ring[T]) Len() int {
	for {
		head := r.head.Load()
		tail := r.tail.Load()
		if head == r.head.Load() {
			return int(tail - head)
		}
	}
}

// Push adds v. Push returns false only if every cell was in use at some moment.
func (r *Ring[T]) Push(v T) bool {
	for {
		pos := r.tail.Load()
		c := &r.cells[pos&r.mask]
		switch turn := c.turn.Load(); {
		case turn == pos:
			if r.tail.CompareAndSwap(pos, pos+1) {
				c.val = v
				c.turn.Store(pos + 1)
				return true
			}
		case turn < pos:
			if r.full() {
				return false
			}
			runtime.Gosched() // a consumer has claimed but not yet emptied the cell
		}
	}
}

// full reports whether every cell was in use at some moment.
func (r *Ring[T]) full() bool {
	head := r.head.Load()
	return r.tail.Load()-head > r.mask && r.head.Load() == head
}

// Pop takes the oldest value, and waits while a producer is writing the oldest value. Pop returns false only if the
// ring was empty at some moment.
func (r *Ring[T]) Pop() (v T, ok bool) {
	for {
		pos := r.head.Load()
		c := &r.cells[pos&r.mask]
		switch turn := c.turn.Load(); {
		case turn == pos+1:
			if r.head.CompareAndSwap(pos, pos+1) {
				var zero T
				v, c.val = c.val, zero
				c.turn.Store(pos + r.mask + 1)
				return v, true
			}
		case turn < pos+1:
			if r.tail.Load() == pos {
				return v, false
			}
			runtime.Gosched() // a producer has claimed but not yet filled the cell
		}
	}
}
