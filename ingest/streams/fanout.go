package streams

import (
	"sync"
	"sync/atomic"
)

// fanout sends each line to all watchers without waiting. A slow watcher loses lines and receives the number of lost
// lines.
type fanout struct {
	lost atomic.Uint64

	mu     sync.Mutex
	closed bool
	subs   map[*watcher]struct{}
}

// watcher is a client that watches a stream. Watchers share lines and must not change them.
type watcher struct {
	lines chan []byte // closed when the stream has ended
	lost  atomic.Uint64
	// With newest, a line that does not fit replaces the oldest line.
	newest bool
	model  string // whose lines it gets; "" = all

	// Of a watcher of encoded video; see encodedVideo, whose mutex guards the fields after bytes.
	bytes  atomic.Int64 // of lines
	began  bool
	waits  bool   // for a key frame
	missed uint64 // fragments since the watcher waits
}

func (h *fanout) watch(room int, newest bool, model string) (*watcher, bool) {
	w := &watcher{lines: make(chan []byte, room), newest: newest, model: model}
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

// removeWatcher removes a watcher.
func (h *fanout) removeWatcher(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, w)
}

func (h *fanout) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs)
}

// send sends a line about a model.
func (h *fanout) send(line []byte, model string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.subs {
		if w.model != "" && w.model != model {
			continue
		}
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

// close removes all watchers.
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
