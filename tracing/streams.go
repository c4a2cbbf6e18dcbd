package tracing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/stream"
)

// Series of server streams are labelled with the stream's name: limits.max_streams
// bounds how many there are, and the series of a removed stream are removed.
var (
	streamState    = desc("millrace_stream_state", "1 for the current state of a server stream, 0 for the others.", "stream", "state")
	streamPaused   = desc("millrace_stream_paused", "1 while the server stream is paused.", "stream")
	streamRead     = desc("millrace_stream_read_frames_total", "Frames read from the stream's source.", "stream")
	streamFrames   = desc("millrace_stream_frames_total", "Frames of the stream that have ended.", "stream", "outcome")
	streamDropped  = desc("millrace_stream_dropped_frames_total", "Frames of the stream dropped by policy.", "stream", "reason")
	streamRestarts = desc("millrace_stream_restarts_total", "Times that the stream's source was reopened.", "stream")
	streamLost     = desc("millrace_stream_lost_total", "Frames lost because memory was exhausted (at=memory), and results not delivered to any sink (sinks), to watchers, or to the named sink.", "stream", "at")
	streamWatchers = desc("millrace_stream_watchers", "Clients that receive the stream's results or pictures.", "stream")
	streamAge      = desc("millrace_stream_result_age_seconds", "Time from the receipt of a frame to the delivery of its result to the sinks.", "stream")
	streamLast     = desc("millrace_stream_last_result_timestamp_seconds", "Time at which the stream's newest result was delivered to the sinks.", "stream")
	streamPanics   = desc("millrace_stream_panics_total", "Goroutines of server streams that panicked.")
)

// sinkDescs describe the metrics of one kind of sink.
type sinkDescs struct{ results, retries *prometheus.Desc }

// describeSinks describes the metrics of all kinds of sinks, by their names.
func describeSinks() map[string]sinkDescs {
	all := map[string]sinkDescs{}
	for _, k := range sinks.Kinds() {
		all[k.Name] = sinkDescs{
			desc("millrace_stream_"+k.Name+"_results_total", "Results that the stream's "+k.Name+" has accepted.", "stream"),
			desc("millrace_stream_"+k.Name+"_retries_total", "Deliveries to the stream's "+k.Name+" that were retried.", "stream"),
		}
	}
	return all
}

// streamCollector reads the state of server streams at each scrape.
type streamCollector struct {
	read  func() streams.Stats
	sinks map[string]sinkDescs
}

// Describe lists what Collect may send.
func (c streamCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		streamState, streamPaused, streamRead, streamFrames, streamDropped, streamRestarts, streamLost,
		streamWatchers, streamAge, streamLast, streamPanics,
	} {
		ch <- d
	}
	for _, d := range c.sinks {
		ch <- d.results
		ch <- d.retries
	}
}

// Collect reads the state.
func (c streamCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	st := c.read()
	is := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	counter(streamPanics, st.Panics)
	for _, s := range st.Streams {
		for _, state := range sources.States {
			gauge(streamState, is(s.State == state), s.Name, string(state))
		}
		gauge(streamPaused, is(s.Paused), s.Name)
		var dropped uint64
		for why, n := range s.Drops {
			dropped += n
			counter(streamDropped, n, s.Name, string(why))
		}
		counter(streamRead, s.Frames, s.Name)
		counter(streamFrames, s.Answered, s.Name, stream.Answered.String())
		counter(streamFrames, dropped, s.Name, stream.Dropped.String())
		counter(streamFrames, s.Failed, s.Name, stream.Failed.String())
		counter(streamRestarts, s.Restarts, s.Name)
		counter(streamLost, s.Lost, s.Name, "memory")
		counter(streamLost, s.ResultsLost, s.Name, "sinks")
		counter(streamLost, s.WatchersLost, s.Name, "watchers")
		for name, d := range c.sinks {
			st := s.Sinks[name]
			counter(streamLost, st.Lost, s.Name, name)
			counter(d.results, st.Sent, s.Name)
			counter(d.retries, st.Retries, s.Name)
		}
		gauge(streamWatchers, float64(s.Watchers), s.Name)
		ch <- prometheus.MustNewConstSummary(streamAge, s.Aged, s.Age.Seconds(), nil, s.Name)
		if !s.Last.IsZero() {
			gauge(streamLast, float64(s.Last.UnixMilli())/float64(time.Second/time.Millisecond), s.Name)
		}
	}
}
