package buf

import (
	"fmt"
	"sync/atomic"

	"millrace/stream/coded"
)

const (
	// atOnce is the size up to which a lease for bytes that arrive is charged whole.
	atOnce = 64 << 10
	// firstCharge is what is charged of a larger one before any byte has arrived.
	firstCharge = 16 << 10
	// maxAhead is the most that is charged beyond the bytes that have arrived.
	maxAhead = 1 << 20
)

// Receive returns a buffer for n bytes that arrive over time, of which the first at are in b; b
// is nil when there are none. The buffer returned has those at bytes, and more than at and at
// most n in all. The caller reads into the rest, and calls again when that is full, at < n.
//
// The budget is charged for what has arrived and a part of that ahead, so that it is not held by
// what was only announced. Memory for all n bytes is taken at once as long as the uncharged parts
// of all buffers fit into an eighth of the budget, and the bytes stay where they are; otherwise the
// buffer grows, and they are copied.
//
// What is charged of buffers for more than 64 KiB counts in of, the client's, until their release, if
// of is not nil.
//
// Receive takes over the caller's hold of b. With an error, [ErrBudget] or [ErrShare], b stays what it is.
func (p *Pool) Receive(of *Share, b *Buf, n, at int) (*Buf, error) {
	if at < 0 || at >= n || b != nil && at > b.Cap() || b == nil && at > 0 {
		return nil, fmt.Errorf("buf: %d of %d bytes have arrived", at, n)
	}
	charge := n
	if n > atOnce {
		charge = min(n, at+min(max(3*at, firstCharge), maxAhead))
	}
	if b != nil && at < b.Cap() {
		if charge == n {
			charge = b.Cap()
		}
		if err := b.charge(charge); err != nil {
			return nil, err
		}
		b.Resize(min(n, b.charged()))
		return b, nil
	}
	next := new(Buf)
	if err := p.receive(next, n, charge, at); err != nil {
		return nil, err
	}
	if of != nil && n > atOnce {
		size := len(next.mem) - next.uncharged
		if b != nil && b.share != nil { // next comes in the place of b
			size -= len(b.mem) - b.uncharged
		}
		if !p.takeShare(of, int64(size)) {
			next.Release()
			return nil, ErrShare
		}
		if next.share = of; b != nil {
			b.share = nil
		}
	}
	if b != nil {
		copy(next.Bytes(), b.mem[b.off:b.off+at])
		b.Release()
	}
	return next, nil
}

// receive leases into b memory for n bytes, of which the first are charged, or for fewer, but more
// than at.
func (p *Pool) receive(b *Buf, n, charge, at int) error {
	if int64(n) > p.budget {
		p.denied.Add(1)
		return ErrBudget
	}
	ci, size := classOf(n + Headroom)
	uncharged := max(size-charge-Headroom, 0)
	switch {
	case charge == n:
		return p.Renew(b, n)
	case p.uncharged.Add(int64(uncharged)) > p.budget/8:
		p.uncharged.Add(-int64(uncharged))
		return p.Renew(b, min(n, max(2*at, firstCharge)))
	}
	if err := p.lease(b, ci, size, uncharged); err != nil {
		p.uncharged.Add(-int64(uncharged))
		return err
	}
	b.off, b.end = Headroom, Headroom+charge
	return nil
}

// Whole reports whether all of the buffer is charged, as it is but for buffers of Receive: its
// contents may then be as long as Cap.
func (b *Buf) Whole() bool { return b.uncharged == 0 }

// charged returns how many content bytes are charged.
func (b *Buf) charged() int { return len(b.mem) - b.uncharged - b.off }

// charge charges the first n content bytes, at most all.
func (b *Buf) charge(n int) error {
	if n <= b.charged() {
		return nil
	}
	left := max(b.Cap()-n, 0)
	more := int64(b.uncharged - left)
	if b.pool.used.Add(more) > b.pool.roomFor(int64(len(b.mem))) {
		b.pool.used.Add(-more)
		b.pool.denied.Add(1)
		return ErrBudget
	}
	if b.share != nil && !b.pool.takeShare(b.share, more) {
		b.pool.used.Add(-more)
		return ErrShare
	}
	b.pool.uncharged.Add(-more)
	b.uncharged = left
	return nil
}

// Share counts what one client holds of the budget, with its messages, or with its videos. The zero Share holds nothing.
type Share struct{ held atomic.Int64 }

// ErrShare is returned by [Pool.Receive], [Pool.CopyFor] and [Pool.ChargeTo] when a client would hold more than its share. It is an [ErrBudget].
var ErrShare error = &coded.Error{Code: coded.Overloaded, Field: "memory.client_share", Msg: "the client's requests hold its share of the memory: send fewer at once, or raise the setting", Err: ErrBudget}

// LimitShares sets how many percent of the budget a Share may hold. It is called before the first Receive.
func (p *Pool) LimitShares(percent int) {
	p.maxShare = int64(float64(p.budget) * float64(percent) / 100)
}

// ChargeTo is [Pool.Charge] of memory that a client holds: it counts in each of its shares, too, but for those that are nil. The
// error is [ErrBudget] or [ErrShare].
func (p *Pool) ChargeTo(n int64, shares ...*Share) error {
	if err := p.Charge(n); err != nil {
		return err
	}
	for i, of := range shares {
		if of != nil && !p.takeShare(of, n) {
			p.RefundFrom(n, shares[:i]...)
			return ErrShare
		}
	}
	return nil
}

// RefundFrom returns the n bytes of a ChargeTo.
func (p *Pool) RefundFrom(n int64, shares ...*Share) {
	for _, of := range shares {
		if of != nil {
			of.held.Add(-n)
		}
	}
	p.Refund(n)
}

// takeShare counts n bytes in of, and reports whether it may hold them.
func (p *Pool) takeShare(of *Share, n int64) bool {
	if of.held.Add(n) <= p.maxShare {
		return true
	}
	of.held.Add(-n)
	p.denied.Add(1)
	return false
}
