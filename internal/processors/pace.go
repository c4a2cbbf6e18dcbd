package processors

import (
	"sync/atomic"
	"time"
)

// While goroutines or threads wait for a processor, a paced computation uses a quarter of its processor.
const (
	paceSlice = time.Millisecond
	pacePause = 3 * time.Millisecond
)

// Pace slows one long computation down while goroutines of this process, or threads of all processes, wait for a
// processor. The computation calls Step often. A Pace is for one goroutine.
type Pace struct {
	Late  *atomic.Uint32 // not 0 = a goroutine waits for a processor; in C, too
	Slice time.Duration  // of computing between two looks at Late
	Pause time.Duration  // after a slice, while Late is not 0

	since time.Time // the start of the slice
}

// Pace returns the pace of a computation that has called Occupy; nil for nil Turns.
func (t *Turns) Pace() *Pace {
	if t == nil {
		return nil
	}
	return &Pace{Late: t.late, Slice: paceSlice, Pause: pacePause}
}

// Start begins the first slice of a computation.
func (p *Pace) Start() { p.since = time.Now() }

// Step pauses at the end of a slice while Late is not 0, and returns the length of the pause.
func (p *Pace) Step() time.Duration {
	now := time.Now()
	if now.Sub(p.since) < p.Slice {
		return 0
	}
	if p.Late.Load() != 0 {
		time.Sleep(p.Pause)
	}
	p.since = time.Now()
	return p.since.Sub(now)
}
