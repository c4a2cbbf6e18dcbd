package streams

import (
	"sync"
	"sync/atomic"
)

// fanout hands each line to all watchers. It waits for none: one that is too
// slow loses lines, and is told how many.
type fanout struct {
	lost atomic.Uint64

	mu     sync.Mutex
	closed bool
	subs   map[*watcher]struct{}
}

// watcher is one who watches. Lines are shared and must only be read.
type watcher struct {
	lines chan []byte // closed when the stream is gone
	lost  atomic.Uint64
	// newest has a line that does not fit replace the oldest one.
	newest bool
}

func (h *fanout) watch(room int, newest bool) (*watcher, bool) {
	w := &watcher{lines: make(chan []byte, room), newest: newest}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, false
	}
	if h.subs == nil {
		h.subs = map[*watcher]struct{}{}
	}
	h.subs[w] = struct{}{}
	return w, true
}

// leave forgets a watcher.
func (h *fanout) leave(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, w)
}

func (h *fanout) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs)
}

func (h *fanout) send(line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.subs {
		select {
		case w.lines <- line:
			continue
		default:
		}
		if w.newest {
			select {
			case <-w.lines:
			default:
			}
			w.lines <- line // only this goroutine sends, so there is room
			continue
		}
		w.lost.Add(1)
		h.lost.Add(1)
	}
}

// close lets everybody go.
func (h *fanout) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	for w := range h.subs {
		close(w.lines)
	}
	h.subs = nil
}
