package workers

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestBorrow: a borrower gets a parked worker whose goroutine sleeps, and the goroutine then sleeps until the borrower
// hands the worker back or parks the worker again.
func TestBorrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p parking
		var w waiter
		w.init()
		woken := 0
		park := func() {
			go func() {
				p.wait(&w, 0, func() bool { return false })
				woken++
			}()
			synctest.Wait()
		}
		check := func(what string, want int, parked int32) {
			t.Helper()
			synctest.Wait()
			if woken != want || p.count.Load() != parked || len(p.parked) != int(parked) {
				t.Fatalf("%s: woken %d times, %d parked, want %d and %d", what, woken, p.count.Load(), want, parked)
			}
		}
		if p.borrow() != nil {
			t.Fatal("borrowed from nobody")
		}
		park()
		if p.borrow() != &w || p.borrow() != nil {
			t.Fatal("the parked worker is not borrowed, or twice")
		}
		w.signal() // an earlier signal
		check("lent out", 0, 0)
		if p.repark(&w, func() bool { return true }) {
			t.Fatal("parked although there is work")
		}
		check("kept", 0, 0)
		if !p.repark(&w, func() bool { return false }) {
			t.Fatal("not parked")
		}
		check("parked again", 0, 1)
		if !p.wakeOne() {
			t.Fatal("nobody is parked")
		}
		check("woken", 1, 0)
		park()
		p.borrow().handBack()
		check("handed back", 2, 0)
		park()
		p.borrow()
		if !p.repark(&w, func() bool { return p.wakeOne() }) { // another goroutine wakes the worker meanwhile
			t.Fatal("the borrower keeps a woken worker")
		}
		check("woken while parked again", 3, 0)
		p.wait(&w, 0, func() bool { return p.borrow() == nil }) // not asleep: no borrower gets the worker
		check("at the end", 3, 0)
	})
}

func TestOrderOfParkedWorkers(t *testing.T) {
	for turns, want := range map[bool][]int{false: {2, 1, 0}, true: {0, 1, 2}} {
		p := parking{turns: turns}
		var all [3]waiter
		for i := range all {
			all[i].init()
			p.wait(&all[i], 0, func() bool { return true }) // leaves the parking at once
		}
		if p.wakeOne() {
			t.Error("a worker that has left was woken")
		}
		for i := range all {
			p.mu.Lock()
			p.push(&all[i])
			p.mu.Unlock()
		}
		var woken []int
		for p.wakeOne() {
			for i := range all {
				select {
				case <-all[i].wake:
					woken = append(woken, i)
				default:
				}
			}
		}
		if !slices.Equal(woken, want) {
			t.Errorf("turns %v: woken in the order %v, want %v", turns, woken, want)
		}
	}
}

func TestPauseBefore(t *testing.T) {
	g, w := &Group{}, newInstance(&common{}, 0)
	defer w.cancel()
	failed := errors.New("unwell")
	if err := PauseBefore(0, failed); err != failed {
		t.Errorf("without a pause: %v", err)
	}
	cause := PauseBefore(time.Minute, failed)
	if !errors.Is(cause, failed) || cause.Error() != "unwell" {
		t.Errorf("the cause is %v", cause)
	}
	if d := g.pauseAfter(w, failed, 0); d != 10*time.Millisecond {
		t.Errorf("without a pause: %v", d)
	}
	if d := g.pauseAfter(w, cause, 0); d != time.Minute {
		t.Errorf("with a pause: %v", d)
	}
	w.inFlight = 1
	if d := g.pauseAfter(w, cause, 0); d >= time.Minute {
		t.Errorf("a batch waits for %v", d)
	}
}
