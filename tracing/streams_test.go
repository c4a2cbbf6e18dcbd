//go:build !nometrics

package tracing

import (
	"testing"
	"time"

	"millrace/ingest/history"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/stream"
)

func TestSeriesOfServerStreams(t *testing.T) {
	st := streams.Stats{Panics: 1, History: &history.Stats{Written: 16, Lost: 17, Waiting: 18}}
	st.Streams = []streams.StreamStats{{
		Events: map[streams.EventKind]uint64{{Rule: "line", Type: "cross", Class: "person"}: 19},
		Zones:  []streams.ZoneStats{{Model: "faces", Rule: "yard", Now: 20}},
		Name:   "door", State: sources.Waiting, Paused: true, Watchers: 2,
		Models: []streams.ModelStats{
			{Model: "faces", Answered: 70, Failed: 3, Drops: map[stream.Reason]uint64{stream.Stale: 4,
				stream.RateLimit: 5}, Aged: 70, Age: 7 * time.Second, Last: time.UnixMilli(1_795_000_000_250)},
			{Model: "motion", Answered: 80, Aged: 60, Age: time.Second},
		},
		Totals: streams.Totals{Frames: 90, Lost: 8, Skipped: 22, Restarts: 6, ResultsLost: 9, WatchersLost: 10},
		Sinks: map[string]sinks.Stats{"file": {Lost: 11}, "webhook": {Sent: 12, Retries: 13, Lost: 14, Waiting: 21},
			"socket": {Sent: 15}},
	}, {Name: "yard", ID: 1, State: sources.Connecting, Models: []streams.ModelStats{{Model: "faces"}}}}
	r := &rig{Metrics: New(Options{Streams: func() streams.Stats { return st }})}
	all := r.gather(t)
	for _, c := range []struct {
		v      float64
		name   string
		labels []string
	}{
		{1, "state", []string{"state", "waiting"}},
		{0, "state", []string{"state", "running"}},
		{1, "paused", nil},
		{90, "read_frames_total", nil},
		{70, "frames_total", []string{"outcome", "result", "model", "faces"}},
		{9, "frames_total", []string{"outcome", "drop", "model", "faces"}},
		{3, "frames_total", []string{"outcome", "error", "model", "faces"}},
		{80, "frames_total", []string{"outcome", "result", "model", "motion"}},
		{0, "frames_total", []string{"outcome", "drop", "model", "motion"}},
		{4, "dropped_frames_total", []string{"reason", "stale", "model", "faces"}},
		{0, "dropped_frames_total", []string{"reason", "stale", "model", "motion"}},
		{6, "restarts_total", nil},
		{22, "skipped_pictures_total", nil},
		{8, "lost_total", []string{"at", "memory"}},
		{9, "lost_total", []string{"at", "sinks"}},
		{10, "lost_total", []string{"at", "watchers"}},
		{11, "lost_total", []string{"at", "file"}},
		{14, "lost_total", []string{"at", "webhook"}},
		{12, "sink_results_total", []string{"sink", "webhook"}},
		{13, "sink_retries_total", []string{"sink", "webhook"}},
		{21, "sink_waiting", []string{"sink", "webhook"}},
		{15, "sink_results_total", []string{"sink", "socket"}},
		{70, "delivered_results_total", []string{"model", "faces"}},
		{7, "delivered_age_seconds_total", []string{"model", "faces"}},
		{60, "delivered_results_total", []string{"model", "motion"}},
		{1, "delivered_age_seconds_total", []string{"model", "motion"}},
		{2, "watchers", nil},
		{1_795_000_000.25, "last_result_timestamp_seconds", []string{"model", "faces"}},
	} {
		want(t, all, c.v, "millrace_stream_"+c.name, append(c.labels, "stream", "door")...)
	}
	want(t, all, 1, "millrace_stream_panics_total")
	want(t, all, 16, "millrace_history_events_total", "outcome", "written")
	want(t, all, 17, "millrace_history_events_total", "outcome", "lost")
	want(t, all, 18, "millrace_history_events_waiting")
	want(t, all, 19, "millrace_events_total", "stream", "door", "rule", "line", "type", "cross", "class", "person")
	want(t, all, 20, "millrace_zone_occupancy", "stream", "door", "model", "faces", "rule", "yard")
	want(t, all, 1, "millrace_stream_state", "stream", "yard", "state", "connecting")
	for _, of := range [][]string{{"stream", "yard", "model", "faces"}, {"stream", "door", "model", "motion"}} {
		if _, ok := value(all, "millrace_stream_last_result_timestamp_seconds", of...); ok {
			t.Errorf("%v has the time of a newest result without having one", of)
		}
	}
	want(t, all, 1, "millrace_server_streams", "state", "waiting")
	want(t, all, 0, "millrace_server_streams", "state", "running")
	st.Streams = st.Streams[:1]
	if _, ok := value(r.gather(t), "millrace_stream_state", "stream", "yard"); ok {
		t.Error("a removed stream has series")
	}
}

