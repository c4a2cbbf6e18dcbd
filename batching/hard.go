package batching

import "time"

// Hard names the batcher of full batches.
const Hard = "hard"

func init() {
	Register(Hard, "forms full batches only, however long that takes", func(maxSize int, _ struct{}) Batcher {
		return hard{maxSize}
	})
}

// hard forms full batches only.
type hard struct{ max int }

func (hard) Needs() Needs { return Needs{Arrivals: true, Full: true} }

func (h hard) Decide(v View) (int, time.Duration) {
	if v.Rows >= h.max {
		return h.max, 0
	}
	return 0, 0
}
