package ingest

import (
	"maps"
	"time"

	"millrace/stream"
)

// Metrics are an adapter's contribution to the server's metrics at a scrape. Values without meaning for the adapter
// stay zero. Maps have the values of the metric's label as keys.
type Metrics struct {
	Sessions      map[string]int    // open, by the adapter's name and their state: "ws", "ws_waiting"
	Videos        map[string]int    // decoded for sessions, by their origin: "sent", "pulled"
	TooSlow       map[string]uint64 // videos whose ffmpeg used limits.max_decode_time without a picture, likewise
	OutboxBytes   int64             // of replies waiting for their clients
	Credits       int               // frames that clients of millrace.v1 may send without waiting
	WithoutCredit int               // streams of millrace.v1 whose clients must wait
	KeptBytes     int64             // of replies kept for resumable sessions
	Closed        map[string]uint64 // ended sessions, by reason
	StreamEnds    map[string]uint64 // streams of ended sessions, by reason
	Goroutines    map[string]int    // by starting group
	Contexts      uint64            // malformed trace contexts, ignored
	Tasks         map[string]int    // stored, by state; nil without a data folder
	TaskBytes     int64             // of inputs, results and logs of tasks
	TasksQueued   map[string]uint64 // by origin
	TasksEnded    map[string]uint64 // by state
	TaskAttempts  uint64            // claims of tasks by consumers
	TaskClaims    map[string]uint64 // of consumers on other hosts, by event
	NoModel       stream.Totals     // frames refused because no loaded model or open stream was named
}

// Measured is an adapter with metrics. Each scrape calls Metrics: Metrics must be quick, and safe for concurrent use.
type Measured interface {
	Metrics() Metrics
}

// Drainer is an adapter that tells its clients of the beginning of the shutdown, so that clients can receive the
// results in flight. Models still answer.
type Drainer interface {
	GoAway(until time.Time)
}

// Leaver is an adapter that ends connections without losing a request, when another server accepts new connections. It
// still answers what arrives. Leave does not wait.
type Leaver interface {
	Leave()
}

// Starter is an adapter that accepts requests once Serving is closed.
type Starter interface {
	Serving() <-chan struct{}
}

// Add adds the metrics of another adapter.
func (m *Metrics) Add(other Metrics) {
	m.OutboxBytes += other.OutboxBytes
	m.KeptBytes += other.KeptBytes
	m.Credits += other.Credits
	m.WithoutCredit += other.WithoutCredit
	m.Contexts += other.Contexts
	m.NoModel.Add(other.NoModel)
	add(&m.Sessions, other.Sessions)
	add(&m.Videos, other.Videos)
	add(&m.TooSlow, other.TooSlow)
	add(&m.Closed, other.Closed)
	add(&m.StreamEnds, other.StreamEnds)
	add(&m.Goroutines, other.Goroutines)
	m.TaskBytes += other.TaskBytes
	m.TaskAttempts += other.TaskAttempts
	add(&m.Tasks, other.Tasks)
	add(&m.TasksQueued, other.TasksQueued)
	add(&m.TasksEnded, other.TasksEnded)
	add(&m.TaskClaims, other.TaskClaims)
}

func add[T int | uint64](to *map[string]T, from map[string]T) {
	if *to == nil {
		*to = maps.Clone(from)
		return
	}
	for label, n := range from {
		(*to)[label] += n
	}
}
