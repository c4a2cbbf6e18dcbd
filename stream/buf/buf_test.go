package buf

import (
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestClassHoldsWhatWasAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<maxShift+10).Draw(t, "n")
		ci, size := classOf(n)
		if size < n {
			t.Fatalf("class of %d has %d bytes", n, size)
		}
		if ci == unpooled {
			if n <= 1<<maxShift {
				t.Fatalf("%d is not pooled", n)
			}
			return
		}
		if ci < 0 || ci >= classes {
			t.Fatalf("class %d of %d", ci, classes)
		}
		if n > 1<<minShift && size > n+n/4+1 {
			t.Fatalf("class of %d wastes %d bytes", n, size-n)
		}
		if again, same := classOf(size); again != ci || same != size {
			t.Fatalf("class %d of size %d is not its own class (%d, %d)", ci, size, again, same)
		}
	})
}

func TestLeaseAndReleaseReturnToBaseline(t *testing.T) {
	p := NewPool(1 << 20)
	b, err := p.Lease(3000)
	if err != nil {
		t.Fatal(err)
	}
	if b.Len() != 3000 || len(b.Bytes()) != 3000 {
		t.Fatalf("leased %d bytes", b.Len())
	}
	b.Retain()
	b.Release()
	if s := p.Stats(); s.Leases != 1 {
		t.Fatalf("one of two holders released: %+v", s)
	}
	b.Release()
	s := p.Stats()
	if s.Leases != 0 || s.Leased != 0 || s.Idle == 0 {
		t.Fatalf("after the last release: %+v", s)
	}
	var none *Buf
	none.Release()
}

