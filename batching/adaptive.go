package batching

import "time"

// Adaptive names the batcher that never waits while a worker is idle.
const Adaptive = "adaptive"

func init() {
	Register(Adaptive, "never waits while a worker is idle", func(maxSize int, _ struct{}) Batcher {
		return adaptive{maxSize}
	})
}

// adaptive is work-conserving: it never waits while a worker is idle. It divides the
// waiting rows among the idle workers, since one batch of all of them would take longer
// and leave workers idle.
type adaptive struct{ max int }

func (adaptive) Needs() Needs { return Needs{} }

func (a adaptive) Decide(v View) (int, time.Duration) {
	return min(a.max, (v.Rows+v.Idle-1)/v.Idle), 0
}
