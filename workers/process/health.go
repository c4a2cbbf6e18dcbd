package process

import (
	"fmt"
	"time"

	"millrace/stream"
)

// health decides on the replacement of a running program. The caller serialises the calls.
type health struct {
	set     *Settings
	started stream.Instant

	requests int
	last     []time.Duration // of the last batches, a ring
	next     int
	idle     stream.Instant // since when nothing runs; 0 = something does
	checked  stream.Instant // when the program was last asked
}

// reason is the reason for replacing a program. planned means a replacement without an error.
type reason struct {
	cause   string
	planned bool
	err     error
}

func newHealth(set *Settings, now stream.Instant) *health {
	return &health{set: set, started: now, idle: now, checked: now}
}

// ran records a batch, and returns a reason to replace the program, or nil.
func (h *health) ran(requests int, took time.Duration) *reason {
	h.requests += requests
	w := &h.set.Watchdog
	if limit := w.RequestThreshold; limit > 0 {
		if len(h.last) < w.RequestAverage {
			h.last = append(h.last, took)
		} else {
			h.last[h.next] = took
			h.next = (h.next + 1) % len(h.last)
		}
		var sum time.Duration
		for _, d := range h.last {
			sum += d
		}
		if mean := sum / time.Duration(len(h.last)); len(h.last) == w.RequestAverage && mean > limit {
			return &reason{cause: "slow", err: stream.Errorf(stream.Timeout, "watchdog.request_threshold",
				"the last %d batches took %v in the mean, more than %v", len(h.last), mean.Round(time.Millisecond),
				limit)}
		}
	}
	if n := h.set.RecycleRequests; n > 0 && h.requests >= n {
		return &reason{cause: "recycled", planned: true, err: fmt.Errorf("%d requests", h.requests)}
	}
	return nil
}

// old returns a reason to replace a program of the age at now, or nil.
func (h *health) old(now stream.Instant) *reason {
	if d := h.set.RecycleAfter; d > 0 && now.Sub(h.started) >= d {
		return &reason{cause: "recycled", planned: true, err: fmt.Errorf("%v", d)}
	}
	return nil
}

// memory returns a reason to replace a program with the given resident memory, or nil. now means: do not wait even
// for the end of the running batch.
func (h *health) memory(bytes int64) (why *reason, now bool) {
	limit := h.set.MemoryLimit
	if limit <= 0 || bytes <= limit {
		return nil, false
	}
	return &reason{cause: "memory", err: stream.Errorf(stream.Internal, "memory_limit",
		"the program has %d MiB of resident memory, and the setting allows %d", bytes>>20, limit>>20)}, bytes/2 > limit
}

// due reports whether the health check of an idle program is due, and records the check.
func (h *health) due(now stream.Instant) bool {
	period := *h.set.Watchdog.Period
	if period <= 0 || h.idle == 0 || now.Sub(h.idle) < period || now.Sub(h.checked) < period {
		return false
	}
	h.checked = now
	return true
}

// interval is the time between two looks at a program.
func (h *health) interval() time.Duration {
	d := time.Second
	if h.set.MemoryLimit > 0 { // a program takes gigabytes in a second
		d /= 10
	}
	for _, x := range [...]time.Duration{*h.set.Watchdog.Period, h.set.RecycleAfter} {
		if x > 0 {
			d = min(d, max(x/4, 5*time.Millisecond))
		}
	}
	return d
}
