// Package difference says how the answers of two models, A and B, to the same
// frames differ: boxes by class and overlap, ids of boxes up to a renaming, other
// outputs number by number.
//
// It owns the measures and their sums over frames. It must not know where the
// answers come from.
package difference

import (
	"maps"
	"slices"

	"millrace/internal/oip"
	"millrace/internal/overlay"
)

// Options say from when on two values are the same.
type Options struct {
	IoU       float64 // of two boxes: the least intersection over union
	Tolerance float64 // of two numbers of other outputs: the largest distance
}

// Answers are the differences of all frames compared. The zero value is empty. It
// is for one goroutine at a time.
type Answers struct {
	Compared int      `json:"compared"`
	Boxes    *Boxes   `json:"boxes,omitempty"`
	Tracks   *Tracks  `json:"tracks,omitempty"`
	Tensors  []Tensor `json:"tensors,omitempty"` // by name
	Agree    int      `json:"agree"`             // frames without any difference
	Share    *float64 `json:"share,omitempty"`   // boxes matched of all; without boxes, frames that agree

	tensors map[string]*Tensor
}

// Add compares the outputs of both for one frame, of which an answer that failed
// has none. sameOutcome is false when only one failed. It returns how many boxes
// differ.
func (d *Answers) Add(a, b []oip.Tensor, sameOutcome bool, o Options) (boxes int) {
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

// boxesOf reads the boxes of both. boxed is false where neither has any, or what
// is called boxes is not: then they are tensors like others.
func boxesOf(a, b []oip.Tensor) (found [2]overlay.Result, boxed bool) {
	for i, outputs := range [][]oip.Tensor{a, b} {
		if !slices.ContainsFunc(outputs, func(t oip.Tensor) bool { return t.Name == "boxes" }) {
			continue
		}
		boxed = true
		var err error
		if found[i], err = overlay.Items(outputs); err != nil {
			return found, false
		}
	}
	return found, boxed
}

// otherOutputs are those that are compared number by number.
func otherOutputs(outputs []oip.Tensor, boxed, tracked bool) []oip.Tensor {
	if !boxed {
		return outputs
	}
	return slices.DeleteFunc(slices.Clone(outputs), func(t oip.Tensor) bool {
		return slices.Contains([]string{"boxes", "scores", "classes", "labels"}, t.Name) || tracked && t.Name == "ids"
	})
}

// Finish turns sums into means, when all frames were added.
func (d *Answers) Finish() {
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
