//go:build !nometrics

package tracing

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/ingest"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/internal/child"
	"millrace/stream"
)

// collector reads the families at each scrape: families with a read function from the state, without work per frame,
// other families from the counts of hooks. A removed model or stream has no series.
type collector struct {
	o        Options
	m        *Metrics
	families []metricFamily
	descs    []*prometheus.Desc // of the families, in their order

	mu      sync.Mutex
	streams streamSeries
}

func newCollector(o Options, m *Metrics) *collector {
	c := &collector{o: o, m: m}
	for _, s := range families {
		c.families = append(c.families, s.families...)
	}
	if o.Triton {
		c.families = append(c.families, tritonFamilies.families...)
	}
	for _, f := range c.families {
		c.descs = append(c.descs, prometheus.NewDesc(f.name, f.text(), f.names(), nil))
	}
	return c
}

// Describe lists all metrics that Collect may send.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect reads the state.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	r := c.newScrape()
	for i := range c.families {
		collect(&c.families[i], r, c.descs[i], ch)
	}
}

func collect(f *metricFamily, r *scrape, d *prometheus.Desc, ch chan<- prometheus.Metric) {
	if f.kind == histogram {
		for _, s := range r.series {
			f.values(s, func(values *distribution, labels ...string) {
				ch <- sample{d, prometheus.MakeLabelPairs(d, append([]string{s.model, s.version}, labels...)), values}
			})
		}
		return
	}
	typ := prometheus.GaugeValue
	switch f.kind {
	case counter:
		typ = prometheus.CounterValue
	case untyped:
		typ = prometheus.UntypedValue
	}
	f.read(r, func(v float64, labels ...string) { ch <- prometheus.MustNewConstMetric(d, typ, v, labels...) })
}

func (c *collector) newScrape() *scrape {
	r := &scrape{version: c.o.Version, adapters: &ingest.Metrics{}, children: child.LiveChildren()}
	if c.o.Groups != nil {
		r.groups = c.o.Groups()
		c.m.removeUnlisted(r.groups)
	}
	r.series = c.m.sortedSeries()
	if c.o.Memory != nil {
		m := c.o.Memory()
		r.memory = &m
	}
	if c.o.Adapters != nil {
		*r.adapters = c.o.Adapters()
	}
	if c.o.Traces != nil {
		st := c.o.Traces()
		r.traces = &st
	}
	if c.o.Accepted != nil {
		r.accepted = c.o.Accepted()
	}
	if c.o.Audit != nil {
		r.audit.lost, r.audit.on = c.o.Audit()
	}
	if c.o.Auth != nil {
		r.auth = c.o.Auth()
	}
	if c.o.ModelSources != nil {
		r.sources = c.o.ModelSources()
	}
	if c.o.Uses != nil {
		r.uses = c.o.Uses()
	}
	if c.o.Streams != nil {
		r.streams = c.readStreams()
	}
	return r
}

// readStreams reads the server streams: streams with series of their own, and the sum of all other streams.
func (c *collector) readStreams() streamsScrape {
	c.mu.Lock() // before reading: of two scrapes, the later must have the later counts
	defer c.mu.Unlock()
	st := c.o.Streams()
	out := streamsScrape{on: true, panics: st.Panics, history: st.History, clips: st.Clips,
		states: map[sources.State]int{}}
	for i := range st.Streams {
		out.states[st.Streams[i].State]++
	}
	out.listed = c.streams.read(st.Streams, *c.o.StreamSeries)
	return out
}

// streamSeries decides which server streams have series of their own. A stream without own series at first never gets
// any, and ended streams stay in the sum: so no counter falls.
type streamSeries struct {
	own   map[uint64]bool                // by ID
	rest  map[uint64]streams.StreamStats // streams in the sum, as last read
	ended streams.StreamStats            // ended streams of the sum
}

// read returns the streams with series of their own, with at most most models, and the sum of the other streams, if
// any, without a name.
func (s *streamSeries) read(list []streams.StreamStats, most int) []streams.StreamStats {
	own, rest := map[uint64]bool{}, map[uint64]streams.StreamStats{}
	models := 0 // of the streams with series of their own
	for i := range list {
		if s.own[list[i].ID] {
			own[list[i].ID] = true
			models += len(list[i].Models)
		}
	}
	sum := newSum()
	var out []streams.StreamStats
	for i := range list {
		now := &list[i]
		_, summed := s.rest[now.ID]
		if n := models + len(now.Models); !own[now.ID] && !summed && n <= most {
			own[now.ID], models = true, n
		}
		if own[now.ID] {
			out = append(out, *now)
			continue
		}
		rest[now.ID] = *now
		addStream(&sum, now)
	}
	for id, last := range s.rest {
		if _, still := rest[id]; !still {
			s.end(&last)
		}
	}
	s.own, s.rest = own, rest
	addStream(&sum, &s.ended)
	if len(rest) > 0 || s.ended.Models != nil {
		out = append(out, sum)
	}
	return out
}

// end adds an ended stream to the sum.
func (s *streamSeries) end(last *streams.StreamStats) {
	if s.ended.Models == nil {
		s.ended = newSum()
	}
	last.Watchers, last.Encoders = 0, 0
	addStream(&s.ended, last)
	for kind, st := range s.ended.Sinks {
		st.Waiting = 0 // what waits on disk is counted again at the next start of the stream
		s.ended.Sinks[kind] = st
	}
}

// newSum returns a sum of streams with one nameless model for the models of all streams.
func newSum() streams.StreamStats {
	return streams.StreamStats{Models: make([]streams.ModelStats, 1), Drops: map[stream.Reason]uint64{},
		Sinks: map[string]sinks.Stats{}, Events: map[streams.EventKind]uint64{}}
}

func addStream(to, s *streams.StreamStats) {
	to.Answered += s.Answered // includes the counts of the stream's former models
	to.Failed += s.Failed
	for why, n := range s.Drops {
		to.Drops[why] += n
	}
	to.Aged += s.Aged
	to.Age += s.Age
	to.Models[0] = streams.ModelStats{Answered: to.Answered, Failed: to.Failed, Drops: to.Drops, Aged: to.Aged,
		Age: to.Age}
	for kind, n := range s.Events {
		to.Events[streams.EventKind{Type: kind.Type}] += n
	}
	to.Watchers += s.Watchers
	to.Encoders += s.Encoders
	to.Frames += s.Frames
	to.Lost += s.Lost
	to.Skipped += s.Skipped
	to.Restarts += s.Restarts
	to.ResultsLost += s.ResultsLost
	to.WatchersLost += s.WatchersLost
	to.VideoLost += s.VideoLost
	to.Encoded += s.Encoded
	to.EncoderFails += s.EncoderFails
	for kind, st := range s.Sinks {
		sum := to.Sinks[kind]
		sum.Sent += st.Sent
		sum.Retries += st.Retries
		sum.Lost += st.Lost
		sum.Waiting += st.Waiting
		to.Sinks[kind] = sum
	}
}
