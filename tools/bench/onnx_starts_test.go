package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPhases runs two loops with runs of 10 and 8 ms and compares the start times.
func TestPhases(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		phase phase
		want  [2][]time.Duration
	}{
		{free, [2][]time.Duration{{0, 10 * ms, 20 * ms}, {0, 8 * ms, 16 * ms, 24 * ms, 32 * ms}}},
		{inStep, [2][]time.Duration{{0, 10 * ms, 20 * ms}, {0, 10 * ms, 20 * ms, 30 * ms, 38 * ms}}},
		{staggered, [2][]time.Duration{{0, 14 * ms, 24 * ms}, {1 * ms, 9 * ms, 18 * ms, 28 * ms, 36 * ms}}},
	} {
		t.Run(string(c.phase), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStarts(c.phase, 2)
				began := time.Now()
				var got [2][]time.Duration
				for i, took := range []time.Duration{10 * ms, 8 * ms} {
					go func() {
						defer s.leave()
						if c.phase == staggered {
							time.Sleep(time.Duration(i) * ms)
						}
						who := new(bound)
						last := time.Duration(0)
						for range len(c.want[i]) {
							s.wait(who, last)
							got[i] = append(got[i], time.Since(began))
							time.Sleep(took)
							last = took
						}
					}()
				}
				time.Sleep(time.Second)
				synctest.Wait()
				for i := range got {
					if !slices.Equal(got[i], c.want[i]) {
						t.Errorf("loop %d began at %v, want %v", i, got[i], c.want[i])
					}
				}
			})
		})
	}
}
