// Package truth reads the ground truth of a rendered clip, and scores a detector's results against the ground truth.
//
// The package owns the file format and the scoring. The package must not know how a clip is rendered or how a
// detector works.
package truth

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
)

// Box is x1, y1, x2, y2 in pixels of the clip; x2 and y2 lie just outside.
type Box [4]float64

// Area is the box's area in pixels; 0 for an empty or inverted box.
func (b Box) Area() float64 {
	w, h := b[2]-b[0], b[3]-b[1]
	if !(w > 0 && h > 0) {
		return 0
	}
	return w * h
}

// IoU is the intersection of two boxes over their union, 0 to 1; of two empty boxes, 0.
func IoU(a, b Box) float64 {
	shared := overlap(a, b)
	if shared == 0 {
		return 0
	}
	return shared / (a.Area() + b.Area() - shared)
}

// overlap is the area of the intersection of two boxes.
func overlap(a, b Box) float64 {
	return Box{max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])}.Area()
}

// Object is one shape in one frame. Only visible shapes are listed.
type Object struct {
	ID int `json:"id"`
	// Box is the part inside the picture.
	Box Box `json:"box"`
	// Moving is true when the shape has moved since the frame before.
	Moving bool `json:"moving"`
	// Class is the object's class, nil in clips without classes: the digit, in a clip of digits.
	Class *int `json:"class,omitempty"`
}

// Frame is the ground truth of one frame.
type Frame struct {
	Index int `json:"index"`
	// T is the presentation time in seconds.
	T       float64  `json:"t"`
	Objects []Object `json:"objects"`
	// Ignore lists objects of which too little is visible: they count neither as found nor as missed.
	Ignore []Box `json:"ignore,omitempty"`
}

// Truth is the ground truth of a clip.
type Truth struct {
	Width  int     `json:"width"`
	Height int     `json:"height"`
	FPS    float64 `json:"fps"`
	Frames []Frame `json:"frames"`
}

// Load reads and checks a ground truth file.
func Load(path string) (*Truth, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	defer func() { _ = f.Close() }()
	t, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return t, nil
}

// Read reads and checks the ground truth of a clip.
func Read(r io.Reader) (*Truth, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	var t Truth
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	if t.Width <= 0 || t.Height <= 0 || !(t.FPS > 0) {
		return nil, fmt.Errorf("truth: width %d, height %d, fps %g; all must be positive", t.Width, t.Height, t.FPS)
	}
	for i, f := range t.Frames {
		if f.Index != i {
			return nil, fmt.Errorf("truth: frames[%d].index is %d; frames must be listed in order, from 0", i, f.Index)
		}
		for j, o := range f.Objects {
			if o.Box.Area() == 0 {
				return nil, fmt.Errorf("truth: frames[%d].objects[%d].box is %v; want x1 < x2 and y1 < y2", i, j, o.Box)
			}
			if o.Class != nil && *o.Class < 0 {
				return nil, fmt.Errorf("truth: frames[%d].objects[%d].class is %d; want 0 or more", i, j, *o.Class)
			}
		}
		for j, b := range f.Ignore {
			if b.Area() == 0 {
				return nil, fmt.Errorf("truth: frames[%d].ignore[%d] is %v; want x1 < x2 and y1 < y2", i, j, b)
			}
		}
	}
	return &t, nil
}

// At returns the frame whose presentation time is nearest to t seconds, or nil when none is within half a frame.
func (t *Truth) At(seconds float64) *Frame {
	i := math.Round(seconds * t.FPS)
	if !(i >= 0 && i < float64(len(t.Frames))) {
		return nil
	}
	return &t.Frames[int(i)]
}

func (f *Frame) moving() (list []Object) {
	for _, o := range f.Objects {
		if o.Moving {
			list = append(list, o)
		}
	}
	return list
}
