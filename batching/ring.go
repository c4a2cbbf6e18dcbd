package batching

import (
	"runtime"
	"sync/atomic"
)

// Ring is a bounded queue for many producers and many consumers without a lock, after
// Dmitry Vyukov's bounded MPMC queue: each cell has a sequence number that says whether
// it can be filled or emptied, and a claim of a cell is one compare-and-swap.
//
// It is not lock-free in the strict sense, because values leave in order. A producer
// that is interrupted between claiming a cell and filling it delays every consumer once
// that cell is at the head; a consumer that is interrupted between claiming a cell and
// emptying it delays every producer once the tail reaches that cell again. A delayed
// goroutine yields its processor and tries again.
type Ring[T any] struct {
	mask  uint64
	cells []cell[T]
	_     [64]byte // head and tail are changed by different cores: this keeps them in separate cache lines
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

// Len returns how many values were in the ring at one moment. A value counts from the
// moment a producer claims its cell until a consumer claims it.
func (r *Ring[T]) Len() int {
	for {
		head := r.head.Load()
		tail := r.tail.Load()
		if head == r.head.Load() {
			return int(tail - head)
		}
	}
}

// Push adds v. It returns false only if every cell was in use at one moment.
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
			runtime.Gosched() // its consumer has claimed the cell and not emptied it yet
		}
	}
}

// full reports whether every cell was in use at one moment.
func (r *Ring[T]) full() bool {
	head := r.head.Load()
	return r.tail.Load()-head > r.mask && r.head.Load() == head
}

// Pop takes the oldest value. It returns false only if the ring was empty at one
// moment; it waits while the oldest value is being written.
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
			runtime.Gosched() // its producer has claimed the cell and not filled it yet
		}
	}
}
