//go:build !nometrics

package tracing

import (
	"fmt"
	"strings"
)

// Markdown returns docs/metrics.md: every metric family with its type, unit, labels and
// meaning.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Metrics
<!-- Written by go generate ./deploy/generate from tracing/families.go. -->
Prometheus reads them at ` + "`/metrics`" + ` of the address ` + "`http`" + ` (settings ` + "`metrics.path`, `metrics.address`" + `). [dashboards.md](dashboards.md) has dashboards and alerts of them.

- The names begin with ` + "`millrace_`" + `, except those of HTTP requests, of the Go runtime (` + "`go_`" + `) and of the process (` + "`process_`" + `), which have the names that other
  programs use too. ` + "`go_gc_`" + ` and ` + "`go_sched_`" + ` describe the garbage collector and the scheduler ([runtime/metrics](https://pkg.go.dev/runtime/metrics)).
- A histogram has classic buckets, which every scraper gets, and native ones, which grow by a tenth, for a scraper that asks for the protobuf format: Prometheus 2.40 or later with
  ` + "`--enable-feature=native-histograms`" + `. Scrapers that ask for OpenMetrics or protobuf also get exemplars: the ` + "`trace_id`" + ` of a frame whose trace is kept.
- The series of a model's version end when it is unloaded, and those of a server stream when it is deleted. No label has a value that clients can invent.
- ` + "`metrics.streams`" + ` (500) server streams have series of their own; those of the others are added up in series without the label ` + "`stream`" + `.
- A program built with the tag ` + "`nometrics`" + ` has none: ` + "`/metrics`" + ` answers 404, and the settings of the section ` + "`metrics`" + ` are refused.
`)
	for _, s := range families {
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		table(&b, s.families...)
	}
	b.WriteString("\n## HTTP requests\nTurned off by `metrics.requests: false`; the buckets of the durations are `metrics.buckets`. Requests for health and metrics are not counted.\n\n")
	duration, in, out := requestFamilies("http", DefaultRequestBuckets)
	table(&b, duration, in, out)
	return b.String()
}

func table(b *strings.Builder, families ...family) {
	b.WriteString("| name | type | unit | labels | |\n|---|---|---|---|---|\n")
	for _, f := range families {
		var labels []string
		for _, l := range f.labels {
			labels = append(labels, fmt.Sprintf("`%s`: %s", l[0], l[1]))
		}
		help := f.help
		if f.kind == histogram {
			help += " Buckets: " + strings.Trim(strings.ReplaceAll(fmt.Sprint(f.buckets), " ", ", "), "[]") + "."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.name, f.kind, f.unit, strings.Join(labels, "; "), help)
	}
}
