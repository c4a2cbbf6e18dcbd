package load

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteCSV writes the rows of the report: a line with the names of the JSON fields, and a
// line for each second.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"at", "seconds", "sent", "answered", "good", "dropped", "failed", "open", "p50_ms", "p99_ms",
		"max_ms", "mean_batch"}}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
	u := func(v uint64) string { return strconv.FormatUint(v, 10) }
	for _, row := range r.Rows {
		lines = append(lines, []string{
			f(row.At), f(row.Seconds), u(row.Sent), u(row.Answered), u(row.Good), u(row.Dropped), u(row.Failed),
			strconv.Itoa(row.Open), f(row.P50), f(row.P99), f(row.Max), f(row.Batch),
		})
	}
	return c.WriteAll(lines)
}

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	offered := ""
	if r.Offered > 0 {
		offered = fmt.Sprintf(", %.6g frames/s offered", r.Offered)
	}
	line("load", "%s loop, %d streams%s, %.1f s", r.Loop, r.Streams, offered, r.Seconds)
	if r.Interrupted {
		line("", "interrupted")
	}
	if r.GivenUp {
		line("", "ended early: the first frames all failed with one error")
	}
	line("frames", "%d sent = %d answered + %d dropped + %d failed", r.Sent, r.Answered, r.Dropped, r.Failed)
	for _, m := range []struct {
		name string
		of   map[string]uint64
	}{{"dropped", r.Drops}, {"failed", r.Errors}, {"lost", r.Lost}} {
		for _, k := range slices.Sorted(maps.Keys(m.of)) {
			text := k
			if first := r.FirstErrors[k]; first != "" && m.name == "failed" {
				text += ", the first: " + printable(first)
			}
			line(m.name, "%d %s", m.of[k], text)
		}
	}
	if r.Unsent > 0 {
		line("unsent", "%d frames were due, but could not be sent", r.Unsent)
	}
	if r.Unaccounted != 0 || r.Unexpected != 0 {
		line("FAULT", "%d frames have no ending, %d endings without a frame", r.Unaccounted, r.Unexpected)
	}
	good := ""
	if r.DeadlineMS > 0 {
		good = fmt.Sprintf(", %.1f/s of them within %g ms", r.Goodput, r.DeadlineMS)
	}
	line("answers", "%.1f/s%s; fairness %.3f%s", r.FPS, good, r.Fairness, batch(r.MeanBatch))
	line("", "%9s %9s %9s %9s %9s %9s  ms", "mean", "p50", "p90", "p99", "p99.9", "max")
	for _, q := range []struct {
		name string
		Quantiles
	}{{"latency", r.Latency}, {"service", r.Service}, {"lag", r.Lag}, {"drop notice", r.DropNotice}} {
		if q.Count > 0 {
			line(q.name, "%9.2f %9.2f %9.2f %9.2f %9.2f %9.2f", q.Mean, q.P50, q.P90, q.P99, q.P999, q.Max)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable returns a text of the server on one line, without terminal control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// String returns the row as one line of text.
func (r Row) String() string {
	return fmt.Sprintf("%6.0fs %8.1f sent/s %8.1f answered/s %8.1f dropped/s %6d failed %7d open  p50 %.2f ms  p99 "+
		"%.2f ms%s",
		r.At, float64(r.Sent)/r.Seconds, float64(r.Answered)/r.Seconds, float64(r.Dropped)/r.Seconds, r.Failed, r.Open,
		r.P50, r.P99, batch(r.Batch))
}

func batch(mean float64) string {
	if mean == 0 {
		return ""
	}
	return fmt.Sprintf("; mean batch %.1f", mean)
}
