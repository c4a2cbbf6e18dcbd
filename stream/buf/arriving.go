package buf

import (
	"fmt"
	"sync/atomic"

	"millrace/stream/coded"
)

const (
	// atOnce is the largest buffer for arriving bytes that is charged in full at once.
	atOnce = 64 << 10
	// firstCharge is the first charge for a larger buffer, before any byte has arrived.
	firstCharge = 16 << 10
	// maxAhead is the largest charge beyond the arrived bytes.
	maxAhead = 1 << 20
)

// Receive returns a buffer for n bytes that arrive over time. The first at bytes are in b; b is nil when at is 0. The
// returned buffer holds the first at bytes, and has room for more than at and at most n bytes. The caller reads into
// the free part, and calls Receive again when the buffer is full and at < n.
//
// The budget is charged for arrived bytes and a margin, so that announced bytes alone do not use up the budget.
// Receive takes memory for all n bytes at once as long as the uncharged parts of all buffers fit into an eighth of
// the budget, and the bytes stay in place; otherwise the buffer grows, and Receive copies the bytes.
//
// The charges for buffers of more than 64 KiB count in the client's share, of, until release, if of is not nil.
//
// Receive takes over the caller's reference to b. On an error, [ErrBudget] or [ErrShare], b stays unchanged.
func (p *Pool) Receive(of *ClientShare, b *Buf, n, at int) (*Buf, error) {
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

// receive leases into b memory for n bytes with the first charge bytes charged, or for fewer than n bytes, but for
// more than at.
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

// Whole reports whether the budget is charged for all of the buffer. The contents may then be as long as Cap. Only
// buffers of Receive can have an uncharged part.
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

// ClientShare counts the part of the budget held by one client, for messages or for videos. The zero ClientShare holds
// nothing.
type ClientShare struct{ held atomic.Int64 }

// [Pool.Receive], [Pool.CopyFor] and [Pool.ChargeTo] return ErrShare when a client would hold more than its share.
// ErrShare is an [ErrBudget].
var ErrShare error = &coded.Error{Code: coded.Overloaded, Field: "memory.client_share",
	Msg: "the client's requests hold its share of the memory: send fewer at once, or raise the setting", Err: ErrBudget}

// LimitShares sets the limit of every Share in percent of the budget. LimitShares must be called before the first
// Receive.
func (p *Pool) LimitShares(percent int) {
	p.maxShare = int64(float64(p.budget) * float64(percent) / 100)
}

// ChargeTo is [Pool.Charge] for memory held by a client: the bytes also count in every share that is not nil. The
// error is [ErrBudget] or [ErrShare].
func (p *Pool) ChargeTo(n int64, shares ...*ClientShare) error {
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
func (p *Pool) RefundFrom(n int64, shares ...*ClientShare) {
	for _, of := range shares {
		if of != nil {
			of.held.Add(-n)
		}
	}
	p.Refund(n)
}

// OnOutside has f called with the bytes of each ChargeOutside, and with the negative bytes of each RefundOutside.
// OnOutside must be called before the first ChargeOutside.
func (p *Pool) OnOutside(f func(n int64)) { p.outside = f }

// ChargeOutside is ChargeTo for memory of another process.
func (p *Pool) ChargeOutside(n int64, shares ...*ClientShare) error {
	err := p.ChargeTo(n, shares...)
	if err == nil && p.outside != nil {
		p.outside(n)
	}
	return err
}

// RefundOutside returns the n bytes of a ChargeOutside, after the end of the process.
func (p *Pool) RefundOutside(n int64, shares ...*ClientShare) {
	if p.outside != nil {
		p.outside(-n)
	}
	p.RefundFrom(n, shares...)
}

// takeShare counts n bytes in the share, and reports whether the limit of the share allows the bytes.
func (p *Pool) takeShare(of *ClientShare, n int64) bool {
	if of.held.Add(n) <= p.maxShare {
		return true
	}
	of.held.Add(-n)
	p.denied.Add(1)
	return false
}
