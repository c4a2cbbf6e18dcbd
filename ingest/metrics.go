package ingest

import (
	"maps"
	"time"

	"millrace/stream"
)

// Metrics are what an adapter adds to the server's metrics at a scrape. What it does
// not have stays zero. Maps have the values of the metric's label as keys.
type Metrics struct {
	Sessions      map[string]int    // open, by the adapter's name and their state: "ws", "ws_waiting"
	Videos        map[string]int    // decoded for sessions, by their origin: "sent", "pulled"
	TooSlow       map[string]uint64 // those of them whose ffmpeg used limits.max_decode_time without a picture, likewise
	OutboxBytes   int64             // of replies that wait for their clients
	Credits       int               // frames that clients of millrace.v1 may send before they have to wait
	WithoutCredit int               // streams of millrace.v1 whose clients have to wait
	KeptBytes     int64             // of replies kept for sessions that may be resumed
	Closed        map[string]uint64 // sessions that ended, by reason
	StreamEnds    map[string]uint64 // streams of sessions that ended, by reason
	Goroutines    map[string]int    // by the group that started them
	Contexts      uint64            // malformed trace contexts, which were ignored
	NoModel       stream.Totals     // frames that were refused because they named no loaded model or open stream
}

// Measured is an adapter that has metrics. Metrics is called at each scrape: it must
// be quick, and safe for concurrent use.
type Measured interface {
	Metrics() Metrics
}

// Drainer is an adapter that tells its clients when the server begins to shut down, so
// that they can receive what is in flight. Models still answer.
type Drainer interface {
	GoAway(until time.Time)
}

// Starter is an adapter whose clients may send requests once Serving is closed.
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
