//go:build !nometrics

package tracing

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// appendPython appends a histogram as Python's prometheus_client writes it: le in the order of the labels' names, and
// numbers with a fraction.
func appendPython(out *bytes.Buffer, f *dto.MetricFamily) {
	name := f.GetName()
	fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, escapeHelp.Replace(f.GetHelp()), name)
	for _, m := range f.Metric {
		var labels []string
		for _, l := range m.Label {
			labels = append(labels, l.GetName()+`="`+escapePython.Replace(l.GetValue())+`"`)
		}
		line := func(suffix string, labels []string, v float64) {
			fmt.Fprintf(out, "%s%s{%s} %s\n", name, suffix, strings.Join(labels, ","), pythonFloat(v))
		}
		h := m.GetHistogram()
		bucket := func(bound float64, n uint64) {
			with := append(slices.Clone(labels), `le="`+pythonFloat(bound)+`"`)
			slices.Sort(with)
			line("_bucket", with, float64(n))
		}
		for _, b := range h.Bucket {
			if !math.IsInf(b.GetUpperBound(), 1) {
				bucket(b.GetUpperBound(), b.GetCumulativeCount())
			}
		}
		bucket(math.Inf(1), h.GetSampleCount())
		line("_count", labels, float64(h.GetSampleCount()))
		line("_sum", labels, h.GetSampleSum())
	}
}

var (
	escapeHelp   = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapePython = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func pythonFloat(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}
