package buf

import (
	"fmt"
	"sync/atomic"

	"millrace/stream/coded"
)

// Headroom is the number of free bytes in front of the contents of every leased buffer, so that a protocol header can
// be put before a payload without copying the payload (see [Buf.Prepend]).
const Headroom = 1024

// ErrBudget is returned by [Pool.Lease] and [Pool.Reserve] when the byte budget of the pool is exceeded.
var ErrBudget error = coded.Errorf(coded.Overloaded, "memory.budget",
	"no memory is left: try later, or raise the setting")

// Buf is a leased byte buffer with a reference count. The zero value is not usable: see [Pool.Lease] and
// [Pool.Renew].
//
// A holder owns one reference. Only Retain and Release may run concurrently with Resize or Prepend.
type Buf struct {
	mem        []byte // Headroom bytes, then the contents
	off        int    // where the contents begin
	end        int    // where the contents end
	uncharged  int    // bytes at the end of mem not charged to the budget: see Receive
	class      int32  // index of the size class, or unpooled
	refs       atomic.Int32
	pool       *Pool        // nil: see Join
	share      *ClientShare // client's share of the charged bytes, or nil
	underlying *underlying  // nil: the contents are memory of the pool
}

// underlying is the memory behind a Buf whose contents are not pool memory.
type underlying struct {
	joined []*Buf
	done   func() // of Pool.Lend
}

// Join returns a Buf without contents of its own that holds several buffers, for data spread over several buffers.
// The last Release releases the held buffers. Join takes over the caller's references. With one Buf, Join returns
// that Buf; with none, nil.
func Join(held ...*Buf) *Buf {
	switch len(held) {
	case 0:
		return nil
	case 1:
		return held[0]
	}
	b := &Buf{underlying: &underlying{joined: held}}
	b.refs.Store(1)
	return b
}

// Lend returns a Buf with the contents data, memory from outside the pool. The last Release calls done. The Buf
// counts as a lease but not in the budget, and has no room for Prepend.
func (p *Pool) Lend(data []byte, done func()) *Buf {
	b := &Buf{mem: data, end: len(data), pool: p, underlying: &underlying{done: done}}
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

// Resize sets the length of the contents; bytes beyond the old length are not cleared. Resize panics when n is
// negative or more than Cap or, for a buffer of Receive, more than the charged bytes.
func (b *Buf) Resize(n int) {
	if n < 0 || n > b.Cap()-b.uncharged {
		panic(fmt.Sprintf("buf: resize to %d bytes of %d", n, b.Cap()))
	}
	b.end = b.off + n
}

// Prepend grows the contents to the front by n bytes and returns the new bytes for writing. Prepend returns false,
// and changes nothing, when the headroom is used up or the buffer has another holder.
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

// Release gives up one reference; the last Release returns the memory to its pool. Releasing a nil Buf does nothing.
// A Release too many panics under -tags invariants and otherwise has no effect: a Buf is never reused, so that a late
// second Release cannot touch the memory of another holder.
func (b *Buf) Release() {
	if b == nil {
		return
	}
	switch n := b.refs.Add(-1); {
	case n > 0:
	case n == 0:
		mem, u, uncharged, share := b.mem, b.underlying, b.uncharged, b.share
		b.mem, b.off, b.end, b.uncharged, b.underlying, b.share = nil, 0, 0, 0, nil, nil
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
