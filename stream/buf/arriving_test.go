package buf

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestReceiveChargesWhatArrives: a large buffer with few arrived bytes uses little of the budget, whether Receive
// takes the memory at once or grows the buffer; arrived bytes stay in place or are copied; a complete buffer counts
// like any buffer.
func TestReceiveChargesWhatArrives(t *testing.T) {
	const budget, n, holders = 64 << 20, 3 << 20, 40
	p := NewPool(budget)
	var held []*Buf
	for range holders {
		b, err := p.Receive(nil, nil, n, 0)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	st := p.Stats()
	if most := int64(holders * (firstCharge + firstCharge/2)); st.Leased > most || st.Leases != holders {
		t.Errorf("%d bytes are held by %d leases that nothing has arrived for, want at most %d", st.Leased, st.Leases,
			most)
	}
	if u := p.uncharged.Load(); u == 0 || u > budget/8 {
		t.Errorf("%d bytes are not charged, want at most %d", u, budget/8)
	}
	for _, i := range []int{0, holders - 1} { // one buffer with all memory at once, and one growing buffer
		b, at, moved := held[i], 0, 0
		for at < n {
			room := b.Bytes()
			for ; at < len(room); at += 1 << 10 {
				room[at] = byte(at >> 10)
			}
			at = len(room)
			if at == n {
				break
			}
			before := &room[0]
			var err error
			if b, err = p.Receive(nil, b, n, at); err != nil {
				t.Fatal(err)
			}
			if b.Len() <= at || b.Len() > at+maxAhead && b.Len() > 2*at {
				t.Fatalf("%d bytes of room after %d", b.Len(), at)
			}
			if &b.Bytes()[0] != before {
				moved++
			}
		}
		if i == 0 && moved > 0 || i > 0 && moved == 0 {
			t.Errorf("buffer %d moved %d times", i, moved)
		}
		for at := 0; at < n; at += 1 << 10 {
			if v := b.Bytes()[at]; v != byte(at>>10) {
				t.Fatalf("byte %d is %d", at, v)
			}
		}
		whole, err := p.Lease(n)
		if err != nil {
			t.Fatal(err)
		}
		if b.uncharged != 0 || b.Len() != n || b.Cap() != whole.Cap() {
			t.Errorf("a complete buffer has %d of %d bytes, %d not charged", b.Len(), b.Cap(), b.uncharged)
		}
		whole.Release()
		held[i] = b
	}
	for _, b := range held {
		b.Release()
	}
	if st := p.Stats(); st.Leased != 0 || st.Leases != 0 || p.uncharged.Load() != 0 {
		t.Errorf("after the releases %+v, %d not charged", st, p.uncharged.Load())
	}
}

// fill leases the rest of a pool in small pieces.
func fill(p *Pool) (all []*Buf) {
	for n := 32 << 10; n > 0; n /= 2 {
		for {
			b, err := p.Lease(n)
			if err != nil {
				break
			}
			all = append(all, b)
		}
	}
	return all
}

// TestRoomForSmall: large leases of every kind leave the last eighth of the budget to small leases.
func TestRoomForSmall(t *testing.T) {
	const budget, most = 256 << 20, 224 << 20
	for name, take := range map[string]func(p *Pool) (free func(), err error){
		"leases": func(p *Pool) (func(), error) {
			b, err := p.Lease(2 << 20)
			return b.Release, err
		},
		"charges": func(p *Pool) (func(), error) {
			return func() { p.Refund(2 << 20) }, p.Charge(2 << 20)
		},
		"bytes that arrive": func(p *Pool) (func(), error) {
			b, err := p.Receive(nil, nil, 5<<20, 0)
			for err == nil && b.Len() < 5<<20 {
				var next *Buf
				if next, err = p.Receive(nil, b, 5<<20, b.Len()); err == nil {
					b = next
				}
			}
			return b.Release, err // a part of the memory
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(budget)
			var frees []func()
			for {
				free, err := take(p)
				if err != nil {
					if !errors.Is(err, ErrBudget) {
						t.Error(err)
					}
					if name == "bytes that arrive" {
						frees = append(frees, free)
					}
					break
				}
				frees = append(frees, free)
			}
			if n := p.Stats().Leased; n > most || n < most-8<<20 {
				t.Errorf("%d bytes are taken", n)
			}
			if err := p.Charge(1 << 20); err != nil {
				t.Errorf("a small charge: %v", err)
			}
			p.Refund(1 << 20)
			all := fill(p)
			if n := p.Stats().Leased; n < budget-4<<10 {
				t.Errorf("small leases: %d bytes are taken", n)
			}
			for _, b := range all {
				b.Release()
			}
			for _, free := range frees {
				free()
			}
			if st := p.Stats(); st.Leased != 0 {
				t.Errorf("%+v", st)
			}
			if b, err := p.Lease(budget - 2*Headroom); err != nil { // more than the rest
				t.Errorf("nearly all: %v", err)
			} else {
				b.Release()
			}
		})
	}
}

