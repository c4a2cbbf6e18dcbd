package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/internal/ctxio"
)

// sample is the resident memory of the server at a time of the run with clients and faults.
type sample struct {
	at    time.Duration
	bytes uint64
}

// After two minutes the server has allocated its permanent memory. Each figure is the median over memoryWindow.
const (
	memoryFrom   = 2 * time.Minute
	memoryWindow = 20 * time.Second
	progressStep = 10 * time.Second
)

// watch takes samples of the memory each second and prints the progress until ctx ends.
func (r *run) watch(ctx context.Context) {
	began := time.Now()
	for next := time.Duration(0); ; ctxio.Sleep(ctx, time.Second) {
		if bytes, err := resident(r.server.pid()); err == nil {
			r.mu.Lock()
			r.memory = append(r.memory, sample{time.Since(began), bytes})
			r.mu.Unlock()
			if since := time.Since(began); since >= next {
				next += progressStep
				r.printProgress(since, bytes)
			}
		} else {
			r.problem(fmt.Errorf("the server has ended: %w: %s", err, r.server.stderr))
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (r *run) printProgress(since time.Duration, bytes uint64) {
	var all Line
	for _, a := range r.accounts {
		l := a.line(served{})
		all.Sent, all.Lost = all.Sent+l.Sent, all.Lost+l.Lost
		all.Received.Result += l.Received.Result
		all.Served.Accepted += sum(l.Received.Drops) // only for the sum
		all.Served.InFlight += sum(l.Received.Errors)
	}
	fmt.Fprintf(r.progress, "%s  %.0f of %.0f s, %d faults; %d frames: %d results, %d drops, %d errors, %d lost on "+
		"broken connections; %d MiB, %d descriptors, %d child processes\n",
		r.clock(), since.Seconds(), r.duration.Seconds(), r.faults.Load(), all.Sent, all.Received.Result,
		all.Served.Accepted, all.Served.InFlight, all.Lost,
		bytes>>20, descriptors(r.server.pid()), len(descendants(r.server.pid())))
}

// median returns the median of the samples between two times; 0 without samples.
func median(samples []sample, from, to time.Duration) float64 {
	var in []uint64
	for _, s := range samples {
		if s.at >= from && s.at <= to {
			in = append(in, s.bytes)
		}
	}
	if len(in) == 0 {
		return 0
	}
	slices.Sort(in)
	return float64(in[len(in)/2])
}

// measure compares the memory at the end with the memory after the first two minutes. A shorter run has no ratio.
func (r *run) measure(report *Report) {
	if r.duration < memoryFrom+2*memoryWindow {
		return
	}
	report.MemoryEarly = median(r.memory, memoryFrom-memoryWindow/2, memoryFrom+memoryWindow/2)
	report.MemoryLate = median(r.memory, r.duration-memoryWindow, r.duration+memoryWindow)
	if report.MemoryEarly > 0 {
		report.MemoryRatio = report.MemoryLate / report.MemoryEarly
	}
	for _, s := range r.memory {
		report.MemoryMost = max(report.MemoryMost, float64(s.bytes))
	}
	if r.ratio > 0 && report.MemoryRatio > r.ratio {
		report.Problems = append(report.Problems,
			fmt.Sprintf("resident memory at the end is %.2f times that after two minutes; the limit is %.2f",
				report.MemoryRatio, r.ratio))
	}
}
