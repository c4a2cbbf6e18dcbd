package postprocess

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"millrace/stream"
)

// small takes pictures of 64 by 64: models make 84 boxes of a picture, v5 makes 252.
func small(metadata map[string]string, outputs ...stream.TensorSpec) *stream.Model {
	m := modelOf(outputs...)
	m.Inputs[0].Shape, m.Image, m.Metadata = []int{3, 64, 64}, &stream.ImageSpec{Width: 64, Height: 64,
		Layout: "NCHW"}, metadata
	return m
}

const twoNames = "{0: 'cat', 1: \"dog's\"}"

// ofTask are the metadata of an export with two classes.
func ofTask(task string, more ...string) map[string]string {
	m := map[string]string{"task": task, "names": twoNames, "stride": "32"}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

func TestYoloForms(t *testing.T) {
	eighty := map[string]string{"names": "['" + strings.Repeat("a', '", 79) + "b']"}
	proto := spec("proto", 32, 16, 16)
	list := func(of ...stream.TensorSpec) []stream.TensorSpec { return of }
	for _, c := range []struct {
		name     string
		set      YOLO
		metadata map[string]string
		outputs  []stream.TensorSpec
		want     string // the settings for the form
		classes  int
	}{
		{"v8", YOLO{}, nil, list(spec("o", 6, 84)), "task: detect, layout: v8", 2},
		{"v8 of COCO", YOLO{}, nil, list(spec("o", 84, -1)), "task: detect, layout: v8", 80},
		{"v8 of one class", YOLO{}, nil, list(spec("o", 5, 84)), "task: detect, layout: v8", 1},
		{"v5 by its number of boxes", YOLO{}, nil, list(spec("o", 252, 85)), "task: detect, layout: v5", 80},
		{"v5 by the setting, with any number of boxes", YOLO{Task: "detect", Layout: "v5"}, nil,
			list(spec("o", 300, 85)), "task: detect, layout: v5", 80},
		{"v5 by the setting, where 84 may be the number of boxes", YOLO{Layout: "v5"}, nil, list(spec("o", 300, 84)),
			"task: detect, layout: v5", 79},
		{"v5 by the setting, with few boxes", YOLO{Layout: "v5"}, nil, list(spec("o", 30, 86)),
			"task: detect, layout: v5", 81},
		{"v8 in rows by the setting, with any number of boxes", YOLO{Layout: "v8"}, nil, list(spec("o", 300, 85)),
			"task: detect, layout: v8", 81},
		{"yolox by the setting", YOLO{Layout: "yolox"}, nil, list(spec("o", 84, 85)), "task: detect, layout: yolox",
			80},
		{"v5 by its names", YOLO{}, eighty, list(spec("o", -1, 85)), "task: detect, layout: v5", 80},
		{"v8 in rows by the setting", YOLO{Layout: "v8"}, nil, list(spec("o", 84, 6)), "task: detect, layout: v8", 2},
		{"more numbers than boxes", YOLO{}, eighty, list(spec("o", 84, 21)), "task: detect, layout: v8", 80},
		{"v8 by metadata", YOLO{}, ofTask("detect"), list(spec("o", 6, -1)), "task: detect, layout: v8", 2},
		{"end2end by the setting", YOLO{Task: "end2end"}, nil, list(spec("o", 300, 6)), "task: end2end", -1},
		{"few final boxes", YOLO{Task: "end2end"}, nil, list(spec("o", 5, 6)), "task: end2end", -1},
		{"end2end by metadata", YOLO{}, ofTask("detect", "end2end", "True"), list(spec("o", 300, 6)), "task: end2end",
			2},
		{"end2end by nms", YOLO{}, ofTask("detect", "args", "{'batch': 1, 'half': False, 'nms': True}"),
			list(spec("o", 300, 6)), "task: end2end", 2},
		{"end2end by names", YOLO{}, eighty, list(spec("o", 300, 6)), "task: end2end", 80},
		{"end2end by the task alone", YOLO{}, ofTask("detect"), list(spec("o", 300, 6)), "task: end2end", 2},
		{"segment", YOLO{}, nil, list(spec("o", 38, 84), proto), "task: segment, layout: v8", 2},
		{"segment, v5", YOLO{}, nil, list(spec("o", 252, 39), proto), "task: segment, layout: v5", 2},
		{"segment by metadata", YOLO{}, ofTask("segment"), list(spec("o", 38, 84), proto), "task: segment, layout: v8",
			2},
		{"segment, end2end", YOLO{}, ofTask("segment", "end2end", "True"), list(spec("o", 300, 38), proto),
			"task: end2end-segment", 2},
		{"pose by the setting", YOLO{Task: "pose"}, nil, list(spec("o", 56, 84)), "task: pose, kpt_shape: 17x3", 1},
		{"pose without visibility", YOLO{Task: "pose", KptShape: "17x2"}, nil, list(spec("o", 39, 84)),
			"task: pose, kpt_shape: 17x2", 1},
		{"pose by metadata", YOLO{}, ofTask("pose", "kpt_shape", "[17, 2]"), list(spec("o", 40, 84)),
			"task: pose, kpt_shape: 17x2", 2},
		{"pose, end2end", YOLO{}, ofTask("pose", "kpt_shape", "[17, 3]", "end2end", "True"), list(spec("o", 300, 57)),
			"task: end2end-pose, kpt_shape: 17x3", 2},
		{"obb by the setting", YOLO{Task: "obb"}, nil, list(spec("o", 20, 84)), "task: obb", 15},
		{"obb by metadata", YOLO{}, ofTask("obb"), list(spec("o", 7, 84)), "task: obb", 2},
		{"obb, end2end", YOLO{Task: "end2end-obb"}, nil, list(spec("o", 300, 7)), "task: end2end-obb", -1},
		{"the setting before the metadata", YOLO{Task: "detect"}, map[string]string{"task": "obb"},
			list(spec("o", 7, 84)), "task: detect, layout: v8", 3},
		{"v7 with nms", YOLO{}, nil, list(stream.TensorSpec{Name: "o", Datatype: stream.Float32, Shape: []int{-1, 7},
			Unbatched: true}), "task: end2end", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := decoder(t, Config{YOLO: &c.set}, small(c.metadata, c.outputs...)).kind.(*yolo)
			if got := k.form.settings(); got != c.want || k.form.classes != c.classes {
				t.Errorf("%s with %d classes, want %s with %d", got, k.form.classes, c.want, c.classes)
			}
			again := c.set
			again.Task, again.Layout, again.KptShape = settingsOf(k.form.settings())
			if got := decoder(t, Config{YOLO: &again},
				small(c.metadata, c.outputs...)).kind.(*yolo).form; got != k.form {
				t.Errorf("its settings make %+v of %+v", got, k.form)
			}
		})
	}
}