// Streams beyond the bound are summed up in series without the label, so that a scrape has a bounded size.
func TestServerStreamsBeyondTheBound(t *testing.T) {
	one := func(name string, frames uint64) streams.StreamStats {
		return streams.StreamStats{
			Name: name, ID: uint64(name[0]), State: sources.Running, Watchers: 1,
			Events:   map[streams.EventKind]uint64{{Rule: name, Type: "cross", Class: "0"}: 1},
			Answered: frames, Drops: map[stream.Reason]uint64{stream.Stale: 1}, Aged: 1, Age: time.Second,
			Models: []streams.ModelStats{{Model: "m", Answered: frames,
				Drops: map[stream.Reason]uint64{stream.Stale: 1}, Aged: 1, Age: time.Second, Last: time.UnixMilli(1)}},
			Totals: streams.Totals{Frames: frames + 1}, Sinks: map[string]sinks.Stats{"file": {Sent: 5}},
		}
	}
	st := streams.Stats{Streams: []streams.StreamStats{one("a", 1), one("b", 20), one("c", 300)}}
	none := &rig{Metrics: New(Options{StreamSeries: new(0), Streams: func() streams.Stats { return st }})}
	sums := none.gather(t)
	want(t, sums, 321, "millrace_stream_frames_total", "stream", "", "model", "", "outcome", "result")
	if _, ok := value(sums, "millrace_stream_frames_total", "stream", "a", "model", "m", "outcome", "result"); ok {
		t.Error("with a bound of 0 a stream has series")
	}
	r := &rig{Metrics: New(Options{StreamSeries: new(1), Streams: func() streams.Stats { return st }})}
	all := r.gather(t)
	want(t, all, 1, "millrace_stream_frames_total", "stream", "a", "model", "m", "outcome", "result")
	want(t, all, 320, "millrace_stream_frames_total", "stream", "", "model", "", "outcome", "result")
	want(t, all, 322, "millrace_stream_read_frames_total", "stream", "")
	want(t, all, 2, "millrace_stream_dropped_frames_total", "stream", "", "model", "", "reason", "stale")
	want(t, all, 10, "millrace_stream_sink_results_total", "stream", "", "sink", "file")
	want(t, all, 2, "millrace_stream_delivered_age_seconds_total", "stream", "", "model", "")
	want(t, all, 2, "millrace_events_total", "stream", "", "rule", "", "type", "cross", "class", "")
	want(t, all, 3, "millrace_server_streams", "state", "running")
	for _, name := range []string{"millrace_stream_state", "millrace_stream_paused",
		"millrace_stream_last_result_timestamp_seconds"} {
		for _, m := range all[name].GetMetric() {
			for _, l := range m.Label {
				if l.GetName() == "stream" && l.GetValue() == "" {
					t.Errorf("%s has a series for several streams together", name)
				}
			}
		}
	}
	if _, ok := value(all, "millrace_stream_frames_total", "stream", "b", "model", "m", "outcome", "result"); ok {
		t.Error("a stream beyond the bound has series")
	}
}

