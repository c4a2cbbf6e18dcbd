//go:build !nometrics

package tracing

import (
	"fmt"
	"strings"
)

// Markdown returns docs/metrics.md: every metric family with type, unit, labels and meaning. names are the names of
// requests' metrics in other systems.
func Markdown(names ...*RequestNames) string {
	var b strings.Builder
	b.WriteString(`# Metrics
<!-- Written by go generate -C tools ./dashboards from tracing/families.go. -->
Prometheus reads them at ` + "`/metrics`" + ` of the address ` + "`http`" + ` (settings ` +
		"`metrics.path`, `metrics.address`" + `). [dashboards.md](dashboards.md) has dashboards and alerts of them.

- The names begin with ` + "`millrace_`" + `, except those of HTTP requests, of the Go runtime (` + "`go_`" +
		`), of the process (` + "`process_`" + `) and for Triton's dashboards (` + "`nv_`" +
		`), which have the names that other
  programs use too. ` + "`go_gc_`" + ` and ` + "`go_sched_`" +
		` describe the garbage collector and the scheduler ([runtime/metrics](https://pkg.go.dev/runtime/metrics)).
- A histogram has classic buckets, which every scraper gets, and native ones, which grow by a tenth, for a scraper that asks for the protobuf format: Prometheus 2.40 or later with
  ` + "`--enable-feature=native-histograms`" +
		`. Scrapers that ask for OpenMetrics or protobuf also get exemplars: the ` + "`trace_id`" +
		` of a frame whose trace is kept.
- The counters of a model's version stay for five minutes after it was unloaded (those of the last 32 that were), so that its last frames are seen, and continue when it is
  loaded again in that time. The series of a server stream end when it is deleted. No label has a value that clients can invent.
- ` + "`metrics.streams`" + ` (500) server streams have series of their own; those of the others are added up in ` +
		`series without the labels ` + "`stream`" + ` and ` + "`model`" + `.
  A stream of several models counts as so many: of streams with 16 models, 31 have their own. The others raise none of the alerts MillraceSourceDown,
  MillraceStreamSilent and MillraceStreamUnanswered, so that alerts of all streams need a setting as large as the number of their models together.
  A stream stays where it was when it was first read, and the counts of ended ones, and of models that streams no longer have, stay in the sum, so that no counter of frames falls.
- Series with the labels ` + "`stream` and `model`" +
		` are those of the models that the stream has now. When a model is removed from the stream, its series end; when a model is added, or is replaced by another
  version or with another ` + "`policy`" + `, its series begin at 0, also under the same name. A swap or a load of ` +
		`the model itself changes nothing here. Series with the label ` + "`stream`" +
		` alone go on when the models or the source change, those of a sink
  begin at 0 when its settings change, and all series of a stream do when its video had ended before the change. ` + "`rate` and `increase`" + ` of Prometheus take the beginning at 0 for what it is.
- A program built with the tag ` + "`nometrics`" + ` has none: ` + "`/metrics`" +
		` answers 404, and the settings of the section ` + "`metrics`" + ` are refused.
`)
	b.WriteString(addUp)
	for _, s := range families {
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		table(&b, s.families...)
	}
	b.WriteString("\n## HTTP requests\nTurned off by `metrics.requests: false`; the buckets of the durations are " +
		"`metrics.buckets`. Requests for health and metrics are not counted.\n\n")
	duration, in, out := requestFamilies("http", DefaultRequestBuckets, nil)
	table(&b, duration, in, out)
	for _, n := range names {
		fmt.Fprintf(&b, "\n### %s\n%s\n\n", n.Title, n.Intro)
		duration, in, out = requestFamilies("http", DefaultRequestBuckets, n)
		table(&b, duration, in, out, n.inProgramFamily(DefaultRequestBuckets))
	}
	fmt.Fprintf(&b, "\n## %s\nTurned on by `metrics.triton`, for dashboards and alerts that exist for Triton "+
		"Inference Server. They are computed at a scrape from what the statistics of the protocol "+
		"(`/v2/models/M/stats`) are made of, for every protocol. Those without a type are counters, whose names the "+
		"format OpenMetrics would change.\n\n", tritonFamilies.title)
	table(&b, tritonFamilies.families...)
	return b.String()
}

// addUp explains the counts of frames.
const addUp = `
## How frames add up
Each frame is counted when it is accepted and when it has its ending, once, as its client is told. So at every scrape, for each model and version:

    millrace_frames_accepted_total = millrace_frames_total{outcome="result"}
                                   + millrace_dropped_frames_total, over all reasons  (= millrace_frames_total{outcome="drop"})
                                   + millrace_frame_errors_total, over all codes      (= millrace_frames_total{outcome="error"})
                                   + millrace_frames_in_flight

- A frame that is refused before a stream accepts it, for want of memory, above the window, malformed or after the end of its stream, is told a drop or an error. It is
  counted as accepted and by this ending, and in addition in ` + "`millrace_refused_frames_total`" +
	`. One for a model that is not loaded or a stream that is not open has the
  model and version ` + "`\"\"`" + `.
- A one-shot request (REST, a native call) is told a drop as an error: ` + "`stale`" + ` as ` + "`timeout`" + `, ` +
	"`memory`" + ` as ` + "`overloaded`" + `, ` + "`closed`" + ` as ` + "`canceled`" + `.
- A result that cannot be sent as the client asked, such as not-a-number in JSON, is told as an error. It is counted as a result, and in
  ` + "`millrace_unsendable_results_total`" + ` by the code of that error: results told = results - unsendable ones.
- Parts of a result are not counted, and neither is an ending that is sent again to a client that resumes its session. Frames that the gate answers are results
  (` + "`millrace_skipped_frames_total`" + ` are those among them), and so is a frame that completes no window.
- A frame that ends after the client has left is counted by the ending, although no client gets the ending. A frame that did not arrive completely is not counted.
- A frame belongs to the version that accepted it, also when a swap lets the next version answer it.
- What is not a frame is not counted here: a handshake or a request that is refused by its Host, Origin or credentials, a call at ` + "`/models/infer`" + ` that cannot be carried
  out, a body whose announced length is above ` + "`limits.max_body`" + `, a message that ends its connection.
`

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
