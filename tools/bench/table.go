package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Table is the result of a run.
type Table struct {
	Date string `json:"date"`
	Go   string `json:"go"`
	OS   string `json:"os"`
	CPUs int    `json:"cpus"`
	// Others is the share of processor time used by other programs during the run.
	Others float64 `json:"others"`
	Rows   []Row   `json:"rows"`
}

// Row compares a measurement with its bare counterpart.
type Row struct {
	Name     string  `json:"row"`
	Unit     string  `json:"unit"`
	Bare     float64 `json:"bare"`
	Millrace float64 `json:"millrace"`
	// Ratio is the median of Millrace/Bare over the rounds; 0 = not a ratio.
	Ratio float64 `json:"ratio"`
	// CPU is the ratio of work per second of processor time, which is less affected by other programs on the machine;
	// 0 = not measured.
	CPU float64 `json:"cpu_ratio,omitempty"`
	// Limit is "" for a row without limit; Met reports whether the limit is met.
	Limit string `json:"limit,omitempty"`
	Met   bool   `json:"met"`
}

// write prints the table as text.
func (t *Table) write(out io.Writer) {
	lines := [][]string{{"row", "bare", "millrace", "unit", "ratio", "cpu", "limit", "met"}}
	for _, r := range t.Rows {
		ratio, cpu, met := "", "", ""
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", r.Ratio)
		}
		if r.CPU > 0 {
			cpu = fmt.Sprintf("%.2f", r.CPU)
		}
		if r.Limit != "" {
			met = "no"
			if r.Met {
				met = "yes"
			}
		}
		lines = append(lines, []string{r.Name, figure(r.Bare), figure(r.Millrace), r.Unit, ratio, cpu, r.Limit, met})
	}
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, text := range l {
			width[i] = max(width[i], len(text))
		}
	}
	for _, l := range lines {
		for i, text := range l {
			switch i {
			case 0, 3, 6: // words
				fmt.Fprintf(out, "%-*s  ", width[i], text)
			case len(l) - 1:
				fmt.Fprintln(out, text)
			default:
				fmt.Fprintf(out, "%*s  ", width[i], text)
			}
		}
	}
	fmt.Fprintf(out, "%s %s, %d processors, %s; clients and server share them\n", t.Go, t.OS, t.CPUs, t.Date)
	fmt.Fprintln(out, "ratio: millrace/bare; cpu: ratio of the work per processor time")
	if t.Others > 0.05 {
		fmt.Fprintf(out,
			"other programs used %.0f %% of the processors during the run: repeat it on an idle machine\n",
			100*t.Others)
	}
}

func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 1000 || v <= -1000:
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.3g", v), ".0")
}

// bench is one run of the program.
type bench struct {
	options
	table  *Table
	server *target
	dir    string // for files, until the end of the run
}

func (b *bench) add(r Row) { b.table.Rows = append(b.table.Rows, r) }

// atLeast and atMost are limits of a ratio; 0 = none.
func (r Row) atLeast(limit float64) Row {
	if limit > 0 {
		r.Limit, r.Met = fmt.Sprintf(">= %.2f", limit), r.Ratio >= limit
	}
	return r
}

func (r Row) atMost(limit float64) Row {
	if limit > 0 {
		r.Limit, r.Met = fmt.Sprintf("<= %.2f", limit), r.Ratio <= limit
	}
	return r
}

// measurement runs one side of a pair for a time and returns the result.
type measurement func(d time.Duration) (float64, error)

// pair runs both sides in turns, each first every other time, after a short warm-up round of each side.
func (b *bench) pair(name, unit string, bare, ours measurement) (Row, error) {
	row := Row{Name: name, Unit: unit}
	var bares, millraces, ratios, cpus []float64
	for i := -1; i < b.rounds; i++ {
		d := b.round
		if i < 0 {
			d = min(d, 300*time.Millisecond)
		}
		var x, y float64
		var used [2]time.Duration
		var err error
		turns := []func(){
			func() { before := cpu(); x, err = bare(d); used[0] = cpu() - before },
			func() { before := cpu(); y, err = ours(d); used[1] = cpu() - before },
		}
		if i%2 != 0 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if turn(); err != nil {
				return row, fmt.Errorf("%s: %w", name, err)
			}
		}
		if x <= 0 || y <= 0 {
			return row, fmt.Errorf("%s: a round did nothing: %v and %v %s", name, x, y, unit)
		}
		if i >= 0 {
			bares, millraces, ratios = append(bares, x), append(millraces, y), append(ratios, y/x)
			if used[0] > 0 && used[1] > 0 {
				cpus = append(cpus, y/x*float64(used[0])/float64(used[1]))
			}
		}
	}
	row.Bare, row.Millrace, row.Ratio = median(bares), median(millraces), median(ratios)
	if strings.HasSuffix(unit, "/s") && cpus != nil {
		row.CPU = median(cpus)
	}
	return row, nil
}

// throughputOf runs n concurrent loops for a time, and returns the work done per second. Each loop continues while
// more returns true, and calls done for each piece of work. Work begun within the time counts, and so does the time
// until the work ends.
func throughputOf(n int, d time.Duration, one func(more func() bool, done func(int)) error) (float64, error) {
	var all atomic.Int64
	began := time.Now()
	more := func() bool { return time.Since(began) < d }
	done := func(n int) { all.Add(int64(n)) }
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = one(more, done) })
	}
	wg.Wait()
	return float64(all.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}
