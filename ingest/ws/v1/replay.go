package v1

import (
	"math"
	"sync"
	"sync/atomic"
)

// The bounds of endings kept per stream for a resumed session.
const (
	minReplay     = 4         // endings
	maxReplay     = 64        // endings
	maxReplaySize = 256 << 10 // bytes per ending; longer endings are not kept
	smallEnding   = 4 << 10   // bytes; endings up to this size are not discarded in favour of other endings
)

// sentEnding is a written ending.
type sentEnding struct {
	seq    uint64
	msg    []byte // nil: none
	binary bool

	older, newer *sentEnding // links of a large ending in the buffer's order
}

func (e *sentEnding) small() bool { return cap(e.msg) <= smallEnding }

// replayRing has the newest endings of one stream. The replayBuffer owns the ring.
type replayRing struct {
	size int          // endings, at most
	all  []sentEnding // nil without endings
	next int          // index of the next ending
}

// replayMemory is the memory for the endings of all sessions. A session keeps at most as much as remains for other
// sessions: a single session half of the memory, ten sessions an eleventh each. Only small endings may use the last
// quarter.
type replayMemory struct {
	max  int64
	used atomic.Int64
}

// free returns the bytes left for an ending of n bytes.
func (m *replayMemory) free(n int) int64 {
	most := m.max
	if n > smallEnding {
		most -= most / 4
	}
	return most - m.used.Load()
}

// replayBuffer keeps the newest endings of a session's streams for a client that lost them with its connection. The
// writer adds endings; the end of the session closes the buffer.
type replayBuffer struct {
	memory *replayMemory

	mu     sync.Mutex
	order  sentEnding // the root of a ring: newer leads to the oldest
	bytes  int64      // of all
	large  int64      // bytes of the endings in order, which may be discarded
	closed bool
}

func newReplayBuffer(m *replayMemory) *replayBuffer {
	b := &replayBuffer{memory: m}
	b.order.older, b.order.newer = &b.order, &b.order
	return b
}

// add keeps an ending in place of the stream's oldest ending. To stay within the session's share, add also discards
// the session's oldest endings. An ending above the share is not kept.
func (b *replayBuffer) add(r *replayRing, seq uint64, msg []byte, isBinary bool) {
	if len(msg) > maxReplaySize {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if r.all == nil {
		r.all, r.next = make([]sentEnding, r.size), 0
	}
	e := &r.all[r.next]
	r.next = (r.next + 1) % len(r.all)
	if e.msg != nil && e.small() && len(msg) <= cap(e.msg) { // nearly always
		e.seq, e.msg, e.binary = seq, append(e.msg[:0], msg...), isBinary
		return
	}
	mem := reusable(b.discard(e), len(msg))
	// the next ending will probably have a similar length
	size := func() int64 { return int64(max(cap(mem), len(msg)+len(msg)/8)) }
	over := func() int64 { return b.bytes + size() - (b.memory.free(len(msg)) - size()) }
	if over() > 2*b.large {
		return
	}
	for b.order.newer != &b.order && over() > 0 { // other sessions may take memory meanwhile
		if old := reusable(b.discard(b.order.newer), len(msg)); mem == nil {
			mem = old
		}
	}
	if mem == nil {
		mem = make([]byte, 0, size())
	}
	e.seq, e.msg, e.binary = seq, append(mem[:0], msg...), isBinary
	b.count(e, 1)
	if !e.small() {
		e.older, e.newer = b.order.older, &b.order
		e.older.newer, e.newer.older = e, e
	}
}

// reusable returns mem if the capacity suits n bytes, or nil.
func reusable(mem []byte, n int) []byte {
	if cap(mem) < n || cap(mem) > max(2*n, smallEnding) {
		return nil
	}
	return mem
}

// discard removes an ending and returns its memory for reuse by the caller alone. The caller holds b.mu.
func (b *replayBuffer) discard(e *sentEnding) []byte {
	mem := e.msg
	if mem == nil {
		return nil
	}
	b.count(e, -1)
	if !e.small() {
		e.older.newer, e.newer.older = e.newer, e.older
		e.older, e.newer = nil, nil
	}
	e.msg = nil
	return mem
}

func (b *replayBuffer) count(e *sentEnding, sign int64) {
	n := sign * int64(cap(e.msg))
	b.bytes += n
	if !e.small() {
		b.large += n
	}
	b.memory.used.Add(n)
}

// remove discards the endings of a stream.
func (b *replayBuffer) remove(r *replayRing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range r.all {
		if !b.closed {
			b.discard(&r.all[i])
		}
	}
	r.all = nil
}

// close discards all endings and keeps no further endings: the session can no longer be resumed.
func (b *replayBuffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.memory.used.Add(-b.bytes)
	b.bytes, b.large = 0, 0
}

// after returns the kept endings of a stream's frames after seq, oldest first; math.MaxUint64 means that the client
// has received no ending. The endings are valid until the writer adds another ending; only the writer calls after.
func (b *replayBuffer) after(r *replayRing, seq uint64) (out []sentEnding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range r.all {
		if e := &r.all[(r.next+i)%len(r.all)]; e.msg != nil && (seq == math.MaxUint64 || e.seq > seq) {
			out = append(out, *e)
		}
	}
	return out
}
