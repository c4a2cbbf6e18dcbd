package overlay

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"millrace/internal/oip"
)

// maxItems bounds the boxes, poses and classes of a result. The excess is left out.
const maxItems = 1000

// maxLabel bounds a label, in runes.
const maxLabel = 48

// Result is a model's result for one picture. Coordinates are pixels of the picture as sent.
type Result struct {
	Boxes []Box
	Poses []Pose
	Top   []Class // of a classification, in the model's order
	Mask  *Mask

	Tracked bool // the boxes have ids
}

// Class is the class of an object or a picture. Number is -1 and Score NaN where
// the model gives none.
type Class struct {
	Number int
	Label  string
	Score  float64
}

// Box is a rectangle with its class. ID is the tracker's, 0 without a tracker.
type Box struct {
	X1, Y1, X2, Y2 float64
	Class
	ID int64
	// Corners of a rotated box, in order around the box; X1 to Y2 is the upright box around the corners.
	Rotated bool
	Corners [4]struct{ X, Y float64 }
}

// Pose is the keypoints of an object.
type Pose []Point

// Point is a keypoint with its score.
type Point struct{ X, Y, Score float64 }

// Mask is Height rows of Width classes, 0 for background, stretched over the region
// X1 Y1 X2 Y2.
type Mask struct {
	Width, Height  int
	Pixels         []byte
	X1, Y1, X2, Y2 float64 // not used when Whole
	Whole          bool    // the region is the whole picture
}

// Empty reports whether there is nothing to draw.
func (r *Result) Empty() bool {
	return len(r.Boxes) == 0 && len(r.Poses) == 0 && len(r.Top) == 0 && r.Mask == nil
}

// Scale returns the result for a picture fx times as wide and fy times as high.
func (r Result) Scale(fx, fy float64) Result {
	r.Boxes = slices.Clone(r.Boxes)
	for i := range r.Boxes {
		b := &r.Boxes[i]
		b.X1, b.Y1, b.X2, b.Y2 = b.X1*fx, b.Y1*fy, b.X2*fx, b.Y2*fy
		for k := range b.Corners {
			b.Corners[k].X, b.Corners[k].Y = b.Corners[k].X*fx, b.Corners[k].Y*fy
		}
	}
	r.Poses = slices.Clone(r.Poses)
	for i, p := range r.Poses {
		p = slices.Clone(p)
		for k := range p {
			p[k].X, p[k].Y = p[k].X*fx, p[k].Y*fy
		}
		r.Poses[i] = p
	}
	if r.Mask != nil {
		m := *r.Mask
		m.X1, m.Y1, m.X2, m.Y2 = m.X1*fx, m.Y1*fy, m.X2*fx, m.Y2*fy
		r.Mask = &m
	}
	return r
}

// ReadResult reads the outputs of a picture by name, and ignores outputs with other names:
//
//	boxes      FP32  [1,n,4]: x1 y1 x2 y2
//	corners    FP32  [1,n,4,2], of rotated boxes; ignored with another datatype or shape
//	scores     FP32  [1,n], or [1,n,C]: of each class; without boxes [1,k]
//	classes    INT64 [1,n] or, without boxes, [1,k]
//	labels     BYTES [1,n] or, without boxes, [1,k]
//	ids        INT64 [1,n], of boxes; ignored with another datatype or shape
//	keypoints  FP32  [1,N,K,3]: x y score
//	mask       UINT8 [1,H,W], with region FP32 [1,4]: x1 y1 x2 y2
//
// The leading 1 may be missing. With scores of each class and no classes, the class with the highest score is taken.
// Boxes and regions with numbers that are not finite are left out. Errors name the output. The result may share the
// outputs' memory.
func ReadResult(outputs []oip.Tensor) (Result, error) {
	named := map[string]*oip.Tensor{}
	for i := range outputs {
		t := &outputs[i]
		want, known := datatypes[t.Name]
		if !known {
			continue
		}
		if t.Datatype != want {
			return Result{}, outputError(t, "", "is of %s: want %s", t.Datatype, want)
		}
		if err := checkSize(t); err != nil {
			return Result{}, err
		}
		named[t.Name] = t
	}
	var (
		r    Result
		errs [3]error
	)
	if boxes := named["boxes"]; boxes != nil {
		ids := readIDs(outputs, boxes)
		r.Tracked = ids != nil
		r.Boxes, errs[0] = readBoxes(boxes, ids, readCorners(outputs, boxes), named)
	} else if first := firstOf(named, "scores", "classes", "labels"); first != nil && named["keypoints"] == nil {
		var top []Class
		if shape := trimBatch(first.Shape, 1); len(shape) == 1 { // outputs of another rank are not a classification
			top, errs[0] = readClasses(shape[0], named)
		}
		r.Top = top[:min(len(top), maxItems)]
	}
	r.Poses, errs[1] = readPoses(named["keypoints"])
	r.Mask, errs[2] = readMask(named["mask"], named["region"])
	for _, err := range errs {
		if err != nil {
			return Result{}, err
		}
	}
	return r, nil
}

