package streams

import (
	"maps"
	"time"

	"millrace/ingest/clips"
	"millrace/ingest/history"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/stream"
)

// Stats is a snapshot. The counters of a stream begin and end with the stream.
type Stats struct {
	Streams  []StreamStats // by name
	Watchers int           // of results and video, over all streams
	Panics   uint64
	History  *history.Stats // nil = off
	Clips    clips.Stats    // zero without a folder of clips
}

// StreamStats are the statistics of one stream.
type StreamStats struct {
	Name     string
	ID       uint64 // unique to the stream, even among streams of the same name over time
	State    sources.State
	Paused   bool
	Watchers int
	Encoders int // of watched video, that run now

	// Answered, Failed and Drops count the endings of frames for all models together, including models that have left
	// the stream. For a model open the whole time, these counts, Lost and the frames in flight add up to Frames.
	Answered uint64
	Failed   uint64
	Drops    map[stream.Reason]uint64
	Aged     uint64        // results passed to the sinks
	Age      time.Duration // sum of their ages
	Last     time.Time     // time of the newest result passed to the sinks; zero = none

	Totals
	Events map[EventKind]uint64 // by kind
	Zones  []ZoneStats
	Models []ModelStats           // in the order of the configuration
	Sinks  map[string]sinks.Stats // by the names of their kinds
}

// ModelStats are the statistics of one model of a stream. Each frame read while the model was open has one ending.
type ModelStats struct {
	Model    string
	Version  string
	State    sources.State // Running while the model is open
	Answered uint64
	Failed   uint64
	Drops    map[stream.Reason]uint64
	Aged     uint64        // results passed to the sinks
	Age      time.Duration // sum of the ages of these results, from the receipt of the frame to the delivery
	Last     time.Time     // time of the newest delivery; zero = none
	Failure  error         // error of the newest frame with a result or an error; nil for a result

	consumer uint64 // id of the consumer
}

// Totals only increase.
type Totals struct {
	Frames       uint64 // read from the source
	Lost         uint64 // frames lost for lack of memory
	Skipped      uint64 // pictures that became no frame, with decode reference or key
	Restarts     uint64 // of the source
	ResultsLost  uint64 // results that reached no sink, because writing took too long
	WatchersLost uint64 // lines lost by slow watchers
	VideoLost    uint64 // encoded pictures lost by slow watchers
	Encoded      uint64 // pictures of watched video
	EncoderFails uint64 // failures of encoders
}

// Stats reads the counters. Stats is safe for concurrent use.
func (a *Adapter) Stats() Stats {
	st := Stats{Watchers: int(a.watchers.Load()), Panics: a.panics.Load()}
	if a.opts.History != nil {
		st.History = new(a.opts.History.Stats())
	}
	if a.opts.Clips != nil {
		st.Clips = a.opts.Clips.Stats()
	}
	for _, f := range a.list() {
		st.Streams = append(st.Streams, f.stats())
	}
	return st
}

func (f *runner) stats() StreamStats {
	s := StreamStats{Name: f.name, ID: f.id, State: f.state().State, Watchers: f.results.size(),
		Encoders: int(f.encoded.encoders.Load()), Drops: map[stream.Reason]uint64{}}
	for _, p := range f.previews() {
		s.Watchers += p.watching()
	}
	var all counts
	f.countMu.Lock()
	present := f.consumers
	for _, c := range present {
		m := ModelStats{Model: c.Model, Version: c.Version, Answered: c.answered, Failed: c.errors,
			Drops: maps.Clone(c.drops), Aged: c.aged, Age: c.age, Last: c.last, Failure: c.failure, consumer: c.id}
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
	f.eventStats(&s)
	s.Totals = f.totals() // after the endings, so that Frames is at least the number of endings
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
