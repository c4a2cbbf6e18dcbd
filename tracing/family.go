//go:build !nometrics

package tracing

import (
	"slices"
	"strings"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/clips"
	"millrace/ingest/history"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// section is a group of families under one heading in docs/metrics.md.
type section struct {
	title    string
	families []metricFamily
}

// metricFamily describes a metric family.
type metricFamily struct {
	kind kind
	name string
	help string // for users, in Markdown
	labels
	read func(*scrape, put) // samples at a scrape, except for a histogram
	*observed
}

// observed has the values of a histogram. Histograms of requests have buckets only.
type observed struct {
	buckets []float64 // the classic buckets
	values  func(*series, putValues)
	// nanoseconds: the values are counted in nanoseconds, and shown in seconds.
	nanoseconds bool
}

// putValues adds a sample with the values of its family's labels after model and version.
type putValues func(values *distribution, labels ...string)

// kind is the type of a family.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
	untyped   kind = "untyped"
)

// labels are the labels of a family, each with a description of the values; "" = described by shared, or by the name.
type labels [][2]string

// and returns the labels with one more label.
func (l labels) and(name, values string) labels {
	return append(slices.Clone(l), [2]string{name, values})
}

func (l labels) names() []string {
	var out []string
	for _, label := range l {
		out = append(out, label[0])
	}
	return out
}

// words lists the values of a label.
func words[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// put adds a sample with the values of its family's labels, in order.
type put func(v float64, labels ...string)

// scrape is the state of the server at one scrape.
type scrape struct {
	version  string
	groups   []workers.GroupStats // by name and version
	memory   *buf.Stats
	adapters *ingest.Metrics
	series   []*series
	streams  streamsScrape
	accepted map[string]accept.Stats
	audit    struct {
		lost uint64
		on   bool
	}
	auth     map[string]uint64
	sources  map[string]uint64 // lookups of models with an address, by outcome
	uses     []access.Use
	traces   *TraceStats
	children int
}

// loaded returns the models that are not unloaded.
func (r *scrape) loaded() []workers.GroupStats {
	return slices.DeleteFunc(slices.Clone(r.groups), func(g workers.GroupStats) bool {
		return g.State == workers.StateUnloaded
	})
}

// streamsScrape has the server streams with series of their own, and a nameless sum of all other streams.
type streamsScrape struct {
	on     bool
	listed []streams.StreamStats
	states map[sources.State]int // of all
	panics uint64

	history *history.Stats // nil = off
	clips   clips.Stats
}

// byPrincipal is the label for usage by clients.
var byPrincipal = [2]string{"principal", ""}

// ofUses reads how much of a quota clients have used, times unit.
func ofUses(q stream.Quota, unit float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.uses {
			put(float64(r.uses[i].Used[q])*unit, r.uses[i].Name)
		}
	}
}

func each[T int | uint64](values map[string]T, put put) {
	for label, n := range values {
		put(float64(n), label)
	}
}

// ofLoaded reads one value of each model that is not unloaded.
func ofLoaded(value func(*workers.GroupStats) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.groups {
			if g := &r.groups[i]; g.State != workers.StateUnloaded {
				put(value(g), g.Model.Name, g.Model.Version)
			}
		}
	}
}

// ofGroup reads one value of each model, including recently unloaded models.
func ofGroup(value func(*workers.GroupStats) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.groups {
			g := &r.groups[i]
			put(value(g), g.Model.Name, g.Model.Version)
		}
	}
}

// ofProcesses reads the child processes of each model that has had child processes.
func ofProcesses(read func(*workers.ProcessStats, func(v float64, labels ...string))) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.groups {
			g := &r.groups[i]
			if g.Processes.Started == 0 {
				continue
			}
			read(&g.Processes, func(v float64, labels ...string) {
				put(v, append([]string{g.Model.Name, g.Model.Version}, labels...)...)
			})
		}
	}
}

// ofContainers reads one value of each model that has had containers.
func ofContainers(read func(*workers.ProcessStats) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.groups {
			if g := &r.groups[i]; g.Processes.ContainersStarted > 0 {
				put(read(&g.Processes), g.Model.Name, g.Model.Version)
			}
		}
	}
}

// ofSeries reads one value counted by the hooks of each model.
func ofSeries(value func(*series) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		for _, s := range r.series {
			put(value(s), s.model, s.version)
		}
	}
}

// ofFrames reads the counts of the frames of each model, and of frames without a model, whose model and version are
// "". read puts samples without the labels model and version.
func ofFrames(read func(*stream.Totals, func(v float64, labels ...string))) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.groups {
			g := &r.groups[i]
			read(&g.Frames, func(v float64, labels ...string) {
				put(v, append([]string{g.Model.Name, g.Model.Version}, labels...)...)
			})
		}
		read(&r.adapters.NoModel, func(v float64, labels ...string) { put(v, append([]string{"", ""}, labels...)...) })
	}
}

func eachOf[K ~string](values map[K]uint64, put func(float64, ...string)) {
	for label, n := range values {
		put(float64(n), string(label))
	}
}

func total[K ~string](values map[K]uint64) (all uint64) {
	for _, n := range values {
		all += n
	}
	return all
}

// perStream reads one value of each server stream.
func perStream(value func(*streams.StreamStats) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.streams.listed {
			put(value(&r.streams.listed[i]), r.streams.listed[i].Name)
		}
	}
}

// perStreamModel reads values of each model of each server stream with series of its own, and of the sum of the other
// streams.
func perStreamModel(values func(m *streams.ModelStats, put put)) func(*scrape, put) {
	return func(r *scrape, to put) {
		for i := range r.streams.listed {
			s := &r.streams.listed[i]
			for j := range s.Models {
				m := &s.Models[j]
				values(m, func(v float64, labels ...string) { to(v, append([]string{s.Name, m.Model}, labels...)...) })
			}
		}
	}
}

// ofMemory reads one value if the server has a memory budget.
func ofMemory(value func(*scrape) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		if r.memory != nil {
			put(value(r))
		}
	}
}

// ofTraces reads values if the server has a tracer.
func ofTraces(read func(*TraceStats, put)) func(*scrape, put) {
	return func(r *scrape, put put) {
		if r.traces != nil {
			read(r.traces, put)
		}
	}
}

// ofAdapters reads one value for all adapters together.
func ofAdapters(value func(*scrape) float64) func(*scrape, put) {
	return func(r *scrape, put put) { put(value(r)) }
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// text returns the help without Markdown.
func (f *metricFamily) text() string { return strings.ReplaceAll(f.help, "`", "") }

// ofTasks reads one value of a server that has tasks.
func ofTasks(value func(*ingest.Metrics) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		if r.adapters.Tasks != nil {
			put(value(r.adapters))
		}
	}
}
