package stream

import "time"

// Instant is a moment on the process's monotonic clock, in nanoseconds since
// the process started. Zero means "never".
type Instant int64

var start = time.Now()

// Now reads the clock. Most code takes an Instant as an argument; only code that receives input or runs timers calls
// Now.
func Now() Instant { return Instant(time.Since(start)) }

// InstantOf returns the Instant of t, a time returned by time.Now in this process.
func InstantOf(t time.Time) Instant { return Instant(t.Sub(start)) }

// Sub returns i-j.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Add returns i+d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Wall returns the time of day of i, for people and for other machines.
func (i Instant) Wall() time.Time { return start.Add(time.Duration(i)) }
