package buf

import (
	"fmt"
	"sync/atomic"

	"millrace/stream/coded"
)

// Headroom is the number of bytes kept free in front of every leased buffer's
// contents, so that a protocol header can be put before a payload without
// copying the payload (see [Buf.Prepend]).
const Headroom = 1024

// ErrBudget is returned by [Pool.Lease] and [Pool.Reserve] when they would pass
// the pool's byte budget.
var ErrBudget error = coded.Errorf(coded.Overloaded, "memory.budget", "no memory is left: try later, or raise the setting")

// Buf is a leased run of bytes. The zero value is not usable: see [Pool.Lease] and
// [Pool.Renew].
//
// Methods other than Retain and Release must be called by the holder only.
type Buf struct {
	mem       []byte // Headroom bytes, then the contents
	off       int    // where the contents begin
	end       int    // where the contents end
	uncharged int    // bytes at the end of mem that the budget is not charged for: see Receive
	class     int32  // index of the size class, or unpooled
	refs      atomic.Int32
	pool      *Pool  // nil: see Join
	share     *Share // in which the charged bytes count, or nil
	under     *under // nil: the contents are memory of the pool
}

// under is what holds the contents of a Buf that are not memory of the pool.
type under struct {
	joined []*Buf
	done   func() // of Pool.Lend
}

// Join returns a Buf without contents of its own that holds several others, for data
// that lie in more than one: its last Release releases them. It takes over the caller's
// hold of each. Of one Buf it returns that one, of none nil.
func Join(held ...*Buf) *Buf {
	switch len(held) {
	case 0:
		return nil
	case 1:
		return held[0]
	}
	b := &Buf{under: &under{joined: held}}
	b.refs.Store(1)
	return b
}

// Lend returns a Buf whose contents are data, memory that is not the pool's. Its last Release
// calls done. It counts as a lease, but not in the budget, and has no room for Prepend.
func (p *Pool) Lend(data []byte, done func()) *Buf {
	b := &Buf{mem: data, end: len(data), pool: p, under: &under{done: done}}
	b.refs.Store(1)
	p.leases.Add(1)
	return b
}

// Bytes returns the contents. The slice is valid until the last Release.
func (b *Buf) Bytes() []byte { return b.mem[b.off:b.end:b.end] }

// Len returns the number of content bytes.
func (b *Buf) Len() int { return b.end - b.off }

// Cap returns how many content bytes fit without a new lease.
func (b *Buf) Cap() int { return len(b.mem) - b.off }

// Resize sets the length of the contents; bytes beyond the old length are
// whatever the memory held. It panics when n is negative or more than Cap, or, for a buffer of
// Receive, more than is charged.
func (b *Buf) Resize(n int) {
	if n < 0 || n > b.Cap()-b.uncharged {
		panic(fmt.Sprintf("buf: resize to %d bytes of %d", n, b.Cap()))
	}
	b.end = b.off + n
}

// Prepend grows the contents to the front by n bytes and returns them for
// writing. It reports false, and changes nothing, when the headroom is used up
// or somebody else holds the buffer too.
func (b *Buf) Prepend(n int) ([]byte, bool) {
	if n > b.off || b.refs.Load() != 1 {
		return nil, false
	}
	b.off -= n
	return b.mem[b.off : b.off+n : b.off+n], true
}

// Retain adds a holder and returns b. Safe for concurrent use by holders.
func (b *Buf) Retain() *Buf {
	if b.refs.Add(1) <= 1 {
		misuse("buf: retain after the last release")
	}
	return b
}

// Release gives up one hold; the last one returns the memory to its pool. Releasing a
// nil Buf does nothing. One release too many panics under -tags invariants and
// otherwise has no effect: a Buf is never reused, so that a late second release cannot
// touch another holder's memory.
func (b *Buf) Release() {
	if b == nil {
		return
	}
	switch n := b.refs.Add(-1); {
	case n > 0:
	case n == 0:
		mem, u, uncharged, share := b.mem, b.under, b.uncharged, b.share
		b.mem, b.off, b.end, b.uncharged, b.under, b.share = nil, 0, 0, 0, nil, nil
		if share != nil {
			share.held.Add(int64(uncharged - len(mem)))
		}
		switch {
		case u == nil:
			b.pool.put(mem, b.class, uncharged)
		case u.done != nil:
			b.pool.leases.Add(-1)
			u.done()
		default:
			for _, joined := range u.joined {
				joined.Release()
			}
		}
	default:
		misuse("buf: released twice")
	}
}
