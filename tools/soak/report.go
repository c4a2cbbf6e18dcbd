package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Report is the result of a run.
type Report struct {
	Seed     uint64       `json:"seed"`
	Seconds  float64      `json:"seconds"`
	Faults   int          `json:"faults"`
	ByFault  []FaultCount `json:"by_fault"`
	Models   []Line       `json:"models"`
	Streams  []StreamLine `json:"streams"`
	Before   string       `json:"held_at_the_beginning"`
	After    string       `json:"held_at_the_end"`
	Reloads  *Reloads     `json:"reloads,omitempty"`
	Problems []string     `json:"problems"`

	// Resident memory in bytes: after two minutes, at the end, and the most; 0 of a shorter run.
	MemoryEarly float64 `json:"memory_after_two_minutes"`
	MemoryLate  float64 `json:"memory_at_the_end"`
	MemoryMost  float64 `json:"memory_most"`
	MemoryRatio float64 `json:"memory_ratio"`
}

// FaultCount says how often a fault was caused.
type FaultCount struct {
	Name  string `json:"name"`
	Times int    `json:"times"`
}

const mib = 1 << 20

// write writes the report as a table.
func (r *Report) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "model\tsent\tresults\tdrops\terrors\tlost\taccepted\tresults\tdrops\terrors\tdrops by reason; "+
		"errors by code")
	for _, l := range r.Models {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s; %s\n", l.Model, l.Sent, l.Received.Result,
			sum(l.Received.Drops), sum(l.Received.Errors), l.Lost,
			l.Served.Accepted, l.Served.Result, sum(l.Served.Drops), sum(l.Served.Errors), listing(l.Served.Drops),
			listing(l.Served.Errors))
	}
	fmt.Fprintln(w, "(clients)\t\t\t\t\t\t(/metrics)")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "stream\tframes\tresults\tdrops\terrors\tlines in files\tresults at the "+
		"webhook\tretries\topened again")
	for _, l := range r.Streams {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", l.Name, l.Frames, l.Results, l.Drops, l.Errors, l.File,
			l.Webhook, l.Retries, l.Opened)
	}
	fmt.Fprintln(w)
	for _, f := range r.ByFault {
		fmt.Fprintf(w, "%d x\t%s\n", f.Times, f.Name)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\nheld at the beginning: %s\nheld at the end: %s\n", r.Before, r.After)
	if r.MemoryRatio > 0 {
		fmt.Fprintf(out,
			"resident memory: %.1f MiB after two minutes, %.1f MiB at the end: %.2f times; most %.1f MiB\n",
			r.MemoryEarly/mib, r.MemoryLate/mib, r.MemoryRatio, r.MemoryMost/mib)
	}
	if r.Reloads != nil {
		r.Reloads.write(out)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(out, "FAILED", p)
	}
	fmt.Fprintf(out, "%d faults in %.0f s, %d failures; -seed %d repeats the run\n", r.Faults, r.Seconds,
		len(r.Problems), r.Seed)
}