// Draws reports whether an output with this name is drawn.
func Draws(output string) bool {
	_, known := datatypes[output]
	return known && output != "region" // of a mask
}

var datatypes = map[string]string{
	"boxes": oip.FP32, "scores": oip.FP32, "classes": oip.Int64, "labels": oip.Bytes,
	"keypoints": oip.FP32, "mask": oip.Uint8, "region": oip.FP32,
}

// outputError returns the error of an output, or of a part of the output, such as "data".
func outputError(t *oip.Tensor, part, format string, args ...any) error {
	field := "outputs." + t.Name
	if part != "" {
		field += "." + part
	}
	return fmt.Errorf(field+": "+format, args...)
}

// checkSize checks that a tensor's data fit its shape.
func checkSize(t *oip.Tensor) error {
	n, err := oip.Elements(t.Shape)
	if err != nil {
		return fmt.Errorf("outputs.%s.%w", t.Name, err)
	}
	size := oip.SizeOf(t.Datatype)
	if t.Datatype != oip.Bytes {
		if n > math.MaxInt/size || len(t.Data) != n*size {
			return outputError(t, "data", "has %d bytes for the shape %v of %s: want %d", len(t.Data), t.Shape,
				t.Datatype, n*size)
		}
		return nil
	}
	rest := t.Data
	for i := range n {
		var ok bool
		if _, rest, ok = oip.NextBytes(rest); !ok {
			return outputError(t, "data", "ends within element %d of %d", i, n)
		}
	}
	if len(rest) > 0 {
		return outputError(t, "data", "has %d bytes after the last of %d elements", len(rest), n)
	}
	return nil
}

func firstOf(named map[string]*oip.Tensor, names ...string) *oip.Tensor {
	for _, n := range names {
		if named[n] != nil {
			return named[n]
		}
	}
	return nil
}

// trimBatch removes the batch axis of length 1 from a shape of rank+1 axes.
func trimBatch(shape []int, rank int) []int {
	if len(shape) == rank+1 && shape[0] == 1 {
		return shape[1:]
	}
	return shape
}

// readCorners returns the corners of rotated boxes, nil if absent. As with ids, a model may have an output of this
// name with another meaning.
func readCorners(outputs []oip.Tensor, boxes *oip.Tensor) *oip.Tensor {
	for i := range outputs {
		t := &outputs[i]
		if shape := trimBatch(t.Shape, 3); t.Name == "corners" && t.Datatype == oip.FP32 && checkSize(t) == nil &&
			len(shape) == 3 && shape[0] == trimBatch(boxes.Shape, 2)[0] && shape[1] == 4 && shape[2] == 2 {
			return t
		}
	}
	return nil
}

func readBoxes(t *oip.Tensor, ids []byte, corners *oip.Tensor, named map[string]*oip.Tensor) ([]Box, error) {
	shape := trimBatch(t.Shape, 2)
	if len(shape) != 2 || shape[1] != 4 {
		return nil, outputError(t, "", "has the shape %v: want [1,n,4]", t.Shape)
	}
	n := shape[0]
	classes, err := readClasses(n, named)
	if err != nil {
		return nil, err
	}
	var list []Box
	for i := 0; i < n && len(list) < maxItems; i++ {
		v := numbers(t, 4*i, 4)
		if finite(v...) {
			b := Box{X1: v[0], Y1: v[1], X2: v[2], Y2: v[3], Class: classes[i]}
			if ids != nil {
				b.ID = int64(binary.LittleEndian.Uint64(ids[8*i:]))
			}
			if corners != nil {
				v := numbers(corners, 8*i, 8)
				if b.Rotated = finite(v...); b.Rotated {
					for k := range b.Corners {
						b.Corners[k].X, b.Corners[k].Y = v[2*k], v[2*k+1]
					}
				}
			}
			list = append(list, b)
		}
	}
	return list, nil
}

// readIDs returns the ids of boxes, nil if absent. A model may have an output of this name with another meaning,
// without an error.
func readIDs(outputs []oip.Tensor, boxes *oip.Tensor) []byte {
	for i := range outputs {
		if t := &outputs[i]; t.Name == "ids" && t.Datatype == oip.Int64 && checkSize(t) == nil &&
			slices.Equal(trimBatch(t.Shape, 1), trimBatch(boxes.Shape, 2)[:1]) {
			return t.Data[:len(t.Data):len(t.Data)]
		}
	}
	return nil
}

