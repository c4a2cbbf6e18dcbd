package batching

import (
	"time"

	"millrace/stream"
)

// Kind names a batcher.
type Kind string

// The batchers.
const (
	Adaptive Kind = "adaptive"
	Soft     Kind = "soft"
	Hard     Kind = "hard"
)

// Batcher decides when a batch is formed and how many rows it gets. It is pure
// logic: no goroutine, timer or lock inside; the group serialises the calls.
type Batcher interface {
	// Decide is asked when idle > 0 workers could start and frames of waiting > 0
	// rows wait, the oldest since oldest ago (told to soft, until a batch is
	// full). take > 0 forms a batch of up to take rows now; otherwise the group
	// asks again after wait (0: when something arrives).
	Decide(oldest time.Duration, waiting, idle int) (take int, wait time.Duration)
	// Observe tells that a batch of n rows took that long to run.
	Observe(n int, took time.Duration)
}

// NewBatcher returns a batcher of at most maxSize rows; maxDelay is for Soft.
func NewBatcher(kind Kind, maxSize int, maxDelay time.Duration) (Batcher, error) {
	switch kind {
	case Adaptive:
		return &adaptive{max: maxSize}, nil
	case Soft:
		return &soft{max: maxSize, delay: maxDelay}, nil
	case Hard:
		return &hard{max: maxSize}, nil
	}
	return nil, stream.Errorf(stream.InvalidArgument, "batching.kind", "%q is not a batcher: want adaptive, soft or hard", string(kind))
}

// adaptive is work-conserving: it never waits while a worker is idle. What
// waits is shared out among the idle workers, since a batch that leaves a
// worker idle only takes longer.
type adaptive struct{ max int }

func (a *adaptive) Decide(_ time.Duration, waiting, idle int) (int, time.Duration) {
	return min(a.max, (waiting+idle-1)/idle), 0
}

func (a *adaptive) Observe(int, time.Duration) {}

// soft waits up to delay after the first frame for a full batch.
type soft struct {
	max   int
	delay time.Duration
}

func (s *soft) Decide(oldest time.Duration, waiting, _ int) (int, time.Duration) {
	if waiting >= s.max || oldest >= s.delay {
		return min(waiting, s.max), 0
	}
	return 0, s.delay - oldest
}

func (s *soft) Observe(int, time.Duration) {}

// hard forms full batches only.
type hard struct{ max int }

func (h *hard) Decide(_ time.Duration, waiting, _ int) (int, time.Duration) {
	if waiting >= h.max {
		return h.max, 0
	}
	return 0, 0
}

func (h *hard) Observe(int, time.Duration) {}
