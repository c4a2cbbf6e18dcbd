package ws

import (
	"math"
	"sync"
	"sync/atomic"
)

// The bounds of what is kept of a stream for a resumed session.
const (
	leastKept    = 4
	mostKept     = 64
	mostKeptSize = 256 << 10 // bytes of one ending; larger ones are not kept
	smallEnding  = 4 << 10   // does not give way to others
)

// kept is an ending as it was written.
type kept struct {
	seq    uint64
	msg    []byte // nil: none
	binary bool

	older, newer *kept // in the keeper's order, when it is not small
}

func (e *kept) small() bool { return cap(e.msg) <= smallEnding }

// store is the memory that the endings of all sessions may take. A session keeps no
// more than what is left for others: one alone has half of it, ten have an eleventh
// each. Only small endings may take the last quarter.
type store struct {
	most int64
	used atomic.Int64
}

// free returns what is left for an ending of n bytes.
func (s *store) free(n int) int64 {
	most := s.most
	if n > smallEnding {
		most -= most / 4
	}
	return most - s.used.Load()
}

// keeper keeps the newest endings of a session's streams for a client that lost
// them with its connection. The writer keeps; whoever ends the session closes.
type keeper struct {
	store *store

	mu     sync.Mutex
	order  kept  // the root of a ring: newer leads to the oldest
	bytes  int64 // of all
	large  int64 // of those in order, which give way
	closed bool
}

func newKeeper(s *store) *keeper {
	k := &keeper{store: s}
	k.order.older, k.order.newer = &k.order, &k.order
	return k
}

// keep keeps an ending in place of the stream's oldest, and of as many of the
// session's oldest as its share asks for. One that finds no room is not kept.
func (k *keeper) keep(c *channel, seq uint64, msg []byte, isBinary bool) {
	if len(msg) > mostKeptSize {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	if c.recent == nil {
		c.recent, c.at = make([]kept, c.keeps), 0
	}
	e := &c.recent[c.at]
	c.at = (c.at + 1) % len(c.recent)
	if e.msg != nil && e.small() && len(msg) <= cap(e.msg) { // nearly always
		e.seq, e.msg, e.binary = seq, append(e.msg[:0], msg...), isBinary
		return
	}
	mem := fitting(k.drop(e), len(msg))
	size := func() int64 { return int64(max(cap(mem), len(msg)+len(msg)/8)) } // the next one is likely to be about as long
	over := func() int64 { return k.bytes + size() - (k.store.free(len(msg)) - size()) }
	if over() > 2*k.large {
		return
	}
	for over() > 0 && k.large > 0 {
		if old := fitting(k.drop(k.order.newer), len(msg)); mem == nil {
			mem = old
		}
	}
	if mem == nil {
		mem = make([]byte, 0, size())
	}
	e.seq, e.msg, e.binary = seq, append(mem[:0], msg...), isBinary
	k.count(e, 1)
	if !e.small() {
		e.older, e.newer = k.order.older, &k.order
		e.older.newer, e.newer.older = e, e
	}
}

// fitting returns mem if it is worth being used for n bytes, or nil.
func fitting(mem []byte, n int) []byte {
	if cap(mem) < n || cap(mem) > max(2*n, smallEnding) {
		return nil
	}
	return mem
}

// drop lets one go and returns its memory, which nobody has but the writer. k.mu
// is held.
func (k *keeper) drop(e *kept) []byte {
	mem := e.msg
	if mem == nil {
		return nil
	}
	k.count(e, -1)
	if !e.small() {
		e.older.newer, e.newer.older = e.newer, e.older
		e.older, e.newer = nil, nil
	}
	e.msg = nil
	return mem
}

func (k *keeper) count(e *kept, sign int64) {
	n := sign * int64(cap(e.msg))
	k.bytes += n
	if !e.small() {
		k.large += n
	}
	k.store.used.Add(n)
}

// forget lets the endings of a stream go.
func (k *keeper) forget(c *channel) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range c.recent {
		if !k.closed {
			k.drop(&c.recent[i])
		}
	}
	c.recent = nil
}

// close lets all go, and keeps nothing more: nobody can resume the session.
func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.store.used.Add(-k.bytes)
	k.bytes, k.large = 0, 0
}

// missed returns the kept endings of a stream's frames after seq, the oldest first;
// math.MaxUint64 stands for none of them being known. They are valid until the
// writer, who calls it, keeps another one.
func (k *keeper) missed(c *channel, after uint64) (out []kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range c.recent {
		if e := &c.recent[(c.at+i)%len(c.recent)]; e.msg != nil && (after == math.MaxUint64 || e.seq > after) {
			out = append(out, *e)
		}
	}
	return out
}
