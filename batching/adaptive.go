package batching

import "time"

const Adaptive = "adaptive"

func init() {
	Register(Adaptive, "never waits while a worker is idle", func(maxSize int, _ struct{}) Batcher {
		return adaptive{maxSize}
	})
}

// adaptive never lets rows wait while a worker is idle. adaptive divides the waiting rows among the idle workers: a
// single batch of all rows would take longer and leave workers idle.
type adaptive struct{ max int }

func (adaptive) Needs() Needs { return Needs{} }

func (a adaptive) Decide(v View) (int, time.Duration) {
	return min(a.max, (v.Rows+v.Idle-1)/v.Idle), 0
}
