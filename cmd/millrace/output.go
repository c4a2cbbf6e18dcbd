package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"millrace/client/play"
)

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table writes rows in aligned columns.
func table(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// oneLine returns the first line of a text, short enough for a table row, with dots for the rest.
func oneLine(text string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if first = strings.TrimSpace(first); rest == "" {
		return first
	}
	return first + " ..."
}

// isTerminal reports whether w is a terminal, where a line can be overwritten.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progress writes a line each second. On a terminal, each line overwrites the previous line.
type progress struct {
	w         io.Writer
	overwrite bool
	wrote     bool
}

func newProgress(w io.Writer) *progress { return &progress{w: w, overwrite: isTerminal(w)} }

func (p *progress) line(s string) {
	if p.overwrite {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", s)
		p.wrote = true
		return
	}
	_, _ = fmt.Fprintln(p.w, s)
}

// end keeps the last line from being overwritten.
func (p *progress) end() {
	if p.wrote {
		_, _ = fmt.Fprintln(p.w)
		p.wrote = false
	}
}

// progressText describes the progress in one line.
func progressText(p play.Progress) string {
	s := fmt.Sprintf("%5.1f s  %5d frames  %5d results  %5.1f fps  %4d dropped  age p50 %s",
		p.Elapsed.Seconds(), p.Frames, p.Results, p.FPS, p.Drops, short(p.P50))
	if p.Errors > 0 {
		s += fmt.Sprintf("  %d failed", p.Errors)
	}
	if p.Reconnecting {
		s += "  no connection, trying again"
	}
	return s
}

func short(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) + " ms"
	}
	return strconv.FormatFloat(float64(d)/1e6, 'f', 0, 64) + " ms"
}

// summaryRows returns the summary of a stream as rows of a table.
func summaryRows(s *play.Summary) [][]string {
	source := s.Source
	if s.Width > 0 {
		source += fmt.Sprintf(" (sent as %dx%d)", s.Width, s.Height)
	}
	rows := [][]string{
		{"source", source},
		{"model", s.Model},
		{"frames", fmt.Sprintf("%d in %.1f s", s.Frames, s.Seconds)},
		{"results", strconv.Itoa(s.Results)},
		{"dropped", countText(s.Dropped(), s.Drops)},
	}
	if n := s.Failed(); n > 0 {
		rows = append(rows, []string{"failed", countText(n, s.Errors) + ": " + s.Message})
	}
	if s.Lost > 0 {
		rows = append(rows, []string{"lost", strconv.Itoa(s.Lost)})
	}
	rows = append(rows, []string{"fps", fmt.Sprintf("%.1f", s.FPS)})
	if s.Results > 0 {
		rows = append(rows,
			[]string{"capture to result", fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", s.P50, s.P99)},
			[]string{"mean batch", fmt.Sprintf("%.2f", s.Batch)})
	}
	if s.Overlay != "" {
		rows = append(rows, []string{"overlay", s.Overlay})
	}
	if s.Picture != "" {
		rows = append(rows, []string{"picture", s.Picture})
	}
	return rows
}

// countText returns text such as "3 (2 stale, 1 superseded)".
func countText[K ~string](n int, by map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d %s", by[k], string(k)))
	}
	if len(parts) == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d (%s)", n, strings.Join(parts, ", "))
}
