package workers

import (
	"time"

	"millrace/stream"
)

// Hooks are called for what happens in a group, for metrics and traces. They are
// called on the path of frames: they must be quick, must not block and must not
// call back. A nil field is skipped.
type Hooks struct {
	// Ended comes once for every accepted frame. The request may be read during
	// the call only.
	Ended func(r *stream.Request)
	// Skipped comes before Ended for a frame that the gate answers with an earlier
	// result.
	Skipped func(r *stream.Request)
	// Batch comes after each batch, with the rows that ran.
	Batch func(rows int, prepare, run time.Duration)
}

// GroupStats is a moment's reading of a group.
type GroupStats struct {
	Model       *stream.Model
	State       string // READY, LOADING, UNAVAILABLE or UNLOADING
	Reason      string // why it is not ready
	Workers     int    // instances that can run batches
	Busy        int    // of them, running one now
	Quarantined int    // instances given up while they hang
	Streams     int    // open streams, one-shot callers left out
	Flows       int    // places of the queue in use
	Waiting     int    // frames in mailboxes
	Buffers     int    // batches with their memory
	BuffersFree int
	Restarts    uint64
	Batches     uint64
}

// The states of a group.
const (
	StateLoading     = "LOADING"
	StateReady       = "READY"
	StateUnavailable = "UNAVAILABLE"
	StateUnloading   = "UNLOADING"
)
