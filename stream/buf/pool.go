package buf

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	minShift = 11 // smallest class: 2 KiB
	maxShift = 26 // largest doubling: 64 MiB
	steps    = 4  // classes per doubling, so at most a quarter of a buffer is unused
	classes  = (maxShift-minShift)*steps + 1
	unpooled = -1
	// retainPerClass is the largest number of free buffers kept per size class.
	retainPerClass = 256
)

// DefaultBudget is the byte budget of a pool without a configured budget.
const DefaultBudget = 1 << 30

// Pool leases buffers. One pool serves a whole process; a Pool is safe for concurrent use. Leased and reserved bytes
// together never exceed the budget, and reserved bytes alone never exceed half of the budget. Free bytes kept for
// reuse, together with the uncharged bytes of Receive, never exceed a quarter.
type Pool struct {
	budget    int64
	maxIdle   int64
	maxShare  int64         // limit of one Share
	outside   func(n int64) // see OnOutside; nil = none
	used      atomic.Int64  // leased and reserved
	reserved  atomic.Int64
	idle      atomic.Int64
	uncharged atomic.Int64 // of leases: see Receive
	leases    atomic.Int64
	denied    atomic.Int64
	class     [classes]class
}

type class struct {
	mu   sync.Mutex
	free [][]byte
}

// NewPool returns a pool with the given budget in bytes; 0 means
// [DefaultBudget].
func NewPool(budget int64) *Pool {
	if budget <= 0 {
		budget = DefaultBudget
	}
	return &Pool{budget: budget, maxIdle: budget / 4, maxShare: budget}
}

// Stats is a snapshot of a pool's counters.
type Stats struct {
	Budget   int64 // largest sum of leased and reserved bytes
	Leased   int64 // bytes leased now
	Reserved int64 // bytes reserved now
	Idle     int64 // free bytes kept for reuse
	Leases   int64 // buffers leased now
	Denied   int64 // leases refused by the budget since the start
}

// Stats reads the pool's counters.
func (p *Pool) Stats() Stats {
	reserved := p.reserved.Load()
	return Stats{p.budget, max(p.used.Load()-reserved, 0), reserved, p.idle.Load(), p.leases.Load(), p.denied.Load()}
}

// Reserve takes n bytes of the budget for long-lived memory from outside the pool. All reservations together take at
// most half of the budget, so that the other half stays for leases. Reserve returns [ErrBudget] when reservations
// would exceed half of the budget, or when leases hold the bytes now.
func (p *Pool) Reserve(n int64) error {
	if n < 0 {
		return fmt.Errorf("buf: reservation of %d bytes", n)
	}
	for {
		held := p.reserved.Load()
		if n > p.budget/2-held {
			return ErrBudget
		}
		if p.reserved.CompareAndSwap(held, held+n) {
			break
		}
	}
	if p.used.Add(n) > p.budget {
		p.Unreserve(n)
		return ErrBudget
	}
	return nil
}

// Unreserve returns n bytes of a reservation to the budget.
func (p *Pool) Unreserve(n int64) {
	p.used.Add(-n)
	if p.reserved.Add(-n) < 0 {
		misuse("buf: more was unreserved than reserved")
	}
}

// Reservable returns how many bytes could be reserved if nothing were leased.
func (p *Pool) Reservable() int64 { return p.budget/2 - p.reserved.Load() }

// Charge takes n bytes of the budget for short-lived memory from outside the pool, for example of a library. The
// bytes count as leased. Charge returns [ErrBudget] when the budget does not allow n bytes.
func (p *Pool) Charge(n int64) error {
	if n < 0 {
		return fmt.Errorf("buf: charge of %d bytes", n)
	}
	// The comparison of n comes first, so that the sum cannot overflow.
	if n > p.budget || p.used.Add(n) > p.roomFor(n) {
		if n <= p.budget {
			p.used.Add(-n)
		}
		p.denied.Add(1)
		return ErrBudget
	}
	return nil
}

// roomFor returns up to which use of the budget n bytes are allowed. The last eighth of the budget is for small
// amounts, up to 64 KiB or a 256th of the budget, so that a few clients with large messages or videos leave memory
// for the frames of all other clients. An amount larger than the first seven eighths may use the whole budget.
func (p *Pool) roomFor(n int64) int64 {
	if rest := p.budget - p.budget/8; n > max(atOnce, p.budget/256) && n <= rest {
		return rest
	}
	return p.budget
}

