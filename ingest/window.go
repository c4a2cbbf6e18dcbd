package ingest

import "sync/atomic"

// Window counts the frames of a stream and the answers, as seen by the adapter's client: a frame is received when
// read, and answered when the reply is written. Window computes how many frames the client may send (Limit), and lets
// the adapter wait before the next read (Wait).
//
// One goroutine receives; every other method is safe for concurrent use.
type Window struct {
	size     atomic.Int64
	received atomic.Uint64
	answered atomic.Uint64
	granted  atomic.Uint64 // the highest limit so far
	room     chan struct{} // capacity 1: answered has increased
}

// NewWindow returns a window of size 0, without frames.
func NewWindow() *Window { return &Window{room: make(chan struct{}, 1)} }

// Resize sets how many frames may be unanswered at once.
func (w *Window) Resize(size int) { w.size.Store(int64(size)) }

// Receive counts a frame and returns the number of earlier frames.
func (w *Window) Receive() uint64 { return w.received.Add(1) - 1 }

// Answer counts the answers of n frames. Answer never blocks.
func (w *Window) Answer(n uint64) {
	w.answered.Add(n)
	select {
	case w.room <- struct{}{}:
	default:
	}
}

// Received returns how many frames were received.
func (w *Window) Received() uint64 { return w.received.Load() }

// Answered returns the number of answered frames.
func (w *Window) Answered() uint64 { return w.answered.Load() }

// Unanswered returns the number of unanswered frames.
func (w *Window) Unanswered() int {
	answered := w.answered.Load() // loaded first, thus at most the number received
	return int(w.received.Load() - answered)
}

// Credit returns how many more frames the client may send now.
func (w *Window) Credit() int { return max(0, int(w.size.Load())-w.Unanswered()) }

// Full reports whether as many frames are unanswered as allowed.
func (w *Window) Full() bool { return int64(w.Unanswered()) >= w.size.Load() }

// Limit returns the total number of frames that the client may have sent by now. Limit never decreases, because
// frames may be in flight: after a reduction of the window, Limit stays the same until enough frames are answered.
func (w *Window) Limit() uint64 {
	for {
		granted, now := w.granted.Load(), w.answered.Load()+uint64(w.size.Load())
		if now <= granted {
			return granted
		}
		if w.granted.CompareAndSwap(granted, now) {
			return now
		}
	}
}

// WaitForRoom returns true when the window is not full, or false when stop is closed first. Only one goroutine at a
// time may wait.
func (w *Window) WaitForRoom(stop <-chan struct{}) bool { return w.Wait(int(w.size.Load()), stop) }

// Wait returns true when fewer than n frames are unanswered, or false when stop is
// closed first. One goroutine at a time may wait.
func (w *Window) Wait(n int, stop <-chan struct{}) bool {
	for w.Unanswered() >= n {
		select {
		case <-w.room:
		case <-stop:
			return false
		}
	}
	return true
}
