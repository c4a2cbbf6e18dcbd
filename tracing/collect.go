//go:build !nometrics

package tracing

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/ingest"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/internal/child"
	"millrace/stream"
)

// collector reads the families that have a read function at each scrape: this adds no
// work per frame, and what is gone has no series. The others are those of Metrics.counted.
type collector struct {
	o     Options
	m     *Metrics
	descs []*prometheus.Desc // of the families, in their order; nil: hooks count them
}

func newCollector(o Options, m *Metrics) *collector {
	c := &collector{o: o, m: m}
	for i := range families {
		for k := range families[i].families {
			f := &families[i].families[k]
			var d *prometheus.Desc
			if f.read != nil {
				d = prometheus.NewDesc(f.name, f.text(), f.names(), nil)
			}
			c.descs = append(c.descs, d)
		}
	}
	return c
}

// Describe lists what Collect may send.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		if d != nil {
			ch <- d
		}
	}
	for _, v := range c.m.counted() {
		v.Describe(ch)
	}
}

// Collect reads the state.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	r := c.reading()
	n := 0
	for i := range families {
		for k := range families[i].families {
			f, d := &families[i].families[k], c.descs[n]
			n++
			if d == nil {
				continue
			}
			typ := prometheus.GaugeValue
			if f.kind == counter {
				typ = prometheus.CounterValue
			}
			f.read(r, func(v float64, labels ...string) { ch <- prometheus.MustNewConstMetric(d, typ, v, labels...) })
		}
	}
	for _, v := range c.m.counted() { // after reading, which removes series
		v.Collect(ch)
	}
}

func (c *collector) reading() *reading {
	r := &reading{version: c.o.Version, adapters: &ingest.Metrics{}, children: child.Live()}
	if c.o.Groups != nil {
		r.groups = c.o.Groups()
		c.m.removeUnlisted(r.groups)
	}
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
	if c.o.Streams != nil {
		r.streams = c.o.readStreams()
	}
	return r
}

// readStreams adds up the server streams beyond the bound on those with series of their
// own.
func (o *Options) readStreams() streamsReading {
	st := o.Streams()
	out := streamsReading{on: true, panics: st.Panics, listed: st.Streams, states: map[sources.State]int{}}
	for i := range st.Streams {
		out.states[st.Streams[i].State]++
	}
	most := *o.StreamSeries
	if len(st.Streams) <= most {
		return out
	}
	rest := streams.StreamStats{Drops: map[stream.Reason]uint64{}, Sinks: map[string]sinks.Stats{}}
	for i := range st.Streams[most:] {
		addStream(&rest, &st.Streams[most+i])
	}
	out.listed = append(st.Streams[:most:most], rest)
	return out
}

func addStream(to, s *streams.StreamStats) {
	to.Watchers += s.Watchers
	to.Answered += s.Answered
	to.Failed += s.Failed
	for why, n := range s.Drops {
		to.Drops[why] += n
	}
	to.Aged += s.Aged
	to.Age += s.Age
	to.Frames += s.Frames
	to.Lost += s.Lost
	to.Restarts += s.Restarts
	to.ResultsLost += s.ResultsLost
	to.WatchersLost += s.WatchersLost
	for kind, st := range s.Sinks {
		sum := to.Sinks[kind]
		sum.Sent += st.Sent
		sum.Retries += st.Retries
		sum.Lost += st.Lost
		to.Sinks[kind] = sum
	}
}
