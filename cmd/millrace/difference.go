package main

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"millrace/client/load"
	"millrace/client/overlay"
	"millrace/internal/recording"
	"millrace/stream"
)

// maxWorst bounds the frames that are named.
const maxWorst = 5

// difference is how the results of two recordings differ. Only frames that ended
// in both with a result or an error are compared; an error is an answer in which
// nothing was found.
type difference struct {
	A         side         `json:"a"`
	B         side         `json:"b"`
	Frames    int          `json:"frames"`    // in both
	Identical int          `json:"identical"` // of them, byte for byte the same
	OnlyA     int          `json:"only_a"`    // frames of one recording
	OnlyB     int          `json:"only_b"`
	Compared  int          `json:"compared"`
	Boxes     *boxDiff     `json:"boxes,omitempty"`
	Tensors   []tensorDiff `json:"tensors,omitempty"`
	Agree     int          `json:"agree"`           // frames compared, without any difference in boxes or tensors
	Share     *float64     `json:"share,omitempty"` // boxes matched of all; without boxes, frames that agree
	Worst     []worst      `json:"worst,omitempty"`
}

// side is one recording.
type side struct {
	File    string         `json:"file"`
	Model   string         `json:"model"`
	Version string         `json:"version,omitempty"`
	Cut     string         `json:"cut,omitempty"` // what is missing at its end
	Frames  int            `json:"frames"`
	Results int            `json:"results"`
	Drops   map[string]int `json:"drops"`
	Errors  map[string]int `json:"errors"`
	Lost    int            `json:"lost"`   // without an ending
	P50     float64        `json:"p50_ms"` // from sending a frame to its result
	P99     float64        `json:"p99_ms"`
	RunP50  float64        `json:"run_p50_ms"` // of that, in the model
	RunP99  float64        `json:"run_p99_ms"`

	ages, runs load.Histogram
}

// worst is a frame with many differences.
type worst struct {
	Seq     uint64  `json:"seq"`
	Seconds float64 `json:"at_s"` // in A
	Boxes   int     `json:"boxes"`
}

// answers is how a frame ended: the parts of its result together.
type answers struct {
	last    *recording.Ending // nil when it has not ended
	outputs []stream.Tensor
}

func (a *answers) comparable() bool { return a.last != nil && a.last.Outcome != recording.Drop }

// differ compares two recordings, frame by frame, and keeps one frame of each in
// memory.
func differ(a, b *recording.Reader, iou, tolerance float64) (*difference, error) {
	d := &difference{A: newSide(a), B: newSide(b)}
	tensors := map[string]*tensorDiff{}
	for i := range a.Frames() {
		seq := a.Seq(i)
		fa, ra, err := d.A.take(a, seq)
		if err != nil {
			return nil, err
		}
		fb, rb, err := d.B.take(b, seq)
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
		if ra.comparable() && rb.comparable() && (ra.last.Outcome == recording.Result || rb.last.Outcome == recording.Result) {
			d.compare(fa, ra, rb, tensors, iou, tolerance)
		}
	}
	for i := range b.Frames() {
		seq := b.Seq(i)
		if a.Has(seq) {
			continue
		}
		d.OnlyB++
		if _, _, err := d.B.take(b, seq); err != nil {
			return nil, err
		}
	}
	d.finish(tensors)
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

// take reads a frame and its ending, and counts them. Both are nil when the
// recording has no such frame.
func (s *side) take(r *recording.Reader, seq uint64) (*recording.Frame, *answers, error) {
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
		for _, o := range e.Outputs {
			all.outputs = append(all.outputs, stream.Tensor{Name: o.Name, Datatype: stream.Datatype(o.Datatype), Shape: o.Shape, Data: o.Data})
		}
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

// compare compares the answers to one frame.
func (d *difference) compare(f *recording.Frame, a, b *answers, tensors map[string]*tensorDiff, iou, tolerance float64) {
	d.Compared++
	agree := a.last.Outcome == b.last.Outcome
	found, boxed := itemsOf(a, b)
	if boxed {
		if d.Boxes == nil {
			d.Boxes = &boxDiff{}
		}
		if n := d.Boxes.add(found[0].Boxes, found[1].Boxes, iou); n > 0 {
			agree = false
			d.Worst = append(d.Worst, worst{Seq: f.Seq, Seconds: math.Round(f.At.Seconds()*1000) / 1000, Boxes: n})
			slices.SortStableFunc(d.Worst, func(x, y worst) int { return cmp.Compare(y.Boxes, x.Boxes) })
			d.Worst = d.Worst[:min(len(d.Worst), maxWorst)]
		}
	}
	if !addTensors(tensors, plainOutputs(a, boxed), plainOutputs(b, boxed), tolerance) {
		agree = false
	}
	if agree {
		d.Agree++
	}
}

// itemsOf reads the boxes of both. boxed is false where neither has any, or what
// is called boxes is not: then they are tensors like others.
func itemsOf(a, b *answers) (found [2]overlay.Result, boxed bool) {
	for i, r := range []*answers{a, b} {
		if !slices.ContainsFunc(r.outputs, func(t stream.Tensor) bool { return t.Name == "boxes" }) {
			continue
		}
		boxed = true
		var err error
		if found[i], err = overlay.Items(r.outputs); err != nil {
			return found, false
		}
	}
	return found, boxed
}

// plainOutputs are the outputs that are not compared as boxes.
func plainOutputs(r *answers, boxed bool) []stream.Tensor {
	if !boxed {
		return r.outputs
	}
	return slices.DeleteFunc(slices.Clone(r.outputs), func(t stream.Tensor) bool {
		return slices.Contains([]string{"boxes", "scores", "classes", "labels"}, t.Name)
	})
}

func (d *difference) finish(tensors map[string]*tensorDiff) {
	d.A.finish()
	d.B.finish()
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		t.finish()
		d.Tensors = append(d.Tensors, *t)
	}
	share := 1.0
	switch all := 0; {
	case d.Compared == 0:
		return
	case d.Boxes != nil:
		d.Boxes.finish()
		if all = d.Boxes.Matched + d.Boxes.differ(); all > 0 {
			share = float64(d.Boxes.Matched) / float64(all)
		}
	default:
		share = float64(d.Agree) / float64(d.Compared)
	}
	d.Share = &share
}

// errNothing is two recordings that have no answers to the same frames.
var errNothing = errors.New("nothing can be compared: no frame was answered in both recordings")
