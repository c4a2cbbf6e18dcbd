package routines_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"millrace/internal/routines"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func none(string, any, []byte) {}

func TestWaitEndsWithTheLastGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := routines.New(none)
		first, second, waited := make(chan struct{}), make(chan struct{}), false
		g.Go("reader", func() { <-first }, nil)
		g.Go("reader", func() { <-second }, nil)
		g.Stop()
		go func() { g.Wait(); waited = true }()
		close(first)
		synctest.Wait()
		if n := g.Counts()["reader"]; n != 1 || waited {
			t.Errorf("%d goroutines run, waited: %v", n, waited)
		}
		close(second)
		synctest.Wait()
		if n := g.Counts()["reader"]; n != 0 || !waited {
			t.Errorf("%d goroutines run, waited: %v", n, waited)
		}
	})
}

func TestNothingStartsAfterStop(t *testing.T) {
	g := routines.New(none)
	g.Stop()
	g.Stop() // a second call has no effect
	if g.Go("late", func() { t.Error("it runs") }, nil) {
		t.Error("a stopped group took a goroutine")
	}
	g.Wait()
}

func TestPanicEndsOnlyItsGoroutine(t *testing.T) {
	var what, where string
	var value any
	failed := false
	g := routines.New(func(name string, v any, stack []byte) { what, value, where = name, v, string(stack) })
	g.Go("faulty", func() { panic("at once") }, func() { failed = what == "faulty" })
	g.Stop()
	g.Wait()
	if !failed || value != "at once" || !strings.Contains(where, "TestPanicEndsOnlyItsGoroutine") {
		t.Errorf("told of %v in %q, failed: %v, stack: %s", value, what, failed, where)
	}
}
