package streams

import (
	"maps"
	"time"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/stream"
)

// Stats is a snapshot. Counters of a stream begin and end with it.
type Stats struct {
	Streams  []StreamStats // by name
	Watchers int           // of results and video, over all streams
	Panics   uint64
}

// StreamStats are the statistics of one stream.
type StreamStats struct {
	Name     string
	State    sources.State
	Paused   bool
	Watchers int

	Answered uint64 // frames, as are Failed and Drops; together with Lost and those in flight they add up to Frames
	Failed   uint64
	Drops    map[stream.Reason]uint64

	Aged uint64        // results that were passed to the sinks
	Age  time.Duration // sum of their ages, from the receipt of the frame to that moment
	Last time.Time     // the newest of them; zero for none

	Totals
	Sinks map[string]sinks.Stats // by the names of their kinds
}

// Totals only increase.
type Totals struct {
	Frames       uint64 // read from the source
	Lost         uint64 // those of them that were lost for want of memory
	Restarts     uint64 // of the source
	ResultsLost  uint64 // results that were not passed to any sink, because writing took too long
	WatchersLost uint64 // lines that slow watchers did not get
}

// add adds what one source has read.
func (t *Totals) add(s sources.Status) {
	t.Frames += s.Frames
	t.Lost += s.Lost
	t.Restarts += s.Restarts
}

// Stats reads the counters. It is safe for concurrent use.
func (a *Adapter) Stats() Stats {
	st := Stats{Watchers: int(a.watchers.Load()), Panics: a.panics.Load()}
	for _, f := range a.list() {
		st.Streams = append(st.Streams, f.stats())
	}
	return st
}

func (f *runner) stats() StreamStats {
	state, _ := f.state()
	s := StreamStats{Name: f.config.Name, State: state.State, Watchers: f.results.size() + f.preview.size()}
	f.countMu.Lock()
	s.Answered, s.Failed, s.Drops = f.answered, f.errors, maps.Clone(f.drops)
	s.Aged, s.Age, s.Last = f.aged, f.age, f.last
	f.countMu.Unlock()
	s.Totals = f.totals() // after the endings, so that it is at least their number
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Paused = f.now.Paused
	s.Sinks = map[string]sinks.Stats{}
	for _, k := range f.sinks {
		s.Sinks[k.name] = k.Stats()
	}
	return s
}

// countDelivered counts a result that is passed to the sinks.
func (f *runner) countDelivered(r *stream.Result) {
	if r.Outcome != stream.Answered || r.Partial {
		return
	}
	now := stream.Now()
	f.countMu.Lock()
	defer f.countMu.Unlock()
	f.aged++
	f.age += now.Sub(r.Timing.Received)
	f.last = now.Wall()
}
