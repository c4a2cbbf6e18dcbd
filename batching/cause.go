package batching

// Cause says why a batch was formed when it was.
type Cause uint8

// The causes.
const (
	Full         Cause  = iota // it had as many rows as a batch may have
	IdleWorker                 // a worker was idle, and the batcher does not wait then
	MaxDelay                   // its first frame had waited for the batcher's longest time
	NearDeadline               // a frame would have missed its deadline otherwise
	Partial                    // it waited to be full, but the memory or the worker that it waited for was needed or ended
	Causes       = iota        // how many there are
)

// String returns the cause as metrics label it.
func (c Cause) String() string {
	return [...]string{"full", "idle_worker", "max_delay", "deadline", "partial"}[c]
}

// Explainer is a Batcher that waits while a worker is idle. Cause is called after a
// Decide that took fewer rows than a full batch, with the same view, and says why it
// did not wait longer. For other batchers that is IdleWorker.
type Explainer interface {
	Cause(v View) Cause
}

// cause returns why the batcher took rows rows of v.
func (in *Intake) cause(v View, rows int) Cause {
	if rows >= in.model.MaxBatch {
		return Full
	}
	if e, ok := in.batcher.(Explainer); ok {
		return e.Cause(v)
	}
	return IdleWorker
}