// settingsOf reads "task: a, layout: b, kpt_shape: c".
func settingsOf(text string) (task, layout, shape string) {
	for part := range strings.SplitSeq(text, ", ") {
		key, value, _ := strings.Cut(part, ": ")
		switch key {
		case "task":
			task = value
		case "layout":
			layout = value
		case "kpt_shape":
			shape = value
		}
	}
	return task, layout, shape
}

func TestYoloRefusesWhatIsNotCertain(t *testing.T) {
	for _, c := range []struct {
		name     string
		set      YOLO
		metadata map[string]string
		outputs  []stream.TensorSpec
		field    string
		offers   []string // the settings, each accepted
	}{
		{"final boxes, or v5 with one class", YOLO{}, nil, []stream.TensorSpec{spec("o", 300, 6)}, "task",
			[]string{"task: end2end", "task: detect, layout: v5", "task: detect, layout: v8"}},
		{"pose, or many classes", YOLO{}, nil, []stream.TensorSpec{spec("o", 56, 84)}, "task",
			[]string{"task: detect", "task: obb", "task: pose"}},
		{"angles, or classes", YOLO{}, nil, []stream.TensorSpec{spec("o", 20, 84)}, "task",
			[]string{"task: detect", "task: obb", "task: pose"}},
		{"objectness, or cells of a grid", YOLO{}, nil, []stream.TensorSpec{spec("o", 84, 85)}, "task",
			[]string{"task: detect, layout: v5", "task: detect, layout: v8", "task: detect, layout: yolox"}},
		{"85 numbers, or boxes of rare strides", YOLO{}, nil, []stream.TensorSpec{spec("o", 300, 85)}, "task",
			[]string{"task: detect, layout: v5", "task: detect, layout: v8", "task: obb"}},
		{"85 numbers, or boxes of rare strides, in columns", YOLO{}, nil, []stream.TensorSpec{spec("o", 85, 300)},
			"task", []string{"task: detect, layout: v5", "task: detect, layout: v8", "task: obb"}},
		{"layouts of a task", YOLO{Task: "detect"}, nil, []stream.TensorSpec{spec("o", 300, 85)}, "layout",
			[]string{"task: detect, layout: v5", "task: detect, layout: v8"}},
		{"rows", YOLO{}, nil, []stream.TensorSpec{spec("o", 100, 9)}, "layout",
			[]string{"task: detect, layout: v5", "task: detect, layout: v8"}},
		{"final rotated boxes", YOLO{}, nil, []stream.TensorSpec{spec("o", 300, 7)}, "task",
			[]string{"task: end2end-obb", "task: detect, layout: v5", "task: detect, layout: v8"}},
		{"points of two or three numbers", YOLO{Task: "pose"}, nil, []stream.TensorSpec{spec("o", 17, 84)},
			"kpt_shape", []string{"task: pose, kpt_shape: 4x3", "task: pose, kpt_shape: 6x2"}},
		{"one name", YOLO{}, map[string]string{"names": "['face']"}, []stream.TensorSpec{spec("o", 300, 6)}, "task",
			[]string{"task: end2end", "task: detect"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(c.metadata, c.outputs...)
			_, err := New(Config{YOLO: &c.set}, m)
			wantError(t, err, stream.InvalidArgument, "output.yolo."+c.field, "set one of these under output.yolo: ")
			_, text, _ := strings.Cut(err.Error(), "under output.yolo: ")
			var offers []string
			for part := range strings.SplitSeq(text, "; ") {
				settings, _, _ := strings.Cut(part, " (")
				offers = append(offers, settings)
				set := c.set
				set.Task, set.Layout, set.KptShape = settingsOf(settings)
				if _, err := New(Config{YOLO: &set}, m); err != nil {
					t.Errorf("%s is offered, but %v", settings, err)
				}
			}
			for _, o := range c.offers {
				if !slices.Contains(offers, o) {
					t.Errorf("%s is not offered: %v", o, err)
				}
			}
		})
	}
}

