package postprocess

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"millrace/stream"
)

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		config      Config
		field, text string
	}{
		{Config{Labels: "x"}, "output.labels", "set classify"},
		{Config{Boxes: &Boxes{}, YOLO: &YOLO{}}, "output", "has boxes and yolo"},
		{Config{Boxes: &Boxes{Threshold: 1.5}}, "output.boxes.threshold", "1.5 is more than 1"},
		{Config{Boxes: &Boxes{Threshold: float64(nan)}}, "output.boxes.threshold", "NaN"},
		{Config{Boxes: &Boxes{IoU: -1}}, "output.boxes.iou", "-1 is not more than 0"},
		{Config{Boxes: &Boxes{IoU: float64(nan)}}, "output.boxes.iou", "NaN is not more than 0"},
		{Config{YOLO: &YOLO{Max: 1001}}, "output.yolo.max", "between 1 and 1000"},
		{Config{Classify: &Classify{TopK: -1}}, "output.classify.top_k", "between 1 and"},
		{Config{Boxes: &Boxes{Format: "yxyx"}}, "output.boxes.format", "xyxy, xywh or cxcywh"},
		{Config{YOLO: &YOLO{Units: "percent"}}, "output.yolo.units", "pixels or normalised"},
		{Config{Masks: &Masks{Activation: "relu"}}, "output.masks.activation", "softmax"},
		{Config{YOLO: &YOLO{Layout: "v9"}}, "output.yolo.layout", "v5, v8 or yolox"},
		{Config{Labels: "x", Embedding: &Embedding{}}, "output.labels", "embedding have no names"},
	} {
		wantError(t, c.config.Validate(), stream.InvalidArgument, c.field, c.text)
	}
	for _, c := range []Config{
		{},
		{Labels: "l", Classify: &Classify{Output: "x", TopK: 3, Activation: "none"}},
		{Boxes: &Boxes{Boxes: "b", Scores: "s", Classes: "c", Threshold: 1, IoU: 3, Max: 1000, Format: "xywh",
			Units: "pixels", Activation: "softmax", Background: true}},
		{YOLO: &YOLO{Layout: "v5", Units: "normalised"}},
		{Embedding: &Embedding{Normalise: true}},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestNewNamesWhatDoesNotFit(t *testing.T) {
	face := []stream.TensorSpec{spec("scores", 4420, 2), spec("boxes", 4420, 4)}
	for _, c := range []struct {
		name        string
		config      Config
		outputs     []stream.TensorSpec
		field, text string
	}{
		{"no kind of result", Config{}, face, "output", "has no kind"},
		{"no such output", Config{Classify: &Classify{Output: "y"}}, face, "output.classify.output",
			`"y" is not an output of the model: it has scores FP32 [4420 2], boxes FP32 [4420 4]`},
		{"nothing fits", Config{Classify: &Classify{}}, face, "output.classify.output", "it has scores FP32 [4420 2]"},
		{"no outputs", Config{Embedding: &Embedding{}}, nil, "output.embedding.output", "it has none"},
		{"the wrong one", Config{Boxes: &Boxes{Boxes: "scores"}}, face, "output.boxes.boxes",
			"scores is not a tensor of boxes"},
		{"two fit", Config{Classify: &Classify{}}, []stream.TensorSpec{spec("a", 3), spec("b", 5)},
			"output.classify.output", "more than one output"},
		{"two may be scores", Config{Boxes: &Boxes{}}, []stream.TensorSpec{spec("b", 9, 4), spec("s", 9),
			spec("c", 9)}, "output.boxes.scores", "more than one output"},
		{"as many scores as boxes", Config{Boxes: &Boxes{}}, []stream.TensorSpec{spec("b", 9, 4), spec("s", 8)},
			"output.boxes.scores", "no output"},
		{"classes twice", Config{Boxes: &Boxes{Classes: "c"}}, append(slices.Clone(face), spec("c", 4420)),
			"output.boxes.classes", "a score for each class already"},
		{"background alone", Config{Boxes: &Boxes{Background: true}},
			[]stream.TensorSpec{spec("b", 9, 4), spec("s", 9)}, "output.boxes.background", "only one class"},
		{"softmax of one", Config{Boxes: &Boxes{Activation: "softmax"}},
			[]stream.TensorSpec{spec("b", 9, 4), spec("s", 9, 1)}, "output.boxes.activation", "sigmoid"},
		{"softmax of one mask", Config{Masks: &Masks{Activation: "softmax"}}, []stream.TensorSpec{spec("m", 1, 9, 9)},
			"output.masks.activation", "sigmoid"},
		{"threshold of classes", Config{Masks: &Masks{Threshold: 0.3}}, []stream.TensorSpec{spec("m", 2, 9, 9)},
			"output.masks.threshold", "one class"},
		{"a square", Config{YOLO: &YOLO{Task: "detect"}}, []stream.TensorSpec{spec("y", 84, 84)}, "output.yolo.layout",
			"set one of these under output.yolo: task: detect, layout: v8 (boxes of 80 classes); task: detect, " +
				"layout: v5 (boxes of 79 classes with objectness)"},
		{"nothing known", Config{YOLO: &YOLO{}}, []stream.TensorSpec{spec("y", -1, -1)}, "output.yolo.output",
			"fits no form"},
		{"no class", Config{YOLO: &YOLO{}}, []stream.TensorSpec{spec("y", 100, 4)}, "output.yolo.output",
			"fits no form"},
		{"scores twice", Config{Keypoints: &Keypoints{Scores: "s"}},
			[]stream.TensorSpec{spec("k", 17, 3), spec("s", 17)}, "output.keypoints.scores", "has scores already"},
		{"units of heat maps", Config{Keypoints: &Keypoints{Units: "normalised"}},
			[]stream.TensorSpec{spec("k", 17, 64, 48)}, "output.keypoints.units", "heat maps"},
		{"a type", Config{Embedding: &Embedding{}},
			[]stream.TensorSpec{{Name: "e", Datatype: stream.Bytes, Shape: []int{9}}}, "output.embedding.output",
			"e BYTES [9]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.config, modelOf(c.outputs...))
			wantError(t, err, stream.InvalidArgument, c.field, c.text)
		})
	}
	m := modelOf(spec("b", 9, 4), spec("s", 9))
	m.Image, m.Inputs[0].Shape = nil, []int{3, -1, -1}
	_, err := New(Config{Boxes: &Boxes{Units: "normalised"}}, m)
	wantError(t, err, stream.InvalidArgument, "output.boxes", "input.image.width")
	if _, err := New(Config{Boxes: &Boxes{}}, m); err != nil {
		t.Errorf("pixels need no size: %v", err)
	}
}