// A stream counts once for each of its models, so that the bound limits the size of a scrape.
func TestModelsCountForTheBound(t *testing.T) {
	named := func(name string, models ...string) streams.StreamStats {
		s := streams.StreamStats{Name: name, ID: uint64(name[0]), State: sources.Running, Answered: uint64(len(models))}
		for _, m := range models {
			s.Models = append(s.Models, streams.ModelStats{Model: m, Answered: 1})
		}
		return s
	}
	st := streams.Stats{Streams: []streams.StreamStats{named("a", "m"), named("b", "m", "n", "o"),
		named("c", "m", "n"), named("d", "m")}}
	r := &rig{Metrics: New(Options{StreamSeries: new(3), Streams: func() streams.Stats { return st }})}
	for _, others := range []float64{4, 5} {
		all := r.gather(t)
		for _, of := range [][2]string{{"a", "m"}, {"c", "m"}, {"c", "n"}} {
			want(t, all, 1, "millrace_stream_frames_total", "stream", of[0], "model", of[1], "outcome", "result")
		}
		want(t, all, others, "millrace_stream_frames_total", "stream", "", "model", "", "outcome", "result")
		st.Streams = append([]streams.StreamStats{named("_", "m")}, st.Streams...) // no room for its model
	}
}

// Counters never fall when streams with and without own series are removed, and a stream is added again under its
// name.
func TestSumOfServerStreamsNeverFalls(t *testing.T) {
	one := func(name string, results uint64) streams.StreamStats {
		return streams.StreamStats{Name: name, ID: uint64(name[0]), State: sources.Running, Watchers: 1,
			Answered: results, Models: []streams.ModelStats{{Model: "m", Answered: results}},
			Totals: streams.Totals{Frames: results}}
	}
	changed := func(name string, results uint64) streams.StreamStats {
		s := one(name, results)
		s.Models = []streams.ModelStats{{Model: "other"}} // the results came from a former model of the stream
		return s
	}
	again := func(name string, results uint64) streams.StreamStats {
		s := one(name, results)
		s.ID += 1000
		return s
	}
	var st streams.Stats
	r := &rig{Metrics: New(Options{StreamSeries: new(1), Streams: func() streams.Stats { return st }})}
	for _, step := range []struct {
		now  []streams.StreamStats
		own  string
		sum  float64
		seen float64 // watchers of the sum
	}{
		{[]streams.StreamStats{one("b", 1)}, "b", -1, -1},
		{[]streams.StreamStats{one("a", 5), one("b", 2), one("c", 10)}, "b", 15, 2},
		{[]streams.StreamStats{one("a", 6), one("c", 11)}, "", 17, 2},
		{[]streams.StreamStats{one("a", 6), one("c", 11), one("d", 3)}, "d", 17, 2},
		{[]streams.StreamStats{one("c", 12), one("d", 4)}, "d", 18, 1},
		{[]streams.StreamStats{changed("c", 12), one("d", 4)}, "d", 18, 1},
		{[]streams.StreamStats{again("c", 2), one("d", 4)}, "d", 20, 1},
		{[]streams.StreamStats{one("d", 4), one("e", 7)}, "d", 27, 1},
		// has read more than the earlier stream of the same name
		{[]streams.StreamStats{one("d", 4), again("e", 9)}, "d", 36, 1},
		{nil, "", 36, 0},
	} {
		st.Streams = step.now
		all := r.gather(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			if _, ok := value(all, "millrace_stream_read_frames_total", "stream", name); ok != (name == step.own) {
				t.Errorf("%s has a series of its own: %v, want only %q", name, ok, step.own)
			}
		}
		for _, of := range []struct {
			want   float64
			name   string
			labels []string
		}{
			{step.sum, "millrace_stream_read_frames_total", nil}, {step.sum, "millrace_stream_frames_total",
				[]string{"model", "", "outcome", "result"}}, {step.seen, "millrace_stream_watchers", nil},
		} {
			sum, ok := value(all, of.name, append(of.labels, "stream", "")...)
			if ok != (of.want >= 0) || ok && sum != of.want {
				t.Errorf("%s of the others is %v (there: %v), want %v", of.name, sum, ok, of.want)
			}
		}
	}
}