func TestYoloContradictions(t *testing.T) {
	for _, c := range []struct {
		name     string
		set      YOLO
		metadata map[string]string
		output   stream.TensorSpec
		key      string
		texts    []string
	}{
		{"names", YOLO{}, ofTask("detect"), spec("o", 84, 84), "output",
			[]string{"o FP32 [84 84]", "the 2 names of the file's metadata", "task detect"}},
		{"points", YOLO{}, ofTask("pose", "kpt_shape", "[17, 3]"), spec("o", 40, 84), "output",
			[]string{"[40 84]", "kpt_shape 17x3", "task pose"}},
		{"end2end", YOLO{}, ofTask("detect", "end2end", "True"), spec("o", 84, 8400), "output",
			[]string{"[84 8400]", "end2end true"}},
		{"no masks", YOLO{}, ofTask("segment"), spec("o", 38, 84), "output",
			[]string{"task segment", "a second output for segment"}},
		{"the setting", YOLO{Task: "end2end"}, nil, spec("o", 84, 8400), "task",
			[]string{"output.yolo.task end2end", "[84 8400]"}},
		{"the layout", YOLO{Layout: "v5"}, nil, spec("o", 30, 84), "layout",
			[]string{"output.yolo.layout v5", "[30 84]", "most models have 84, with v5 252"}},
		{"another task", YOLO{}, map[string]string{"task": "classify"}, spec("o", 6, 84), "task",
			[]string{`"classify"`, "output.classify"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(Config{YOLO: &c.set}, small(c.metadata, c.output))
			for _, text := range c.texts {
				wantError(t, err, stream.InvalidArgument, "output.yolo."+c.key, text)
			}
		})
	}
	wantError(t, Config{YOLO: &YOLO{KptShape: "17"}}.Validate(), stream.InvalidArgument, "output.yolo.kpt_shape",
		"such as 17x3")
	_, err := New(Config{YOLO: &YOLO{Max: 300}}, small(nil, spec("o", 38, 84), spec("p", 32, 16, 16)))
	wantError(t, err, stream.InvalidArgument, "output.yolo.max", "255")
}

// boxesOf returns n boxes of width numbers, in columns or rows, beginning with the given boxes.
func boxesOf(n, width int, columns bool, given ...[]float32) []float32 {
	v := make([]float32, n*width)
	for i, b := range given {
		copy(v[i*width:], b)
	}
	if columns {
		return turn(v, width)
	}
	return v
}

