package batching

// Cause is the reason for which a batch was formed.
type Cause uint8

// The causes.
const (
	Full         Cause  = iota // the batch had the most rows possible
	IdleWorker                 // a worker was idle, and the batcher does not wait then
	MaxDelay                   // the first frame had waited for the batcher's longest time
	NearDeadline               // a frame would otherwise have missed its deadline
	Partial                    // not full: another batch needed the memory or worker, or the worker stopped
	Causes       = iota        // number of causes
)

// String returns the cause as a metric label.
func (c Cause) String() string {
	return [...]string{"full", "idle_worker", "max_delay", "deadline", "partial"}[c]
}

// Explainer is a Batcher that waits while a worker is idle. After a Decide that took fewer rows than a full batch,
// Cause is called with the same view, and returns why the wait ended. For other batchers the cause is IdleWorker.
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
