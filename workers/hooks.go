package workers

import (
	"time"

	"millrace/batching"
	"millrace/stream"
)

// Hooks are called for events in a group, for metrics and traces. The calls happen during the processing of frames: a
// hook must be quick, must not block and must not call the group. A nil field is skipped.
type Hooks struct {
	// Ended is called once for every accepted frame. The request may be read during the
	// call only.
	Ended func(r *stream.Request)
	// Skipped is called before Ended for a frame that the gate answers with an earlier
	// result.
	Skipped func(r *stream.Request)
	// Batch is called after each batch, with the rows that ran.
	Batch func(rows int, prepare, run time.Duration)
	// Run is called after each batch, before the batch's requests are unbound, with all requests of the run.
	Run func(BatchRun)
	// Step is called when a request has ended in one model of a graph.
	Step func(*stream.Step)
	// Closed is called when the group has stopped. A hung run may end its frames after Closed.
	Closed func()
}

// BatchRun is one run of a batch, valid during the call.
type BatchRun struct {
	Batch          *batching.Batch
	Started, Ended stream.Instant // of the run; its preparation began at Batch.Gathered
	Err            error          // error of the run as a whole
}

// Then returns hooks that call the hooks of h, then the hooks of next.
func (h Hooks) Then(next Hooks) Hooks {
	return Hooks{
		Ended: joinHooks(h.Ended, next.Ended), Skipped: joinHooks(h.Skipped, next.Skipped),
		Run:  joinHooks(h.Run, next.Run),
		Step: joinHooks(h.Step, next.Step),
		Batch: func(rows int, prepare, run time.Duration) {
			if h.Batch != nil {
				h.Batch(rows, prepare, run)
			}
			if next.Batch != nil {
				next.Batch(rows, prepare, run)
			}
		},
		Closed: func() {
			if h.Closed != nil {
				h.Closed()
			}
			if next.Closed != nil {
				next.Closed()
			}
		},
	}
}

func joinHooks[T any](a, b func(T)) func(T) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(v T) { a(v); b(v) }
}

// GroupStats is a snapshot of a group, or of all groups of one model and version.
type GroupStats struct {
	Model       *stream.Model
	State       string        // READY, LOADING, UNAVAILABLE, UNLOADING or UNLOADED
	Reason      string        // why the group is not ready
	Exhausted   bool          // an instance has failed more often in a row than limits.restarts allows
	Workers     int           // instances that can run batches
	Busy        int           // instances that run a batch now
	Quarantined int           // hung instances whose call has not returned
	Streams     int           // open streams, without the streams of one-shot requests
	PlacesUsed  int           // used places of the queue, one per stream and one-shot caller
	Waiting     int           // frames in mailboxes
	Oldest      time.Duration // wait of the oldest waiting frame, without frames of paused streams
	Buffers     int           // batches with their memory
	BuffersFree int

	CacheResults int // kept in the caches of results
	CacheBytes   int64

	// The remaining fields count for the model and version since the load, over all groups that have served.
	Frames    stream.Totals
	Restarts  uint64
	Batches   uint64            // run batches
	BatchesBy map[string]uint64 // Batches by the cause of their formation (batching.Cause)
	Rows      uint64            // of these batches
	Capacity  uint64            // sum of the batches' largest numbers of rows
	Shadow    ShadowStats       // of the version as a shadow
	Processes ProcessStats      // child processes and containers of the workers; zero for other kinds
	RunTotals RunTotals
}

// The states of a group.
const (
	StateLoading     = "LOADING"
	StateReady       = "READY"
	StateUnavailable = "UNAVAILABLE"
	StateUnloading   = "UNLOADING"
	StateUnloaded    = "UNLOADED" // no group is left: the last counts are still reported
)