func TestYoloScoresOutsideOfTheirRange(t *testing.T) {
	object := []float32{20, 20, 20, 20, 0.9, 0.9}
	for _, c := range []struct {
		name    string
		set     YOLO
		columns bool
		box     []float32
		text    string
	}{
		{"v8", YOLO{}, true, []float32{20, 20, 20, 20, 0, 58}, "box 1: its score of class 1 is 58, want 0 to 1"},
		{"v8, an angle", YOLO{}, true, []float32{20, 20, 20, 20, 0.9, -0.3}, "its score of class 1 is -0.3"},
		{"v8, NaN", YOLO{}, true, []float32{20, 20, 20, 20, nan, 0}, "its score of class 0 is NaN"},
		{"v8 in rows", YOLO{Layout: "v8"}, false, []float32{20, 20, 20, 20, 1.8, 0}, "its score of class 0 is 1.8"},
		{"v5, of an object", YOLO{Layout: "v5"}, false, []float32{20, 20, 20, 20, 1.2, 0}, "its score is 1.2"},
		{"v5, of a class", YOLO{Layout: "v5"}, false, []float32{20, 20, 20, 20, 1, 2}, "its score of class 0 is 2"},
		{"final", YOLO{Task: "end2end"}, false, []float32{10, 10, 30, 30, 30, 0}, "its score is 30"},
		{"a class", YOLO{Task: "end2end"}, false, []float32{10, 10, 30, 30, 0.9, 0.5}, "the class 0.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			shape := []int{84, 6}
			if c.columns {
				shape = []int{6, 84}
			}
			first := object
			if c.set.Task != "" {
				first = []float32{10, 10, 30, 30, 0.9, 2}
			}
			_, err := decoder(t, Config{YOLO: &c.set}, small(nil, spec("o", shape...))).Decode(
				[]stream.Tensor{tensor("o", boxesOf(84, 6, c.columns, first, c.box), 1, shape[0], shape[1])}, 0, 1,
				Mapping{})
			wantError(t, err, stream.Internal, "outputs.o", c.text)
		})
	}
	// A quantized model's scores may be slightly outside.
	got := answer(t, decoder(t, Config{YOLO: &YOLO{}}, small(nil, spec("o", 5, 84))), Mapping{},
		tensor("o", boxesOf(84, 5, true, []float32{20, 20, 20, 20, 1.004}, []float32{0, 0, 0, 0, -0.003}), 1, 5, 84))
	wantFloats(t, got["scores"], 1)
}

