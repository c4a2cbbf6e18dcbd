package overlay

import (
	"encoding/binary"
	"flag"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/oip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func floats(name string, shape []int, v ...float32) oip.Tensor {
	return oip.Tensor{Name: name, Datatype: oip.FP32, Shape: shape, Data: float32s(v...)}
}

func float32s(v ...float32) (data []byte) {
	for _, f := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
	}
	return data
}

func ints(name string, shape []int, v ...int64) oip.Tensor {
	t := oip.Tensor{Name: name, Datatype: oip.Int64, Shape: shape}
	for _, n := range v {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(n))
	}
	return t
}

func words(name string, shape []int, v ...string) oip.Tensor {
	t := oip.Tensor{Name: name, Datatype: oip.Bytes, Shape: shape}
	for _, w := range v {
		t.Data = append(binary.LittleEndian.AppendUint32(t.Data, uint32(len(w))), w...)
	}
	return t
}

func said(r Result) (list []string) {
	for _, b := range r.Boxes {
		list = append(list, b.Class.String())
	}
	for _, c := range r.Top {
		list = append(list, c.String())
	}
	return list
}

var nan = float32(math.NaN())

func TestReadResult(t *testing.T) {
	two := floats("boxes", []int{1, 2, 4}, 1, 2, 3, 4, 5, 6, 7, 8)
	for name, c := range map[string]struct {
		outputs []oip.Tensor
		want    []string
	}{
		"boxes alone": {[]oip.Tensor{two}, []string{"", ""}},
		"without the 1": {[]oip.Tensor{floats("boxes", []int{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8),
			floats("scores", []int{2}, 0.5, 0.25)}, []string{"0.50", "0.25"}},
		"scores": {[]oip.Tensor{two, floats("scores", []int{1, 2}, 0.5, 0.25)}, []string{"0.50", "0.25"}},
		"classes": {[]oip.Tensor{two, floats("scores", []int{1, 2}, 0.5, 0.25),
			ints("classes", []int{1, 2}, 7, 3)}, []string{"7 0.50", "3 0.25"}},
		"labels": {[]oip.Tensor{two, ints("classes", []int{1, 2}, 7, 3),
			words("labels", []int{1, 2}, "cat", "a\x00\ndog")}, []string{"cat", "adog"}},
		"scores of classes": {[]oip.Tensor{two, floats("scores", []int{1, 2, 3}, 0.1, 0.2, 0.9, nan, 0.5, 0.1)},
			[]string{"2 0.90", "1 0.50"}},
		"classes choose": {[]oip.Tensor{two, floats("scores", []int{1, 2, 3}, 0.1, 0.2, 0.9, 0.4, 0.5, 0.1),
			ints("classes", []int{1, 2}, 1, 9)}, []string{"1 0.20", "9 0.50"}},
		"one box, 3 classes": {[]oip.Tensor{floats("boxes", []int{1, 1, 4}, 1, 2, 3, 4),
			floats("scores", []int{1, 1, 3}, 0, 1, 0)}, []string{"1 1.00"}},
		"no box": {[]oip.Tensor{floats("boxes", []int{1, 0, 4}), floats("scores", []int{1, 0, 10}),
			ints("classes", []int{1, 0})}, nil},
		"NaN box": {[]oip.Tensor{floats("boxes", []int{1, 2, 4}, 1, nan, 3, 4, 5, 6, 7, 8),
			ints("classes", []int{1, 2}, 7, 3)}, []string{"3"}},
		"classification": {[]oip.Tensor{floats("scores", []int{1, 2}, 0.75, 0.25),
			ints("classes", []int{1, 2}, 281, 5), words("labels", []int{1, 2}, "tabby", "")},
			[]string{"tabby 0.75", "5 0.25"}},
		"something else": {[]oip.Tensor{floats("scores", []int{1, 2, 2, 2}, 1, 2, 3, 4, 5, 6, 7, 8),
			{Name: "bytes", Datatype: oip.Bytes, Shape: []int{9}}}, nil},
		"nothing": {nil, nil},
	} {
		r, err := ReadResult(c.outputs)
		if got := said(r); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	r, err := ReadResult([]oip.Tensor{floats("boxes", []int{1, 3, 4}, 1, 2, 3, 4, nan, 6, 7, 8, 5, 6, 7, 8),
		ints("ids", []int{1, 3}, 11, 12, 0)})
	if err != nil || !r.Tracked || len(r.Boxes) != 2 || r.Boxes[0].ID != 11 || r.Boxes[1].ID != 0 {
		t.Errorf("with ids: %+v, %v", r, err)
	}
	if r, err = ReadResult([]oip.Tensor{two, words("ids", []int{1, 2}, "a", "b")}); err != nil || r.Tracked ||
		len(r.Boxes) != 2 {
		t.Errorf("ids with another meaning: %+v, %v", r, err)
	}
	for want, outputs := range map[string][]oip.Tensor{
		"outputs.boxes: is of INT64":       {ints("boxes", []int{1, 1, 4}, 1, 2, 3, 4)},
		"outputs.boxes.data":               {floats("boxes", []int{1, 2, 4}, 1, 2, 3)},
		"outputs.boxes.shape":              {floats("boxes", []int{1, -2, 4}, 1, 2, 3)},
		"outputs.boxes: has the shape":     {floats("boxes", []int{1, 4, 2}, 1, 2, 3, 4, 5, 6, 7, 8)},
		"outputs.scores: has the shape":    {two, floats("scores", []int{1, 3}, 1, 2, 3)},
		"outputs.classes: has the shape":   {two, ints("classes", []int{1, 1}, 1)},
		"outputs.labels: has the shape":    {floats("scores", []int{1, 2}, 1, 1), words("labels", []int{1, 1}, "a")},
		"outputs.keypoints: has the shape": {floats("keypoints", []int{1, 1, 2}, 1, 2)},
		"outputs.mask: has the shape":      {{Name: "mask", Datatype: oip.Uint8, Shape: []int{2}, Data: []byte{1, 2}}},
		"outputs.region: has the shape": {{Name: "mask", Datatype: oip.Uint8, Shape: []int{1, 2},
			Data: []byte{1, 2}}, floats("region", []int{1, 2}, 1, 2)},
	} {
		if _, err := ReadResult(outputs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	r, err = ReadResult([]oip.Tensor{
		floats("keypoints", []int{1, 1, 2, 3}, 1, 2, 0.9, nan, 3, 0.8),
		{Name: "mask", Datatype: oip.Uint8, Shape: []int{1, 1, 2}, Data: []byte{0, 3}},
		floats("region", []int{1, 4}, 0, 0, 10, 10),
	})
	want := Result{Poses: []Pose{{{1, 2, float64(float32(0.9))}, {}}},
		Mask: &Mask{Width: 2, Height: 1, Pixels: []byte{0, 3}, X2: 10, Y2: 10}}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v", r, err)
	}
	if s := r.Scale(2, 3); s.Poses[0][0] != (Point{2, 6, float64(float32(0.9))}) || s.Mask.X2 != 20 ||
		s.Mask.Y2 != 30 || r.Mask.X2 != 10 {
		t.Errorf("%+v", s)
	}
}

func grey(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range img.Pix {
		img.Pix[i] = 128
		if i%4 == 3 {
			img.Pix[i] = 255
		}
	}
	return img
}

var grey128 = color.RGBA{128, 128, 128, 255}

// show is a file for the picture of TestDraw: go test -run Draw -show /tmp/overlay.png
var show = flag.String("show", "", "write the test's picture to this file")

func TestDraw(t *testing.T) {
	none := math.NaN()
	r := Result{
		Boxes: []Box{
			{100, 80, 220, 200, Class{7, "", 0.93}, 0, false, [4]struct{ X, Y float64 }{}},
			{300, 2, 400, 60, Class{3, "cat", 0.5}, 0, false, [4]struct{ X, Y float64 }{}},
			{560, 300, 900, 460, Class{-1, "at the edge, long label", none}, 0, false, [4]struct{ X, Y float64 }{}},
			{-50, -50, 9000, 9000, Class{-1, "", none}, 0, false, [4]struct{ X, Y float64 }{}},
		},
		Poses: []Pose{{{150, 120, 1}, {180, 140, 0.9}, {200, 100, 0.1}}},
		Top:   []Class{{1, "tabby cat", 0.8}, {2, "tiger cat", 0.15}},
		Mask:  &Mask{Width: 2, Height: 2, Pixels: []byte{0, 1, 2, 0}, X1: 400, Y1: 200, X2: 500, Y2: 300},
	}
	img := grey(640, 480)
	Draw(img, r, "#17  age 12 ms")
	if *show != "" {
		f, err := os.Create(filepath.Clean(*show))
		if err != nil {
			t.Fatal(err)
		}
		if err := png.Encode(f, img); err != nil {
			t.Error(err)
		}
		_ = f.Close()
	}
	for _, c := range []struct {
		what string
		x, y int
		want color.RGBA
	}{
		{"the edge of a box", 101, 150, palette[7]}, {"its outline", 99, 150, dark}, {"its inside", 130, 180, grey128},
		{"no edge of a box larger than the picture", 639, 240, grey128},
		{"a keypoint", 150, 120, palette[0]}, {"one that is unsure", 200, 100, grey128},
		{"a class of the mask", 475, 225, color.RGBA{blend(128, palette[0].R), blend(128, palette[0].G),
			blend(128, palette[0].B), 255}},
		{"nothing of the mask", 425, 225, grey128},
	} {
		if got := img.RGBAAt(c.x, c.y); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if img.RGBAAt(600, 478) == grey128 || img.RGBAAt(600, 440) != grey128 {
		t.Error("the caption is not at the lower edge")
	}
	a, b := grey(640, 480), grey(640, 480)
	Draw(a, r, "#17")
	Draw(b, r, "#18")
	if reflect.DeepEqual(a.Pix, b.Pix) {
		t.Error("captions look alike")
	}
	Draw(image.NewRGBA(image.Rectangle{}), r, "x")
	Draw(grey(1, 1), r, "x")
}

// FuzzReadResult: any outputs are read or refused, and each result can be drawn.
func FuzzReadResult(f *testing.F) {
	f.Add("boxes", "FP32", make([]byte, 32), "scores", "FP32", make([]byte, 8), "1 2 4 1 2 0")
	f.Add("mask", "UINT8", make([]byte, 8), "region", "FP32", float32s(1, 2, 3e30, 4), "1 2 4 4 0 0")
	f.Add("labels", "BYTES", []byte("\x01\x00\x00\x00a"), "keypoints", "FP32", float32s(1e30, -1e30, 1), "1 1 1 1 1 3")
	f.Add("scores", "FP32", make([]byte, 8), "classes", "INT64", make([]byte, 16), "2 0 1 2 0 0")
	f.Fuzz(func(t *testing.T, name1, type1 string, data1 []byte, name2, type2 string, data2 []byte, shapes string) {
		var dims [6]int // three of each tensor
		for i, n := range strings.Fields(shapes) {
			if i < len(dims) {
				dims[i], _ = strconv.Atoi(n)
			}
		}
		shape := func(dims []int) (s []int) {
			for _, n := range dims {
				if n != 0 || dims[2] == 7 {
					s = append(s, n)
				}
			}
			return s
		}
		r, err := ReadResult([]oip.Tensor{
			{Name: name1, Datatype: type1, Shape: shape(dims[:3]), Data: data1},
			{Name: name2, Datatype: type2, Shape: shape(dims[3:]), Data: data2},
		})
		if err != nil {
			if !r.Empty() {
				t.Fatal("a result with an error")
			}
			return
		}
		if len(r.Boxes) > maxItems || len(r.Top) > maxItems || len(r.Poses) > maxItems {
			t.Fatal("too many")
		}
		Draw(grey(33, 21), r, "caption")
		Draw(grey(66, 42), r.Scale(2, 2), name1)
	})
}

func TestRotatedBox(t *testing.T) {
	outputs := []oip.Tensor{
		floats("boxes", []int{1, 2, 4}, 20, 20, 80, 80, 0, 0, 10, 10), floats("scores", []int{1, 2}, 0.9, 0.8),
		floats("corners", []int{1, 2, 4, 2}, 50, 20, 80, 50, 50, 80, 20, 50, nan, 0, 0, 0, 0, 0, 0, 0),
	}
	r, err := ReadResult(outputs)
	if err != nil || !r.Boxes[0].Rotated || r.Boxes[1].Rotated || r.Boxes[0].Corners[1].X != 80 ||
		r.Boxes[0].Corners[1].Y != 50 {
		t.Fatalf("%+v %v", r, err)
	}
	r = r.Scale(2, 1)
	if c := r.Boxes[0].Corners[1]; c.X != 160 || c.Y != 50 {
		t.Errorf("%v", c)
	}
	img := image.NewRGBA(image.Rect(0, 0, 200, 100))
	r.Boxes = r.Boxes[:1]
	r.Boxes[0].Class = Class{Number: 1, Score: math.NaN()}
	Draw(img, r, "")
	drawn := func(x, y int) bool { return img.RGBAAt(x, y).A > 0 }
	if !drawn(130, 35) || !drawn(70, 65) || drawn(41, 21) || drawn(158, 78) || drawn(100, 50) {
		t.Error("the lines are not those between the corners")
	}
	// A box far outside of the picture costs no time.
	r.Boxes[0].Corners[2].X = 1e300
	Draw(img, r, "")
	for _, o := range []oip.Tensor{ints("corners", []int{1, 2}, 1, 2),
		floats("corners", []int{1, 1, 4, 2}, make([]float32, 8)...)} {
		if r, err := ReadResult(append(outputs[:2:2], o)); err != nil || r.Boxes[0].Rotated {
			t.Errorf("%v: %+v %v", o.Shape, r, err)
		}
	}
}
