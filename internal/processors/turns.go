package processors

import (
	"sync"
	"time"
)

// LongText is the least data, in bytes, for which a computation is long. The computation takes about 0.1 ms.
const LongText = 64 << 10

// pause follows each computation when decoding leaves the computations no processor of their own: Go looks for data
// from the network only when a processor has nothing to do.
const pause = time.Millisecond

// Turns has long computations take turns, so that one processor is left to all short steps. A nil Turns lets each
// computation run at once. The methods are safe for concurrent use.
type Turns struct {
	count    int // of processors
	mu       sync.Mutex
	occupied int // processors, by Occupy
	running  int // computations, and the pauses after computations
	waiting  []chan struct{}
}

// NewTurns returns the turns for a number of processors.
func NewTurns(count int) *Turns { return &Turns{count: count} }

// Count returns the number of processors; for nil Turns, of the processors that the process may use.
func (t *Turns) Count() int {
	if t == nil {
		return Count()
	}
	return t.count
}

// capacity returns how many computations may run at once: all processors but one and the occupied processors. The
// caller holds mu.
func (t *Turns) capacity() int { return max(t.count-1-t.occupied, 1) }

// full reports whether one computation takes the last processor. The caller holds mu.
func (t *Turns) full() bool { return t.occupied > 0 && t.count-1-t.occupied < 1 }

// Begin waits until a computation over n bytes may run, and reports whether the caller must call End afterwards. The
// computation must not wait for anything. A caller divides a long computation into pieces, so that other computations
// have their turns.
func (t *Turns) Begin(n int) bool {
	if t == nil || n < LongText {
		return false
	}
	t.mu.Lock()
	if t.running < t.capacity() {
		t.running++
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	<-turn
	return true
}

// End ends the computation of the last Begin of this goroutine.
func (t *Turns) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full() && len(t.waiting) > 0 {
		time.AfterFunc(pause, t.next)
		return
	}
	t.running--
	t.admit()
}

// next ends the pause after a computation.
func (t *Turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.admit()
}

// admit begins the waiting computations for which there is room. The caller holds mu.
func (t *Turns) admit() {
	for len(t.waiting) > 0 && t.running < t.capacity() {
		t.running++
		close(t.waiting[0])
		t.waiting[0] = nil
		t.waiting = t.waiting[1:]
	}
}

// Occupy takes a processor from the turns, for a computation that takes no turns, such as the decoding of a large
// picture, until the returned function is called. When only the last processor is left, a pause follows each turn.
func (t *Turns) Occupy() (free func()) {
	if t == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.occupied++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.occupied--
		t.admit()
	}
}

// Running returns how many computations run, or pause after a run.
func (t *Turns) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// Occupied returns how many processors are occupied.
func (t *Turns) Occupied() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.occupied
}