// TestListOfTheWholeBatch: an output with a free first axis, such as YOLOv7's [n, 7], may list the boxes of a whole
// batch. The error names the required setting, unless the model already has the setting.
func TestListOfTheWholeBatch(t *testing.T) {
	const setting = "batching.max_size: 1"
	for _, c := range []struct {
		name     string
		config   Config
		axis     stream.BatchAxis
		most     int
		output   stream.TensorSpec
		expected bool
	}{
		{"yolo", Config{YOLO: &YOLO{}}, stream.FreeAxis, 8, spec("y", 7), true},
		{"yolo, named", Config{YOLO: &YOLO{Output: "y"}}, stream.FreeAxis, 8, spec("y", 7), true},
		{"boxes", Config{Boxes: &Boxes{}}, stream.FreeAxis, 8, spec("y", 4), true},
		{"other numbers", Config{YOLO: &YOLO{}}, stream.FreeAxis, 8, spec("y", 7, 7, 7), false},
		{"one row", Config{YOLO: &YOLO{}}, stream.FreeAxis, 1, spec("y", 7), false},
		{"fixed axis", Config{YOLO: &YOLO{}}, stream.FixedAxis, 8, spec("y", 7), false},
	} {
		m := modelOf(c.output)
		m.Axis, m.MaxBatch = c.axis, c.most
		if _, err := New(c.config, m); err == nil || strings.Contains(err.Error(), setting) != c.expected {
			t.Errorf("%s: %v, names %s: want %t", c.name, err, setting, c.expected)
		}
	}
}

func TestSizeIsTheInputs(t *testing.T) {
	for _, shape := range [][]int{{3, 240, 320}, {240, 320, 3}, {1, 240, 320}} {
		m := modelOf(spec("b", 1, 4), spec("s", 1))
		m.Image, m.Inputs[0].Shape = nil, shape
		got := answer(t, decoder(t, Config{Boxes: &Boxes{Units: "normalised"}}, m), Mapping{},
			tensor("b", []float32{0, 0, 1, 1}, 1, 1, 4), tensor("s", []float32{1}, 1, 1))
		wantFloats(t, got["boxes"], 0, 0, 320, 240)
	}
}

func TestOtherTensorsThanDeclared(t *testing.T) {
	boxes := tensor("b", make([]float32, 16), 2, 2, 4)
	short := boxes
	short.Data = short.Data[:60]
	double := boxes
	double.Datatype = stream.Float64
	for _, c := range []struct {
		name        string
		row, rows   int
		out         []stream.Tensor
		field, text string
	}{
		{"missing", 0, 1, []stream.Tensor{boxes}, "outputs.s", "missing"},
		{"short", 0, 1, []stream.Tensor{short}, "", "outputs.b.data: 60 bytes"},
		{"type", 0, 1, []stream.Tensor{{Name: "b", Datatype: stream.Float16, Shape: []int{1, 2, 4},
			Data: make([]byte, 16)}}, "outputs.b.datatype", "the model declared FP32"},
		{"type and size", 0, 1, []stream.Tensor{double}, "", "outputs.b.data"},
		{"shape", 0, 1, []stream.Tensor{tensor("b", make([]float32, 8), 1, 4, 2)}, "outputs.b.shape",
			"[-1 4] after the batch axis"},
		{"no batch axis", 0, 1, []stream.Tensor{tensor("b", make([]float32, 8), 2, 4)}, "outputs.b.shape",
			"after the batch axis"},
		{"no shape", 0, 1, []stream.Tensor{tensor("b", make([]float32, 1))}, "outputs.b.shape",
			"does not have the rows"},
		{"rows", 1, 2, []stream.Tensor{boxes}, "outputs.b.shape", "does not have the rows 1 to 3"},
		{"no rows", 0, 0, []stream.Tensor{boxes}, "rows", "are not possible"},
		{"before the first", -1, 1, []stream.Tensor{boxes}, "rows", "are not possible"},
		{"uneven", 0, 1, []stream.Tensor{boxes, tensor("s", make([]float32, 3), 1, 3)}, "outputs.s.shape",
			"has 3 rows for 2 boxes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decoder(t, Config{Boxes: &Boxes{}}, modelOf(spec("b", -1, 4), spec("s", -1)))
			_, err := d.Decode(c.out, c.row, c.rows, Mapping{})
			wantError(t, err, stream.Internal, c.field, c.text)
		})
	}
}

