package ingest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest"
)

// TestRequests: requests are refused before Open and from Drain on. Drain waits for the requests in flight, and calls
// late after the limit.
func TestRequests(t *testing.T) {
	for name, took := range map[string]time.Duration{"in time": 5 * time.Second, "too long": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var r ingest.Requests[int]
			if _, err := r.Begin(); err != ingest.ErrStarting {
				t.Errorf("before it is open: %v", err)
			}
			one := 1
			r.Open(&one)
			for range 2 {
				if s, err := r.Begin(); err != nil || s != &one {
					t.Fatal(s, err)
				}
			}
			r.End()
			ends, late := make(chan struct{}), 0
			go func() {
				select {
				case <-time.After(took):
				case <-ends:
				}
				if _, err := r.Begin(); err != ingest.ErrDraining || !r.Closing() {
					t.Errorf("while it drains: %v", err)
				}
				r.End()
			}()
			began := time.Now()
			r.Drain(20*time.Second, func() { late++; close(ends) })
			if drained := time.Since(began); drained != min(took, 20*time.Second) ||
				(late == 1) != (took > 20*time.Second) {
				t.Errorf("%s: drained after %v, and %d were told", name, drained, late)
			}
		})
	}
}
