//go:build !nometrics

package tracing

import (
	"fmt"
	"slices"
	"strings"
)

// Markdown returns docs/metrics.md: every metric family with type, labels and meaning. names are the names of requests'
// metrics in other systems.
func Markdown(names ...*RequestNames) string {
	var b strings.Builder
	b.WriteString(quoted(intro))
	b.WriteString("\n| label | values |\n|---|---|\n")
	for _, l := range shared {
		fmt.Fprintf(&b, "| `%s` | %s |\n", l[0], l[1])
	}
	b.WriteString(quoted(addUp))
	for _, s := range families {
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		list(&b, s.families...)
	}
	b.WriteString("\n## HTTP requests\nTurned off by `metrics.requests: false`. Requests for health and metrics are " +
		"not counted.\n\n")
	duration, in, out := requestFamilies("http", DefaultRequestBuckets, nil)
	list(&b, duration, in, out)
	for _, n := range names {
		fmt.Fprintf(&b, "\n### %s\n%s\n\n", n.Title, n.Intro)
		list(&b, n.inProgramFamily(DefaultRequestBuckets))
	}
	fmt.Fprintf(&b, "\n## %s\nTurned on by `metrics.triton`. The values are those of `/v2/models/M/stats`; durations "+
		"are sums in microseconds. All are untyped counters, except for pending_request_count, a gauge.\n\n",
		tritonFamilies.title)
	list(&b, tritonFamilies.families...)
	return b.String()
}

// quoted returns a text with backquotes for tildes.
func quoted(text string) string { return strings.ReplaceAll(text, "~", "`") }

// intro begins the page.
const intro = `# Metrics
<!-- Written by go generate -C tools ./dashboards from tracing/families.go. -->
Prometheus reads the metrics at ~/metrics~ of the address ~http~ (settings ~metrics.path~, ~metrics.address~).
[dashboards.md](dashboards.md) has dashboards and alerts.

- A line has the name, further labels, and the help. Names that end with ~_total~ are counters, names without a mark
  gauges. The metrics of the Go runtime (~go_~, [runtime/metrics](https://pkg.go.dev/runtime/metrics)) and of the
  process (~process_~) are left out.
- Histograms have classic buckets (for HTTP requests ~metrics.buckets~) and, over protobuf, native buckets. Over
  OpenMetrics and protobuf, exemplars have the ~trace_id~ of a frame with a kept trace.
- The counters of an unloaded version stay for five minutes (of the last 32 unloaded versions), and continue when the
  version is loaded again.
- ~metrics.streams~ (500) server streams have series of their own, where a stream counts once for each of its models.
  Further streams are added up without the labels ~stream~ and ~model~, and raise no alert.
- Changes of a running stream begin series of its changed models and sinks at 0.
- A program built with the tag ~nometrics~ has no metrics.
`

// addUp explains the counts of frames.
const addUp = `
## How frames add up
Each frame is counted when accepted and when ended. So at every scrape, for each model and version:

    millrace_frames_accepted_total = millrace_frames_total{outcome="result"}
                                   + millrace_dropped_frames_total, over all reasons  (= outcome="drop")
                                   + millrace_frame_errors_total, over all codes      (= outcome="error")
                                   + millrace_frames_in_flight

- A frame refused before a stream, such as a malformed frame, counts as accepted, as a drop or error, and in
  ~millrace_refused_frames_total~. Without a loaded model or an open stream, model and version are ~""~.
- A one-shot request counts as dropped, although the client gets an error: ~timeout~ for ~stale~, ~overloaded~ for
  ~memory~, ~canceled~ for ~closed~.
- A result that cannot be sent as asked, such as not-a-number in JSON, counts as a result, and in
  ~millrace_unsendable_results_total~.
- Not counted: parts of a result, endings sent again to a resumed session, incomplete frames, and requests refused by
  their Host, Origin, credentials or length.
- Frames answered by the gate, and frames that complete no window, are results.
`

// list writes a line for each family. The labels that all families have stand in front of the lines, and the type of a
// family is in its name, see intro.
func list(b *strings.Builder, families ...metricFamily) {
	common := slices.Clone(families[0].labels)
	for _, f := range families[1:] {
		common = slices.DeleteFunc(common, func(l [2]string) bool { return !slices.Contains(f.labels, l) })
	}
	if len(families) > 1 && len(common) > 0 {
		fmt.Fprintf(b, "Labels of all: %s.\n\n", joined(common))
	} else {
		common = nil
	}
	for _, f := range families {
		own := slices.DeleteFunc(slices.Clone(f.labels), func(l [2]string) bool { return slices.Contains(common, l) })
		name := "`" + f.name + "`"
		if f.kind == histogram {
			name += " (histogram)"
		}
		if len(own) > 0 {
			name += ", " + joined(own)
		}
		fmt.Fprintf(b, "- %s: %s\n", name, f.help)
	}
}

// joined returns labels with their values.
func joined(of labels) string {
	var out []string
	for _, l := range of {
		label := "`" + l[0] + "`"
		if l[1] != "" {
			label += " (" + l[1] + ")"
		}
		out = append(out, label)
	}
	return strings.Join(out, ", ")
}
