package main

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"millrace/internal/difference"
	"millrace/internal/histogram"
	"millrace/internal/oip"
	"millrace/internal/recording"
)

// maxWorst is the number of listed frames with the largest differences.
const maxWorst = 5

// comparison describes the differences between the results of two recordings. Only frames with a result or an error
// in both recordings are compared; an error counts as an answer without objects.
type comparison struct {
	A         side `json:"a"`
	B         side `json:"b"`
	Frames    int  `json:"frames"`    // in both
	Identical int  `json:"identical"` // of them, frames with equal bytes
	OnlyA     int  `json:"only_a"`    // frames of one recording
	OnlyB     int  `json:"only_b"`
	difference.Summary
	Worst []worst `json:"worst,omitempty"`
}

// side describes a recording.
type side struct {
	File    string         `json:"file"`
	Model   string         `json:"model"`
	Version string         `json:"version,omitempty"`
	Cut     string         `json:"cut,omitempty"` // why its end is missing
	Frames  int            `json:"frames"`
	Results int            `json:"results"`
	Drops   map[string]int `json:"drops"`
	Errors  map[string]int `json:"errors"`
	Lost    int            `json:"lost"`   // without an ending
	P50     float64        `json:"p50_ms"` // from sending a frame to its result
	P99     float64        `json:"p99_ms"`
	RunP50  float64        `json:"run_p50_ms"` // of that, in the model
	RunP99  float64        `json:"run_p99_ms"`

	ages, runs histogram.Durations
}

// worst is a frame with many differences.
type worst struct {
	Seq     uint64  `json:"seq"`
	Seconds float64 `json:"at_s"` // in A
	Boxes   int     `json:"boxes"`
}

// answers is the ending of a frame, with the outputs of all parts of the result.
type answers struct {
	last    *recording.Ending // nil when the frame has not ended
	outputs []oip.Tensor
}

func (a *answers) comparable() bool { return a.last != nil && a.last.Outcome != recording.Drop }

// compareRecordings compares two recordings frame by frame, with one frame of each recording in memory.
func compareRecordings(a, b *recording.Reader, o difference.Options) (*comparison, error) {
	d := &comparison{A: newSide(a), B: newSide(b)}
	for i := range a.Frames() {
		seq := a.Seq(i)
		fa, ra, err := d.A.read(a, seq)
		if err != nil {
			return nil, err
		}
		fb, rb, err := d.B.read(b, seq)
		if err != nil {
			return nil, err
		}
		if fb == nil {
			d.OnlyA++
			continue
		}
		d.Frames++
		if bytes.Equal(fa.Payload, fb.Payload) {
			d.Identical++
		}
		if ra.comparable() && rb.comparable() &&
			(ra.last.Outcome == recording.Result || rb.last.Outcome == recording.Result) {
			d.compare(fa, ra, rb, o)
		}
	}
	for i := range b.Frames() {
		seq := b.Seq(i)
		if a.Has(seq) {
			continue
		}
		d.OnlyB++
		if _, _, err := d.B.read(b, seq); err != nil {
			return nil, err
		}
	}
	d.A.finish()
	d.B.finish()
	d.Finish()
	return d, nil
}

func newSide(r *recording.Reader) side {
	h := r.Header()
	s := side{Model: h.Model, Version: h.Version, Drops: map[string]int{}, Errors: map[string]int{}}
	if err := r.Cut(); err != nil {
		s.Cut = err.Error()
	}
	return s
}

// read reads and counts a frame and its ending. Both are nil when the recording lacks the frame.
func (s *side) read(r *recording.Reader, seq uint64) (*recording.Frame, *answers, error) {
	f, err := r.Frame(seq)
	if err != nil || f == nil {
		return nil, nil, err
	}
	list, err := r.Endings(seq)
	if err != nil {
		return nil, nil, err
	}
	s.Frames++
	all := &answers{}
	for _, e := range list {
		all.outputs = append(all.outputs, e.Outputs...)
		if !e.Partial {
			all.last = e
		}
	}
	switch {
	case all.last == nil:
		s.Lost++
	case all.last.Outcome == recording.Drop:
		s.Drops[all.last.Reason]++
	case all.last.Outcome == recording.Failed:
		s.Errors[all.last.Code]++
	default:
		s.Results++
		s.ages.Add(all.last.At - f.At)
		s.runs.Add(time.Duration(all.last.Timing.Run) * time.Microsecond)
	}
	return f, all, nil
}

func (s *side) finish() {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	s.P50, s.P99 = ms(s.ages.Quantile(0.5)), ms(s.ages.Quantile(0.99))
	s.RunP50, s.RunP99 = ms(s.runs.Quantile(0.5)), ms(s.runs.Quantile(0.99))
}

// compare compares the answers to a frame.
func (d *comparison) compare(f *recording.Frame, a, b *answers, o difference.Options) {
	n := d.Add(a.outputs, b.outputs, a.last.Outcome == b.last.Outcome, o)
	if n == 0 {
		return
	}
	d.Worst = append(d.Worst, worst{Seq: f.Seq, Seconds: math.Round(f.At.Seconds()*1000) / 1000, Boxes: n})
	slices.SortStableFunc(d.Worst, func(x, y worst) int { return cmp.Compare(y.Boxes, x.Boxes) })
	d.Worst = d.Worst[:min(len(d.Worst), maxWorst)]
}

// errNothing is returned for two recordings without answers to the same frames.
var errNothing = errors.New("nothing can be compared: no frame was answered in both recordings")
