package streams

import (
	"maps"
	"time"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/stream"
)

// Stats is a moment's reading. Counters of a stream begin with it and go with it.
type Stats struct {
	Streams  []StreamStats // by name
	Watchers int           // of results and video, over all streams
	Panics   uint64
}

// StreamStats are the figures of one stream.
type StreamStats struct {
	Name     string
	State    sources.State
	Paused   bool
	Watchers int

	Answered uint64 // frames, as are Failed and Drops; with Lost they add up to Frames, but for those in flight
	Failed   uint64
	Drops    map[stream.Reason]uint64

	Aged uint64        // results that were handed to the sinks
	Age  time.Duration // of all of them together, from the receipt of the frame to that moment
	Last time.Time     // the newest of them; zero for none

	Totals
	Sinks map[string]sinks.Stats // by the names of their kinds
}

// Totals only rise.
type Totals struct {
	Frames       uint64 // read from the source
	Lost         uint64 // of them, for want of memory
	Restarts     uint64 // of the source
	ResultsLost  uint64 // that no sink was given, because writing took too long
	WatchersLost uint64 // lines that watchers were too slow for
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
	s.Totals = f.totals() // behind the endings: no more frames have ended than were read
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Paused = f.now.Paused
	s.Sinks = map[string]sinks.Stats{}
	for _, k := range f.sinks {
		s.Sinks[k.name] = k.Stats()
	}
	return s
}

// countDelivered counts a result that is handed to the sinks.
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