// Refund returns the n bytes of a Charge to the budget.
func (p *Pool) Refund(n int64) { p.used.Add(-n) }

// Lease returns a buffer of n content bytes held by the caller. The contents are not cleared. Lease returns
// [ErrBudget] when the budget does not allow n bytes.
func (p *Pool) Lease(n int) (*Buf, error) {
	b := new(Buf)
	if err := p.Renew(b, n); err != nil {
		return nil, err
	}
	return b, nil
}

// Renew is Lease without allocating a Buf, for memory with no other holder than the caller: Renew leases into b, a
// zero or released Buf.
func (p *Pool) Renew(b *Buf, n int) error {
	if n < 0 {
		return fmt.Errorf("buf: lease of %d bytes", n)
	}
	if b.refs.Load() != 0 {
		misuse("buf: renewed before its release")
	}
	ci, size := classOf(n + Headroom)
	if err := p.lease(b, ci, size, 0); err != nil {
		return err
	}
	b.off, b.end = Headroom, Headroom+n
	return nil
}

// lease leases into b memory of a size class, with some bytes uncharged.
func (p *Pool) lease(b *Buf, ci, size, uncharged int) error {
	charge := int64(size - uncharged)
	if p.used.Add(charge) > p.roomFor(int64(size)) {
		p.used.Add(-charge)
		p.denied.Add(1)
		return ErrBudget
	}
	p.leases.Add(1)
	var mem []byte
	if ci != unpooled {
		mem = p.take(ci)
	}
	if mem == nil {
		mem = make([]byte, size)
	}
	b.mem, b.uncharged, b.class, b.pool = mem, uncharged, int32(ci), p
	b.refs.Store(1)
	return nil
}

func (p *Pool) take(ci int) []byte {
	c := &p.class[ci]
	c.mu.Lock()
	n := len(c.free)
	if n == 0 {
		c.mu.Unlock()
		return nil
	}
	mem := c.free[n-1]
	c.free[n-1] = nil
	c.free = c.free[:n-1]
	c.mu.Unlock()
	p.idle.Add(-int64(len(mem)))
	return mem
}

func (p *Pool) put(mem []byte, ci int32, uncharged int) {
	poison(mem)
	p.used.Add(int64(uncharged - len(mem)))
	if uncharged > 0 {
		p.uncharged.Add(-int64(uncharged))
	}
	p.leases.Add(-1)
	if ci == unpooled || p.idle.Load()+p.uncharged.Load()+int64(len(mem)) > p.maxIdle {
		return
	}
	c := &p.class[ci]
	c.mu.Lock()
	if len(c.free) < retainPerClass {
		c.free = append(c.free, mem)
		p.idle.Add(int64(len(mem)))
	}
	c.mu.Unlock()
}

// classOf returns the index and the size of the smallest class that holds n bytes. The sizes are 2^k, 1.25*2^k,
// 1.5*2^k and 1.75*2^k.
func classOf(n int) (int, int) {
	if n > 1<<maxShift {
		return unpooled, n
	}
	n = max(n, 1<<minShift)
	k := bits.Len(uint(n)) - 1 // 2^k <= n < 2^(k+1)
	step := 1 << k / steps
	j := (n - 1<<k + step - 1) / step // 0..steps
	return (k-minShift)*steps + j, 1<<k + j*step
}

// Copy leases a buffer and copies data into the buffer.
func (p *Pool) Copy(data []byte) (*Buf, error) { return p.CopyFor(nil, data) }

// CopyFor is Copy for data of a client. More than 64 KiB count in the client's share until the release, if of is not
// nil. The error is [ErrBudget] or [ErrShare].
func (p *Pool) CopyFor(of *ClientShare, data []byte) (*Buf, error) {
	b, err := p.Lease(len(data))
	if err != nil {
		return nil, err
	}
	if of != nil && len(data) > atOnce {
		if !p.takeShare(of, int64(len(b.mem))) {
			b.Release()
			return nil, ErrShare
		}
		b.share = of
	}
	copy(b.Bytes(), data)
	return b, nil
}