func TestYoloEndToEnd(t *testing.T) {
	v := boxesOf(300, 6, false, []float32{10, 10, 30, 30, 0.9, 2}, []float32{40, 40, 60, 60, 0.8, 0},
		[]float32{11, 10, 30, 30, 0.7, 2}, []float32{1, 1, 9, 9, 0.3, 1})
	d := decoder(t, Config{YOLO: &YOLO{Task: "end2end", Threshold: 0.4}}, small(nil, spec("o", 300, 6)))
	got := answer(t, d, Mapping{}, tensor("o", slices.Concat(v, v), 2, 300, 6))
	wantFloats(t, got["boxes"], slices.Repeat([]float32{10, 10, 30, 30, 40, 40, 60, 60, 11, 10, 30, 30}, 2)...)
	wantFloats(t, got["scores"], 0.9, 0.8, 0.7, 0.9, 0.8, 0.7)
	wantInts(t, got["classes"], 2, 0, 2, 2, 0, 2)
	d = decoder(t, Config{YOLO: &YOLO{Task: "end2end", Threshold: 0.4, IoU: 0.5}}, small(nil, spec("o", 300, 6)))
	wantFloats(t, answer(t, d, Mapping{}, tensor("o", v, 1, 300, 6))["scores"], 0.9, 0.8)

	names := ofTask("detect", "end2end", "True")
	d = decoder(t, Config{YOLO: &YOLO{}}, small(names, spec("o", 300, 6)))
	_, err := d.Decode([]stream.Tensor{tensor("o", v, 1, 300, 6)}, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.o", "the class 2, which is not one of 2 classes")
	got = answer(t, d, Mapping{}, tensor("o", boxesOf(300, 6, false, []float32{10, 10, 30, 30, 0.9, 1}), 1, 300, 6))
	wantWords(t, got["labels"], "dog's")

	o := stream.TensorSpec{Name: "o", Datatype: stream.Float32, Shape: []int{-1, 7}, Unbatched: true}
	got = answer(t, decoder(t, Config{YOLO: &YOLO{}}, small(nil, o)), Mapping{},
		tensor("o", []float32{0, 10, 10, 30, 30, 2, 0.9}, 1, 1, 7))
	wantFloats(t, got["boxes"], 10, 10, 30, 30)
	wantInts(t, got["classes"], 2)
	got = answer(t, decoder(t, Config{YOLO: &YOLO{}}, small(nil, o)), Mapping{}, tensor("o", nil, 1, 0, 7))
	wantShape(t, got["boxes"], 1, 0, 4)
}

func TestYoloPose(t *testing.T) {
	box := []float32{20, 20, 20, 20, 0.9}
	var want []float32
	for i := range 17 {
		x := 12 + float32(i)
		box, want = append(box, x, x, 0.8), append(want, x, x, 0.8)
	}
	end2end := slices.Concat([]float32{10, 10, 30, 30, 0.9, 0}, box[5:])
	d := decoder(t, Config{YOLO: &YOLO{Task: "pose"}}, small(nil, spec("o", 56, 84)))
	// Two rows, with one box and with no box: the second ends with zeros.
	v := slices.Concat(boxesOf(84, 56, true, nil, box), boxesOf(84, 56, true))
	got := answer(t, d, Mapping{}, tensor("o", v, 2, 56, 84))
	wantFloats(t, got["boxes"], 10, 10, 30, 30, 0, 0, 0, 0)
	wantFloats(t, got["keypoints"], append(slices.Clone(want), make([]float32, 51)...)...)
	d = decoder(t, Config{YOLO: &YOLO{Task: "end2end-pose"}}, small(nil, spec("o", 300, 57)))
	got = answer(t, d, Mapping{}, tensor("o", boxesOf(300, 57, false, nil, end2end), 1, 300, 57))
	wantFloats(t, got["boxes"], 10, 10, 30, 30)
	wantFloats(t, got["keypoints"], want...)
	box[7] = 58
	d = decoder(t, Config{YOLO: &YOLO{Task: "pose"}}, small(nil, spec("o", 56, 84)))
	_, err := d.Decode([]stream.Tensor{tensor("o", boxesOf(84, 56, true, box), 1, 56, 84)}, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.o", "the score of key point 0 is 58")
	// Two numbers for each point.
	d = decoder(t, Config{YOLO: &YOLO{Task: "pose", KptShape: "2x2"}}, small(nil, spec("o", 9, 84)))
	got = answer(t, d, Mapping{X: [2]float64{2, 0}, Y: [2]float64{1, 5}, Width: 128, Height: 74},
		tensor("o", boxesOf(84, 9, true, []float32{20, 20, 20, 20, 0.9, 12, 13, 27, 28}), 1, 9, 84))
	wantFloats(t, got["keypoints"], 24, 18, 1, 54, 33, 1)
}

func TestYoloOBB(t *testing.T) {
	turned := func(angle, score float32) []float32 { return []float32{30, 30, 20, 2, score, 0, angle} }
	d := decoder(t, Config{YOLO: &YOLO{Task: "obb"}}, small(nil, spec("o", 7, 84)))
	got := answer(t, d, Mapping{}, tensor("o", boxesOf(84, 7, true, turned(0.01, 0.8), turned(0, 0.9),
		turned(math.Pi/2, 0.7)), 1, 7, 84))
	// The second is nearly the first; the third is a quarter turn and stays.
	wantFloats(t, got["scores"], 0.9, 0.7)
	wantFloats(t, got["boxes"], 20, 29, 40, 31, 29, 20, 31, 40)
	wantFloats(t, got["corners"], 20, 29, 40, 29, 40, 31, 20, 31, 31, 20, 31, 40, 29, 40, 29, 20)
	half := float32(math.Sqrt(2) / 2)
	e := decoder(t, Config{YOLO: &YOLO{Task: "end2end-obb"}}, small(nil, spec("o", 300, 7)))
	got = answer(t, e, Mapping{X: [2]float64{2, 0}, Y: [2]float64{1, 0}, Width: 128, Height: 64},
		tensor("o", boxesOf(300, 7, false, []float32{30, 30, 20, 10, 0.9, 1, math.Pi / 4}), 1, 300, 7))
	wantFloats(t, got["corners"], 2*(30-5*half), 30-15*half, 2*(30+15*half), 30+5*half, 2*(30+5*half), 30+15*half,
		2*(30-15*half), 30-5*half)
	wantFloats(t, got["boxes"], 2*(30-15*half), 30-15*half, 2*(30+15*half), 30+15*half)
	wantInts(t, got["classes"], 1)
}

func TestYoloSegment(t *testing.T) {
	box := append([]float32{20, 20, 20, 20, 0.9, 0}, make([]float32, 32)...)
	box[6] = 1 // of the first prototype
	other := append([]float32{30, 20, 20, 20, 0, 0.8}, make([]float32, 32)...)
	other[7] = 1 // of the second
	proto := make([]float32, 32*16*16)
	for i := range 256 {
		proto[i], proto[256+i] = 1, 1
		if i%16 == 3 { // a column of pixels outside of the first box
			proto[i] = -1
		}
	}
	d := decoder(t, Config{YOLO: &YOLO{}}, small(nil, spec("o", 38, 84), spec("p", 32, 16, 16)))
	got := answer(t, d, Mapping{X: [2]float64{10, 0}, Y: [2]float64{10, 0}, Width: 640, Height: 640},
		tensor("o", boxesOf(84, 38, true, other, box), 1, 38, 84), tensor("p", proto, 1, 32, 16, 16))
	wantFloats(t, got["boxes"], 100, 100, 300, 300, 200, 100, 400, 300)
	wantInts(t, got["classes"], 0, 1)
	wantFloats(t, got["region"], 0, 0, 640, 640)
	wantShape(t, got["mask"], 1, 16, 16)
	mask := got["mask"].Data
	for y := range 16 {
		want := make([]byte, 16)
		if y >= 3 && y < 8 {
			for x := 3; x < 10; x++ {
				if want[x] = 1; x == 3 {
					want[x] = 0
				} else if x >= 8 {
					want[x] = 2
				}
			}
		}
		if !slices.Equal(mask[16*y:16*y+16], want) {
			t.Errorf("row %d of the mask is %v, want %v", y, mask[16*y:16*y+16], want)
		}
	}
}

func TestYoloTasksAllocateNothing(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	box := func(width int) stream.Tensor {
		v := append([]float32{20, 20, 20, 20, 0.9}, make([]float32, width-5)...)
		return tensor("o", boxesOf(84, width, true, v, v), 1, width, 84)
	}
	proto := tensor("p", make([]float32, 32*256), 1, 32, 16, 16)
	for _, c := range []struct {
		task  string
		width int
		more  []stream.TensorSpec
		outs  []stream.Tensor
	}{{"pose", 56, nil, nil}, {"obb", 7, nil, nil}, {"segment", 38, []stream.TensorSpec{spec("p", 32, 16, 16)},
		[]stream.Tensor{proto}}} {
		d := decoder(t, Config{YOLO: &YOLO{Task: c.task}},
			small(nil, append([]stream.TensorSpec{spec("o", c.width, 84)}, c.more...)...))
		pin(t, d, 1, append([]stream.Tensor{box(c.width)}, c.outs...))
	}
}

func TestLiterals(t *testing.T) {
	for text, want := range map[string][]string{
		`{0: 'cat', 1: 'dog'}`: {"cat", "dog"}, `{1: 'dog', 0: "it's", }`: {"it's", "dog"},
		`["a", 'b\'c', "\u00e9\\"]`: {"a", "b'c", "é\\"},
		`{"0": "x"}`:                {"x"}, `()`: {}, ` [ 'a' , ] `: {"a"},
	} {
		if got := readNames(text); got == nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "person", "{0: 1}", "{1: 'a'}", "['a'", "['a'] b", "{[1]: 'a'}",
		strings.Repeat("[", 1e5), "'a", `['\q']`} {
		if got := readNames(text); got != nil {
			t.Errorf("%.20s: %q", text, got)
		}
	}
	args := literal("{'batch': 1, 'nms': True, 'fraction': 1.0, 'name': None, 'x': (1, -2.5e3)}").(map[any]any)
	if args["nms"] != true || args["name"] != nil || args["x"].([]any)[1] != -2500.0 {
		t.Error(maps.Collect(maps.All(args)))
	}
}