// Reserved bytes count in the same budget as leases, and take at most half of the budget.
func TestReserve(t *testing.T) {
	p := NewPool(64 << 10)
	if err := p.Reserve(33 << 10); !errors.Is(err, ErrBudget) {
		t.Fatalf("reserving more than half: %v", err)
	}
	if err := p.Reserve(30 << 10); err != nil {
		t.Fatal(err)
	}
	if err := p.Reserve(3 << 10); !errors.Is(err, ErrBudget) {
		t.Fatalf("more than half, together: %v", err)
	}
	if n := p.Reservable(); n != 2<<10 {
		t.Errorf("%d can be reserved", n)
	}
	if _, err := p.Lease(40 << 10); !errors.Is(err, ErrBudget) {
		t.Fatalf("a lease of reserved bytes: %v", err)
	}
	b, err := p.Lease(30 << 10)
	if err != nil {
		t.Fatal(err)
	}
	p.Unreserve(30 << 10)
	if s := p.Stats(); s.Reserved != 0 || s.Leased == 0 {
		t.Errorf("%+v", s)
	}
	more, err := p.Lease(20 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Reserve(20 << 10); !errors.Is(err, ErrBudget) {
		t.Fatalf("a reservation of leased bytes: %v", err)
	}
	b.Release()
	more.Release()
	if s := p.Stats(); s.Leased != 0 || s.Reserved != 0 {
		t.Errorf("%+v", s)
	}
}

// Concurrent reservations and leases together never exceed the budget.
func TestConcurrentReservationsAndLeases(t *testing.T) {
	p := NewPool(64 << 10)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if p.Reserve(12<<10) == nil {
					if n := p.Stats().Reserved; n > 32<<10 {
						t.Errorf("%d bytes reserved", n)
					}
					p.Unreserve(12 << 10)
				}
				if b, err := p.Lease(15 << 10); err == nil {
					b.Release()
				}
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Leased != 0 || s.Reserved != 0 {
		t.Errorf("%+v", s)
	}
}

func TestBudgetRefuses(t *testing.T) {
	p := NewPool(64 << 10)
	b, err := p.Lease(50 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Lease(20 << 10); !errors.Is(err, ErrBudget) {
		t.Fatalf("second lease: %v", err)
	}
	b.Release()
	b, err = p.Lease(20 << 10)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	b.Release()
	if s := p.Stats(); s.Denied != 1 || s.Leased != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestPrependUsesHeadroomOfTheOnlyHolder(t *testing.T) {
	p := NewPool(0)
	b, _ := p.Lease(4)
	copy(b.Bytes(), "body")
	b.Retain()
	if _, ok := b.Prepend(4); ok {
		t.Fatal("prepended to a shared buffer")
	}
	b.Release()
	h, ok := b.Prepend(4)
	if !ok {
		t.Fatal("no headroom")
	}
	copy(h, "head")
	if string(b.Bytes()) != "headbody" {
		t.Fatalf("%q", b.Bytes())
	}
	if _, ok := b.Prepend(Headroom); ok {
		t.Fatal("prepended past the headroom")
	}
	b.Release()
}

func TestSecondReleaseIsCaught(t *testing.T) {
	p := NewPool(0)
	b, _ := p.Lease(10)
	b.Release()
	defer func() {
		if r := recover(); (r != nil) != Invariants {
			t.Fatalf("invariants %v, recovered %v", Invariants, r)
		}
		if s := p.Stats(); s.Leases != 0 {
			t.Fatalf("%+v", s)
		}
	}()
	b.Release()
}

func TestRetainAfterTheLastRelease(t *testing.T) {
	b, _ := NewPool(0).Lease(10)
	b.Retain()
	b.Release()
	b.Release()
	defer func() {
		if r := recover(); (r != nil) != Invariants {
			t.Fatalf("invariants %v, recovered %v", Invariants, r)
		}
	}()
	b.Retain()
}

// TestLend: the last release gives the lent memory back; until then, the buffer counts as a lease.
func TestLend(t *testing.T) {
	p, back := NewPool(1), 0
	b := p.Lend([]byte("abc"), func() { back++ })
	if string(b.Bytes()) != "abc" || b.Cap() != 3 {
		t.Errorf("%q, room for %d", b.Bytes(), b.Cap())
	}
	if _, ok := b.Prepend(1); ok {
		t.Error("memory in front of another's was given")
	}
	j := Join(b.Retain(), p.Lend(nil, func() { back++ }))
	b.Release()
	if s := p.Stats(); back != 0 || s.Leases != 2 || s.Leased != 0 {
		t.Errorf("given back %d times, %+v", back, s)
	}
	j.Release()
	if s := p.Stats(); back != 2 || s.Leases != 0 {
		t.Errorf("given back %d times, %+v", back, s)
	}
}

func TestIdleMemoryIsBounded(t *testing.T) {
	p := NewPool(1 << 20)
	var held []*Buf
	for range 7 {
		b, err := p.Lease(128<<10 - Headroom)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	for _, b := range held {
		b.Release()
	}
	if s := p.Stats(); s.Idle > s.Budget/4 || s.Idle == 0 {
		t.Fatalf("%+v", s)
	}

	p, held = NewPool(16<<20), nil
	for range retainPerClass + 1 {
		b, err := p.Lease(1)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	for _, b := range held {
		b.Release()
	}
	if s := p.Stats(); s.Idle != retainPerClass<<minShift {
		t.Errorf("%d bytes of one class are kept, want %d", s.Idle, retainPerClass<<minShift)
	}
}

func TestConcurrentUse(t *testing.T) {
	p := NewPool(64 << 20)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 250 {
				b, err := p.Lease((i*37 + g*1000) % 40000)
				if err != nil {
					t.Error(err)
					return
				}
				m := b.Bytes()
				for j := range m {
					m[j] = byte(g)
				}
				b.Retain().Release()
				for _, v := range m {
					if v != byte(g) {
						t.Error("memory of another holder")
						return
					}
				}
				b.Release()
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Leases != 0 || s.Leased != 0 {
		t.Fatalf("%+v", s)
	}
}

func BenchmarkLease300K(b *testing.B) {
	p := NewPool(0)
	b.ReportAllocs()
	for b.Loop() {
		x, _ := p.Lease(300 << 10)
		x.Release()
	}
}

func TestBoundsOfABuffer(t *testing.T) {
	p := NewPool(0)
	b, err := p.Lease(1000)
	if err != nil {
		t.Fatal(err)
	}
	if b.Cap() != 1<<minShift-Headroom {
		t.Errorf("room for %d bytes", b.Cap())
	}
	for _, n := range []int{0, b.Cap(), 7} {
		if b.Resize(n); b.Len() != n {
			t.Errorf("%d bytes, want %d", b.Len(), n)
		}
	}
	for _, n := range []int{-1, b.Cap() + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("resized to %d bytes of %d", n, b.Cap())
				}
			}()
			b.Resize(n)
		}()
	}
	if _, ok := b.Prepend(Headroom + 1); ok {
		t.Error("more in front than there is room for")
	}
	if front, ok := b.Prepend(Headroom); !ok || len(front) != Headroom || b.Len() != Headroom+7 {
		t.Errorf("%d bytes in front, %v", len(front), ok)
	}
	b.Release()

	c, err := p.Copy([]byte("abc"))
	if err != nil || string(c.Bytes()) != "abc" {
		t.Errorf("%q, %v", c.Bytes(), err)
	}
	c.Release()
	if _, err := NewPool(1).Copy([]byte("abc")); !errors.Is(err, ErrBudget) {
		t.Errorf("%v", err)
	}
}

// TestCopyFor: copies of large data count in a share until released, and small copies do not.
func TestCopyFor(t *testing.T) {
	p := NewPool(2 << 20)
	p.LimitShares(25)
	var of ClientShare
	large := make([]byte, atOnce+1)
	var held []*Buf
	for {
		b, err := p.CopyFor(&of, large)
		if err != nil {
			if err != ErrShare || p.Stats().Denied != 1 {
				t.Errorf("%v, %+v", err, p.Stats())
			}
			break
		}
		held = append(held, b)
	}
	if n := of.held.Load(); n != p.Stats().Leased || n > p.maxShare || n < p.maxShare-2*atOnce || len(held) < 4 {
		t.Errorf("%d copies hold %d of %d bytes, and %d are leased", len(held), n, p.maxShare, p.Stats().Leased)
	}
	for _, c := range []struct {
		of   *ClientShare
		size int
	}{{&of, atOnce}, {nil, len(large)}} {
		b, err := p.CopyFor(c.of, large[:c.size])
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	for _, b := range held {
		b.Release()
	}
	if of.held.Load() != 0 || p.Stats().Leased != 0 {
		t.Errorf("%d bytes are still held, %+v", of.held.Load(), p.Stats())
	}
}

// Leases and reservations can take exactly the whole budget.
func TestBudgetToTheByte(t *testing.T) {
	const size = 1 << minShift
	p := NewPool(4 * size)
	if err := p.Reserve(0); err != nil {
		t.Error(err)
	}
	if err := p.Reserve(-1); err == nil || errors.Is(err, ErrBudget) {
		t.Errorf("a reservation of -1 bytes: %v", err)
	}
	if err := p.Reserve(2*size + 1); !errors.Is(err, ErrBudget) {
		t.Errorf("more than half: %v", err)
	}
	if err := p.Reserve(size); err != nil || p.Reservable() != size {
		t.Errorf("%v, %d are left", err, p.Reservable())
	}
	if err := p.Reserve(size); err != nil {
		t.Errorf("half: %v", err)
	}
	p.Unreserve(size)
	var all []*Buf
	for range 3 {
		b, err := p.Lease(1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	want := Stats{Budget: 4 * size, Leased: 3 * size, Reserved: size, Leases: 3}
	if s := p.Stats(); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if _, err := p.Lease(1); !errors.Is(err, ErrBudget) {
		t.Errorf("past the budget: %v", err)
	}
	if err := p.Reserve(1); !errors.Is(err, ErrBudget) {
		t.Errorf("past the budget: %v", err)
	}
	all[0].Release()
	if err := p.Reserve(size); err != nil {
		t.Errorf("a lease of the free bytes: %v", err)
	}
	all[1].Release()
	all[2].Release()
	if s := p.Stats(); s.Idle != size || s.Denied != 1 { // a quarter of the budget
		t.Errorf("%+v", s)
	}
	b, err := p.Lease(1)
	if s := p.Stats(); err != nil || s.Idle != 0 {
		t.Errorf("%v, %+v: a free buffer is not reused", err, s)
	}
	b.Release()
}

// Memory above the largest size class is not kept for reuse.
func TestLargestClass(t *testing.T) {
	for n, pooled := range map[int]bool{1 << maxShift: true, 1<<maxShift + 1: false} {
		ci, size := classOf(n)
		if (ci != unpooled) != pooled || size != n {
			t.Errorf("%d bytes: class %d of %d bytes", n, ci, size)
		}
	}
	if ci, size := classOf(1 << minShift); ci != 0 || size != 1<<minShift {
		t.Errorf("class %d of %d bytes", ci, size)
	}
	if ci, size := classOf(1<<minShift + 1); ci != 1 || size != 5<<minShift/4 {
		t.Errorf("class %d of %d bytes", ci, size)
	}
}

// Charged memory counts in the budget like leased memory, to the byte.
func TestCharge(t *testing.T) {
	p := NewPool(1 << 20)
	if err := p.Charge(1<<20 - 100); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Lease(200); !errors.Is(err, ErrBudget) {
		t.Errorf("a lease beyond the budget: %v", err)
	}
	for _, n := range []int64{101, 1 << 20, 1<<20 + 1, 1<<63 - 1} {
		if err := p.Charge(n); !errors.Is(err, ErrBudget) {
			t.Errorf("a charge of %d beyond the budget: %v", n, err)
		}
	}
	if err := p.Charge(100); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Leased != 1<<20 || s.Denied != 5 {
		t.Errorf("%+v", s)
	}
	p.Refund(100)
	p.Refund(1<<20 - 100)
	if s := p.Stats(); s.Leased != 0 {
		t.Errorf("%+v", s)
	}
	if p.Charge(-1) == nil {
		t.Error("a negative charge was accepted")
	}
}

// A released Buf can be leased again without allocation, within the same budget as any lease.
func TestRenew(t *testing.T) {
	p := NewPool(64 << 10)
	var b Buf
	for range 3 {
		if err := p.Renew(&b, 3000); err != nil || len(b.Bytes()) != 3000 || p.Stats().Leases != 1 {
			t.Fatalf("%d bytes, %v, %+v", len(b.Bytes()), err, p.Stats())
		}
		if _, err := p.Lease(62 << 10); !errors.Is(err, ErrBudget) {
			t.Errorf("a lease beyond the budget: %v", err)
		}
		b.Release()
	}
	if n := testing.AllocsPerRun(100, func() { _ = p.Renew(&b, 3000); b.Release() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if err := p.Renew(&b, 65<<10); !errors.Is(err, ErrBudget) {
		t.Errorf("beyond the budget: %v", err)
	}
	if s := p.Stats(); s.Leases != 0 || s.Leased != 0 {
		t.Errorf("%+v", s)
	}
}
