package batching

import "time"

// Soft names the batcher that waits for a bounded time.
const Soft = "soft"

// SoftSettings are the settings of the batcher soft.
type SoftSettings struct {
	MaxDelay time.Duration `yaml:"max_delay" default:"100ms" request:"1m" short:"max_delay" advanced:"yes" help:"batcher soft: longest wait for a full batch after the first frame"`
}

func init() {
	Register(Soft, "waits up to max_delay after the first frame for a full batch",
		func(maxSize int, s SoftSettings) Batcher {
			return soft{maxSize, s.MaxDelay}
		})
}

// soft waits up to delay after the first frame for a full batch.
type soft struct {
	max   int
	delay time.Duration
}

func (soft) Needs() Needs { return Needs{Oldest: true, Arrivals: true} }

func (s soft) Decide(v View) (int, time.Duration) {
	if v.Rows >= s.max || v.Oldest >= s.delay {
		return min(v.Rows, s.max), 0
	}
	return 0, s.delay - v.Oldest
}

// Cause implements Explainer.
func (soft) Cause(View) Cause { return MaxDelay }
