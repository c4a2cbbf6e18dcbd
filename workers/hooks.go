package workers

import (
	"time"

	"millrace/stream"
)

// Hooks are called for events in a group, for metrics and traces. They are called while
// frames are processed: they must be quick, must not block and must not call the group.
// A nil field is skipped.
type Hooks struct {
	// Ended is called once for every accepted frame. The request may be read during the
	// call only.
	Ended func(r *stream.Request)
	// Skipped is called before Ended for a frame that the gate answers with an earlier
	// result.
	Skipped func(r *stream.Request)
	// Batch is called after each batch, with the rows that ran.
	Batch func(rows int, prepare, run time.Duration)
}

// GroupStats is a snapshot of a group.
type GroupStats struct {
	Model       *stream.Model
	State       string // READY, LOADING, UNAVAILABLE or UNLOADING
	Reason      string // why it is not ready
	Workers     int    // instances that can run batches
	Busy        int    // instances that run a batch now
	Quarantined int    // hung instances whose call has not returned
	Streams     int    // open streams, without those of one-shot requests
	PlacesUsed  int    // places of the queue in use, one per stream and one-shot caller
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
