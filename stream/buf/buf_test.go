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

// What is reserved is off the budget of leases, and takes half of it at most.
func TestReserve(t *testing.T) {
	p := NewPool(64 << 10)
	if err := p.Reserve(33 << 10); !errors.Is(err, ErrBudget) {
		t.Fatalf("more than half: %v", err)
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
		t.Fatalf("a lease of what is reserved: %v", err)
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
		t.Fatalf("of what is leased: %v", err)
	}
	b.Release()
	more.Release()
	if s := p.Stats(); s.Leased != 0 || s.Reserved != 0 {
		t.Errorf("%+v", s)
	}
}

// However reservations and leases meet, no more is out than the budget has.
func TestReservationsAndLeasesMeet(t *testing.T) {
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
}

func TestConcurrentUse(t *testing.T) {
	p := NewPool(64 << 20)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
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
