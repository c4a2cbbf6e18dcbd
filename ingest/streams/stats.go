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
	ID       uint64 // of no other stream, also none that had the name before
	State    sources.State
	Paused   bool
	Watchers int

	// Answered, Failed and Drops are the endings of frames, of all models together, also of
	// those that the stream has no longer. For each model, they, Lost and the frames in flight add up to Frames, if it was open the
	// whole time.
	Answered uint64
	Failed   uint64
	Drops    map[stream.Reason]uint64
	Aged     uint64        // results that were passed to the sinks
	Age      time.Duration // sum of their ages
	Last     time.Time     // the newest result that was passed to the sinks; zero for none

	Totals
	Models []ModelStats           // in the order of the configuration
	Sinks  map[string]sinks.Stats // by the names of their kinds
}

// ModelStats are the statistics of one model of a stream. Each frame that was read while
// the model was open has one ending, which is counted here.
type ModelStats struct {
	Model    string
	Version  string
	State    sources.State // Running while the model is open
	Answered uint64
	Failed   uint64
	Drops    map[stream.Reason]uint64
	Aged     uint64        // results that were passed to the sinks
	Age      time.Duration // sum of their ages, from the receipt of the frame to that moment
	Last     time.Time     // the newest of them; zero for none
	Failure  error         // of the newest frame that has a result or an error, if it is an error

	consumer uint64 // its id
}

// Totals only increase.
type Totals struct {
	Frames       uint64 // read from the source
	Lost         uint64 // those of them that were lost for want of memory
	Restarts     uint64 // of the source
	ResultsLost  uint64 // results that were not passed to any sink, because writing took too long
	WatchersLost uint64 // lines that slow watchers did not get
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
	s := StreamStats{Name: f.name, ID: f.id, State: f.state().State, Watchers: f.results.size(), Drops: map[stream.Reason]uint64{}}
	for _, p := range f.previews() {
		s.Watchers += p.size()
	}
	var all counts
	f.countMu.Lock()
	present := f.consumers
	for _, c := range present {
		m := ModelStats{Model: c.Model, Version: c.Version, Answered: c.answered, Failed: c.errors, Drops: maps.Clone(c.drops), Aged: c.aged, Age: c.age, Last: c.last, Failure: c.failure, consumer: c.id}
		s.Models = append(s.Models, m)
		all.add(&c.counts)
	}
	for _, c := range f.leaving {
		all.add(&c.counts)
	}
	all.add(&f.gone)
	f.countMu.Unlock()
	s.Answered, s.Failed, s.Aged, s.Age, s.Last = all.answered, all.errors, all.aged, all.age, all.last
	maps.Copy(s.Drops, all.drops)
	s.Totals = f.totals() // after the endings, so that it is at least their number
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, c := range present {
		s.Models[i].State = c.state
	}
	s.Paused = f.now.Paused
	s.Sinks = map[string]sinks.Stats{}
	for _, k := range f.sinks {
		s.Sinks[k.name] = k.Stats()
	}
	return s
}
