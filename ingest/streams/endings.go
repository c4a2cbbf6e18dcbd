package streams

import (
	"sync"

	"millrace/stream"
)

// queueLen is the maximum number of results in the queue of the sinks. The queue is longer than the windows of all
// models together, so that a video in mode Every waits and never loses a result.
func queueLen(models int) int { return models*stream.MaxWindow + 256 }

// endings is a bounded queue of results. Any goroutine may push; only one goroutine pops.
type endings struct {
	mu     sync.Mutex
	filled sync.Cond
	list   []ending
	most   int
	closed bool
}

func newEndings(most int) *endings {
	q := &endings{most: most}
	q.filled.L = &q.mu
	return q
}

// push adds a result, unless the queue is full.
func (q *endings) push(e ending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= q.most {
		return false
	}
	q.list = append(q.list, e)
	q.filled.Signal()
	return true
}

// pop waits for the oldest result. more is false when the queue is closed and empty.
func (q *endings) pop() (e ending, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.filled.Wait()
	}
	if len(q.list) == 0 {
		return e, false
	}
	e = q.list[0]
	q.list[0] = ending{}
	if q.list = q.list[1:]; len(q.list) == 0 {
		q.list = nil
	}
	return e, true
}

// resize changes how many results may wait.
func (q *endings) resize(most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.most = most
}

// close marks the end: nothing more is pushed.
func (q *endings) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}