// TestReceiveRefuses: a buffer stays unchanged when the budget does not allow growth; a buffer that can never become
// complete is refused at once.
func TestReceiveRefuses(t *testing.T) {
	p := NewPool(1 << 20)
	if _, err := p.Receive(nil, nil, 1<<20+1, 0); !errors.Is(err, ErrBudget) || p.Stats().Denied != 1 {
		t.Errorf("a body over the budget: %v, %+v", err, p.Stats())
	}
	for _, n := range []int{70 << 10, 900 << 10} { // with all memory at once, and growing
		b, err := p.Receive(nil, nil, n, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.Bytes()[0] = 42
		at := b.Len()
		others := fill(p)
		denied := p.Stats().Denied
		for err == nil && at < n {
			var next *Buf
			if next, err = p.Receive(nil, b, n, at); err == nil {
				b, at = next, next.Len()
			}
		}
		if at < n && (!errors.Is(err, ErrBudget) || p.Stats().Denied == denied) || b.Bytes()[0] != 42 {
			t.Errorf("%d of %d bytes, %v", at, n, err)
		}
		b.Release()
		for _, other := range others {
			other.Release()
		}
	}
	if _, err := p.Receive(nil, nil, 10, 10); err == nil || errors.Is(err, ErrBudget) {
		t.Errorf("nothing is left to arrive: %v", err)
	}
	if st := p.Stats(); st.Leased != 0 || st.Leases != 0 || p.uncharged.Load() != 0 {
		t.Errorf("%+v, %d not charged", st, p.uncharged.Load())
	}
}

// TestReceiveAnySizes: whatever sizes arrive in whatever order, the pool's sums return to zero.
func TestReceiveAnySizes(t *testing.T) {
	p := NewPool(8 << 20)
	random := rand.New(rand.NewPCG(1, 2))
	var held []*Buf
	for range 1000 {
		if len(held) > 20 {
			held[0].Release()
			held = held[1:]
		}
		n := 1 + random.IntN(1<<random.IntN(22))
		b, err := p.Receive(nil, nil, n, 0)
		for err == nil && b.Len() < n && random.IntN(4) > 0 {
			var next *Buf
			if next, err = p.Receive(nil, b, n, b.Len()); err == nil {
				b = next
			}
		}
		if b != nil {
			held = append(held, b)
		}
		if st := p.Stats(); st.Leased > st.Budget || p.uncharged.Load() > st.Budget/8 || st.Idle > st.Budget/4 {
			t.Fatalf("%+v, %d not charged", st, p.uncharged.Load())
		}
	}
	for _, b := range held {
		b.Release()
	}
	if st := p.Stats(); st.Leased != 0 || st.Leases != 0 || p.uncharged.Load() != 0 {
		t.Errorf("%+v, %d not charged", st, p.uncharged.Load())
	}
}

// TestShares: a client receives at most its share, also with the further bytes of an existing buffer; other clients
// get the rest, and releases give the share back.
func TestShares(t *testing.T) {
	p := NewPool(100 << 20)
	p.LimitShares(50)
	var greedy, other ClientShare
	var held []*Buf
	arrive := func(of *ClientShare, n int) (err error) {
		var b *Buf
		for at := 0; at < n; at = b.Len() {
			next, err := p.Receive(of, b, n, at)
			if err != nil {
				b.Release()
				return err
			}
			b = next
		}
		held = append(held, b)
		return nil
	}
	var err error
	for err == nil {
		err = arrive(&greedy, 7<<20)
	}
	if n := greedy.held.Load(); !errors.Is(err, ErrBudget) || err != ErrShare || n > p.maxShare ||
		n < p.maxShare-9<<20 || n != p.Stats().Leased || p.Stats().Denied == 0 {
		t.Errorf("%v, %d bytes are held, %+v", err, n, p.Stats())
	}
	if err := arrive(&other, 15<<20); err != nil {
		t.Errorf("another client: %v", err)
	}
	if err := arrive(&greedy, atOnce); err != nil {
		t.Errorf("a small message: %v", err)
	}
	if err := arrive(&other, 30<<20); err != ErrBudget && err != ErrShare {
		t.Errorf("beyond the budget: %v", err)
	}
	for _, b := range held {
		b.Release()
	}
	if greedy.held.Load() != 0 || other.held.Load() != 0 || p.Stats().Leased != 0 || p.uncharged.Load() != 0 {
		t.Errorf("%d and %d bytes are still held, %+v", greedy.held.Load(), other.held.Load(), p.Stats())
	}
}