// readClasses reads the present outputs of scores, classes and labels, for n objects.
func readClasses(n int, named map[string]*oip.Tensor) ([]Class, error) {
	scores, classes, labels := named["scores"], named["classes"], named["labels"]
	perObject := 0 // scores of each class for one object; 0 = a single score
	if scores != nil {
		switch one, each := trimBatch(scores.Shape, 1), trimBatch(scores.Shape, 2); {
		case slices.Equal(one, []int{n}):
		case len(each) == 2 && each[0] == n && (each[1] > 0 || n == 0):
			perObject = each[1]
		default:
			return nil, outputError(scores, "", "has the shape %v: want [1,%[2]d] or [1,%[2]d,C]", scores.Shape, n)
		}
	}
	for _, t := range []*oip.Tensor{classes, labels} {
		if t != nil && !slices.Equal(trimBatch(t.Shape, 1), []int{n}) {
			return nil, outputError(t, "", "has the shape %v: want [1,%d]", t.Shape, n)
		}
	}
	list := make([]Class, n)
	var labelData []byte
	if labels != nil {
		labelData = labels.Data
	}
	for i := range list {
		c := &list[i]
		c.Number, c.Score = -1, math.NaN()
		if classes != nil {
			c.Number = int(int64(binary.LittleEndian.Uint64(classes.Data[8*i:])))
		}
		switch {
		case scores == nil:
		case perObject == 0:
			c.Score = numbers(scores, i, 1)[0]
		default:
			setBestClass(c, numbers(scores, i*perObject, perObject))
		}
		if labels != nil {
			l := int(binary.LittleEndian.Uint32(labelData))
			c.Label = printable(labelData[4 : 4+l])
			labelData = labelData[4+l:]
		}
	}
	return list, nil
}

// setBestClass sets the class with the highest score, or, if c has a class, the score of that class.
func setBestClass(c *Class, scores []float64) {
	if c.Number >= 0 && c.Number < len(scores) {
		c.Score = scores[c.Number]
		return
	}
	at := 0
	for i, s := range scores {
		if s > scores[at] || math.IsNaN(scores[at]) {
			at = i
		}
	}
	c.Score = scores[at]
	if c.Number < 0 {
		c.Number = at
	}
}

func readPoses(t *oip.Tensor) ([]Pose, error) {
	if t == nil {
		return nil, nil
	}
	shape := trimBatch(t.Shape, 3)
	if len(shape) != 3 || shape[2] != 3 {
		return nil, outputError(t, "", "has the shape %v: want [1,N,K,3]", t.Shape)
	}
	if len(t.Data) == 0 {
		return nil, nil
	}
	var list []Pose
	for i := range min(shape[0], maxItems) {
		var p Pose
		for k := range min(shape[1], maxItems) {
			v := numbers(t, 3*(i*shape[1]+k), 3)
			if !finite(v...) {
				v = []float64{0, 0, 0} // keeps its index, is not drawn
			}
			p = append(p, Point{v[0], v[1], v[2]})
		}
		list = append(list, p)
	}
	return list, nil
}

func readMask(t, region *oip.Tensor) (*Mask, error) {
	if t == nil {
		return nil, nil
	}
	shape := trimBatch(t.Shape, 2)
	if len(shape) != 2 {
		return nil, outputError(t, "", "has the shape %v: want [1,H,W]", t.Shape)
	}
	m := &Mask{Width: shape[1], Height: shape[0], Pixels: t.Data, Whole: region == nil}
	if region != nil {
		if !slices.Equal(trimBatch(region.Shape, 1), []int{4}) {
			return nil, outputError(region, "", "has the shape %v: want [1,4]", region.Shape)
		}
		v := numbers(region, 0, 4)
		if !finite(v...) {
			return nil, nil
		}
		m.X1, m.Y1, m.X2, m.Y2 = v[0], v[1], v[2], v[3]
	}
	if len(t.Data) == 0 {
		return nil, nil
	}
	return m, nil
}

// numbers reads n elements of an FP32 tensor, beginning with element from.
func numbers(t *oip.Tensor, from, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*(from+i):])))
	}
	return out
}

func finite(v ...float64) bool {
	for _, f := range v {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return false
		}
	}
	return true
}

// printable returns a label without unprintable characters, cut to maxLabel.
func printable(b []byte) string {
	b = b[:min(len(b), 4*maxLabel)]
	s := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), ""))
	if r := []rune(s); len(r) > maxLabel {
		return string(r[:maxLabel-1]) + "…"
	}
	return s
}

// String is the label, or else the class's number, with the score: "7 0.93".
func (c Class) String() string {
	var parts []string
	switch {
	case c.Label != "":
		parts = append(parts, c.Label)
	case c.Number >= 0:
		parts = append(parts, strconv.Itoa(c.Number))
	}
	if finite(c.Score) {
		parts = append(parts, fmt.Sprintf("%.2f", c.Score))
	}
	return strings.Join(parts, " ")
}