func TestNothingIsAllocated(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	names := labelFile(t, "a\nb\nc\nd")
	detections := func(n int) []float32 { // overlapping, or separate
		v := make([]float32, 8*40)
		for i := range 40 {
			copy(v[8*i:], []float32{float32(i % n * 15), 5, 10, 10, 1, 0.1, 0.9 - float32(i)/100, 0.2})
		}
		return v
	}
	few, many := tensor("o", slices.Concat(detections(1), detections(2)), 2, 40, 8),
		tensor("o", slices.Concat(detections(30), detections(3)), 2, 40, 8)
	v8few, v8many := tensor("o", turn(few.Float32s()[:320], 8), 1, 8, 40), tensor("o", turn(many.Float32s()[:320], 8),
		1, 8, 40)
	half := stream.Tensor{Name: "o", Datatype: stream.Float16, Shape: []int{1, 40, 8},
		Data: bytes.Repeat([]byte{0, 0x4c, 0, 0x4c, 0, 0x4c, 0, 0x4c, 0, 0x3c, 0, 0x3c, 0, 0x3c, 0, 0x3c}, 40)}
	misplaced := tensor("o", make([]float32, 321), 1, 40, 8)
	misplaced.Data = append(make([]byte, 1, 1300), misplaced.Data[:1280]...)[1:]
	for _, c := range []struct {
		name   string
		config Config
		spec   stream.TensorSpec
		outs   [][]stream.Tensor // in turn
		rows   int
	}{
		{"classify", Config{Labels: names, Classify: &Classify{Activation: "softmax"}}, spec("o", 4),
			[][]stream.Tensor{{tensor("o", []float32{1, 2, 3, 4}, 1, 4)}}, 1},
		{"yolo v5", Config{Labels: names, YOLO: &YOLO{Layout: "v5"}}, spec("o", 40, 8),
			[][]stream.Tensor{{few}, {many}}, 2},
		{"yolo v8", Config{Labels: names, YOLO: &YOLO{}}, spec("o", 8, 40), [][]stream.Tensor{{v8few}, {v8many}}, 1},
		{"yolo, FP16", Config{YOLO: &YOLO{Layout: "v5"}}, stream.TensorSpec{Name: "o", Datatype: stream.Float16,
			Shape: []int{40, 8}}, [][]stream.Tensor{{half}}, 1},
		{"yolo, off its place", Config{YOLO: &YOLO{Layout: "v5"}}, spec("o", 40, 8), [][]stream.Tensor{{misplaced}}, 1},
		{"masks", Config{Masks: &Masks{}}, spec("o", 2, 20, 8),
			[][]stream.Tensor{{tensor("o", detections(3), 1, 2, 20, 8)}}, 1},
		{"keypoints", Config{Keypoints: &Keypoints{}}, spec("o", 5, 8, 8),
			[][]stream.Tensor{{tensor("o", detections(3), 1, 5, 8, 8)}}, 1},
		{"embedding", Config{Embedding: &Embedding{Normalise: true}}, spec("o", 320),
			[][]stream.Tensor{{tensor("o", detections(3), 1, 320)}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decoder(t, c.config, modelOf(c.spec))
			pin(t, d, c.rows, c.outs...)
		})
	}
	t.Run("boxes", func(t *testing.T) {
		places, scores := tensor("b", six, 1, 6, 4), func(v ...float32) stream.Tensor { return tensor("s", v, 1, 6, 2) }
		m := modelOf(spec("b", 6, 4), spec("s", 6, 2))
		for _, activation := range []string{"none", "softmax", "sigmoid"} {
			d := decoder(t, Config{Labels: names, Boxes: &Boxes{Activation: activation}}, m)
			pin(t, d, 1, []stream.Tensor{places, scores(0, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0)},
				[]stream.Tensor{places, scores(0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)})
		}
	})
}

// pin fails when decoding outs allocates after each was decoded once.
func pin(t *testing.T, d *Decoder, rows int, outs ...[]stream.Tensor) {
	t.Helper()
	var err error
	all := func() {
		for _, out := range outs {
			if _, e := d.Decode(out, 0, rows, letterbox); e != nil {
				err = e
			}
		}
	}
	if n := testing.AllocsPerRun(100, all); n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}
