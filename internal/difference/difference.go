// Package difference compares the results of two models, A and B, for the same frames: boxes by class and overlap,
// track ids (their numbers may differ), and other outputs number by number.
//
// The package owns the measures and their sums over frames. The package must not know the origin of the results.
package difference

import (
	"maps"
	"slices"

	"millrace/internal/oip"
	"millrace/internal/overlay"
)

// Options say when two values count as equal.
type Options struct {
	IoU       float64 // the least intersection over union of two boxes
	Tolerance float64 // the largest distance of two numbers of other outputs
}

// Summary is the difference over all compared frames. The zero value is empty. A Summary is for one goroutine at a
// time.
type Summary struct {
	Compared int      `json:"compared"`
	Boxes    *Boxes   `json:"boxes,omitempty"`
	Tracks   *Tracks  `json:"tracks,omitempty"`
	Tensors  []Tensor `json:"tensors,omitempty"` // by name
	Agree    int      `json:"agree"`             // frames without any difference
	Share    *float64 `json:"share,omitempty"`   // of matched boxes; without boxes, of frames without a difference

	tensors map[string]*Tensor
}

// Add compares the outputs for one frame; a failed frame has none. sameOutcome is false when only one of the two
// failed. The result is the number of different boxes.
func (d *Summary) Add(a, b []oip.Tensor, sameOutcome bool, o Options) (boxes int) {
	d.Compared++
	agree := sameOutcome
	found, boxed := boxesOf(a, b)
	tracked := boxed && found[0].Tracked && found[1].Tracked
	if boxed {
		if d.Boxes == nil {
			d.Boxes = &Boxes{}
		}
		if tracked && d.Tracks == nil {
			d.Tracks = &Tracks{}
		}
		boxes = d.Boxes.add(found[0].Boxes, found[1].Boxes, o.IoU, func(a, b *overlay.Box) {
			if tracked && !d.Tracks.add(a.ID, b.ID) {
				agree = false
			}
		})
		agree = agree && boxes == 0
	}
	if d.tensors == nil {
		d.tensors = map[string]*Tensor{}
	}
	if !addTensors(d.tensors, otherOutputs(a, boxed, tracked), otherOutputs(b, boxed, tracked), o.Tolerance) {
		agree = false
	}
	if agree {
		d.Agree++
	}
	return boxes
}

// boxesOf reads the boxes of a and b. boxed is false when neither has an output "boxes", or when such an output is
// unreadable: these outputs are compared like other tensors.
func boxesOf(a, b []oip.Tensor) (found [2]overlay.Result, boxed bool) {
	for i, outputs := range [][]oip.Tensor{a, b} {
		if !slices.ContainsFunc(outputs, func(t oip.Tensor) bool { return t.Name == "boxes" }) {
			continue
		}
		boxed = true
		var err error
		if found[i], err = overlay.ReadResult(outputs); err != nil {
			return found, false
		}
	}
	return found, boxed
}

// otherOutputs returns the outputs for comparison number by number.
func otherOutputs(outputs []oip.Tensor, boxed, tracked bool) []oip.Tensor {
	if !boxed {
		return outputs
	}
	return slices.DeleteFunc(slices.Clone(outputs), func(t oip.Tensor) bool {
		return slices.Contains([]string{"boxes", "scores", "classes", "labels"}, t.Name) || tracked && t.Name == "ids"
	})
}

// Finish turns the sums into means, after all frames were added.
func (d *Summary) Finish() {
	for _, name := range slices.Sorted(maps.Keys(d.tensors)) {
		t := d.tensors[name]
		t.finish()
		d.Tensors = append(d.Tensors, *t)
	}
	share := 1.0
	switch all := 0; {
	case d.Compared == 0:
		return
	case d.Boxes != nil:
		d.Boxes.finish()
		if all = d.Boxes.Matched + d.Boxes.Differ(); all > 0 {
			share = float64(d.Boxes.Matched) / float64(all)
		}
	default:
		share = float64(d.Agree) / float64(d.Compared)
	}
	d.Share = &share
}
