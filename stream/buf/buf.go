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
	mem   []byte // Headroom bytes, then the contents
	off   int    // where the contents begin
	end   int    // where the contents end
	class int32  // index of the size class, or unpooled
	refs  atomic.Int32
	pool  *Pool   // nil: see Join
	under *[]*Buf // what Join has joined
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
	own := held // so that the list is moved to the heap only here
	b := &Buf{under: &own}
	b.refs.Store(1)
	return b
}

// Bytes returns the contents. The slice is valid until the last Release.
func (b *Buf) Bytes() []byte { return b.mem[b.off:b.end:b.end] }

// Len returns the number of content bytes.
func (b *Buf) Len() int { return b.end - b.off }

// Cap returns how many content bytes fit without a new lease.
func (b *Buf) Cap() int { return len(b.mem) - b.off }

// Resize sets the length of the contents; bytes beyond the old length are
// whatever the memory held. It panics when n is negative or more than Cap.
func (b *Buf) Resize(n int) {
	if n < 0 || n > b.Cap() {
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
		if b.under != nil {
			for _, u := range *b.under {
				u.Release()
			}
			b.under = nil
			return
		}
		mem := b.mem
		b.mem, b.off, b.end = nil, 0, 0
		b.pool.put(mem, b.class)
	default:
		misuse("buf: released twice")
	}
}
