package sources_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest/sources"
)

// Of many cameras a few are opened at once, and unresponsive cameras delay the others only for a moment.
func TestOpenLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enter := sources.OpenLimitForTest(2)
		begun := time.Now()
		open := func(takes time.Duration) {
			leave, err := enter(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(takes)
			leave()
			leave()
		}
		done := make(chan struct{})
		for range 10 {
			go func() { open(100 * time.Millisecond); done <- struct{}{} }()
		}
		for range 10 {
			<-done
		}
		if took := time.Since(begun); took != 500*time.Millisecond {
			t.Errorf("ten openings of 100 ms, two at once, took %v", took)
		}
		for range 2 {
			go open(time.Minute)
		}
		synctest.Wait()
		begun = time.Now()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := enter(gone); err == nil {
			t.Error("a full openLimit let somebody in who was gone")
		}
		if open(0); time.Since(begun) != sources.OpenHold {
			t.Errorf("two that do not answer held up the third for %v", time.Since(begun))
		}
		time.Sleep(time.Minute) // their leaving gives nothing back twice
		for range 2 {
			go open(time.Second)
		}
		synctest.Wait()
		begun = time.Now()
		if open(0); time.Since(begun) != time.Second {
			t.Errorf("the third came after %v", time.Since(begun))
		}
		time.Sleep(time.Second)
	})
}
