package client

import (
	"context"
	"net/http"
	"time"
)

// Status is the state of a server at one moment. The counters never decrease while the same server, or the same
// endpoint, is running: two replies give the rates in between.
type Status struct {
	Version       string    `json:"version"`
	State         string    `json:"state"`   // starting, ready, degraded (a model has no worker) or draining
	Time          time.Time `json:"time"`    // of the reply, by the server's clock
	Started       time.Time `json:"started"` // of the server
	UptimeSeconds float64   `json:"uptime_seconds"`

	Process     ProcessStatus               `json:"process"`
	Memory      MemoryStatus                `json:"memory"`
	Connections map[string]ConnectionStatus `json:"connections"` // by listener: http, grpc, metrics, management, management_grpc
	Sessions    map[string]int              `json:"sessions"`    // open ones by adapter; ws_waiting may be resumed
	Streams     map[string]int              `json:"streams"`     // server streams by state, and paused ones
	Models      []ModelStatus               `json:"models"`      // loaded ones, sorted by name
}

// ProcessStatus is the resource usage of the server's process.
type ProcessStatus struct {
	CPUSeconds    float64 `json:"cpu_seconds"` // used since the process started, without child processes
	Processors    int     `json:"processors"`  // most that run Go code at once (GOMAXPROCS)
	ResidentBytes int64   `json:"resident_bytes"`
	HeapBytes     int64   `json:"heap_bytes"`
	Goroutines    int     `json:"goroutines"`
}

// MemoryStatus is the memory of frames, results and batches, in bytes.
type MemoryStatus struct {
	Budget   int64 `json:"budget"` // memory.budget
	Leased   int64 `json:"leased"`
	Reserved int64 `json:"reserved"` // for the batches of loaded models
	Denied   int64 `json:"denied"`   // leases refused by the budget
}

// ConnectionStatus counts the TCP connections of one listener.
type ConnectionStatus struct {
	Open    int64  `json:"open"`
	Refused uint64 `json:"refused"` // because of limits.max_connections, limits.max_connections_per_address, or for want of a file descriptor
	Shed    uint64 `json:"shed"`    // closed to make room for a newer connection
	Failed  uint64 `json:"failed"`  // attempts to accept
}

// ModelStatus is the state of a loaded model.
type ModelStatus struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Kind     string `json:"kind"`             // of the workers
	State    string `json:"state"`            // READY, LOADING, UNAVAILABLE or UNLOADING
	Reason   string `json:"reason,omitempty"` // why the model is not ready
	MaxBatch int    `json:"max_batch"`        // rows

	Workers     int    `json:"workers"`     // able to run batches
	Busy        int    `json:"busy"`        // running a batch
	Quarantined int    `json:"quarantined"` // hanging: the run is past limits.run
	Restarts    uint64 `json:"restarts"`    // of workers

	Streams  int     `json:"streams"`   // open streams, without one-shot requests
	Waiting  int     `json:"waiting"`   // frames waiting for a batch
	OldestMS float64 `json:"oldest_ms"` // wait of the oldest waiting frame
	Batches  uint64  `json:"batches"`   // batches that have run

	// Frames by the endings sent to clients: Accepted = Results + Drops + Errors + InFlight. The counts are of the
	// model and version since loading. Refused counts the Drops and Errors of frames not accepted by a stream, by
	// reason or code; Unsendable counts the Results that could not be encoded in the client's format, and were sent
	// as an error. Reasons and codes with 0 are left out.
	Accepted   uint64            `json:"accepted"`
	Results    uint64            `json:"results"`
	Drops      map[string]uint64 `json:"drops"`
	Errors     map[string]uint64 `json:"errors"`
	InFlight   uint64            `json:"in_flight"`
	Refused    map[string]uint64 `json:"refused"`
	Unsendable map[string]uint64 `json:"unsendable"`

	BatchRows Histogram       `json:"batch_rows"`
	StagesUS  StageHistograms `json:"stages_us"`
}

// StageHistograms are the stages of answered frames, in microseconds. Frames answered by the gate, without a run, are
// left out.
type StageHistograms struct {
	Queue   Histogram `json:"queue"`   // from the receipt of a frame until the frame is bound to a batch
	Prepare Histogram `json:"prepare"` // until the batch runs
	Run     Histogram `json:"run"`     // until the frame's result
	Total   Histogram `json:"total"`
}

// Status returns the server's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.doJSON(ctx, http.MethodGet, c.url(nil, "v2", "status"), nil, &s)
	return s, err
}
