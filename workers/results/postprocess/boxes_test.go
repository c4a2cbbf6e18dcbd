package postprocess

import (
	"encoding/binary"
	"math"
	"testing"

	"millrace/stream"
)

// letterbox is a frame of 1280 by 720 in a picture of 640 by 640: half the size, with
// 140 pixels of border above and below.
var letterbox = Mapping{X: [2]float64{2, 0}, Y: [2]float64{2, -280}, Width: 1280, Height: 720}

func TestBoxFormatsUnitsAndMappings(t *testing.T) {
	m := modelOf(spec("b", 1, 4), spec("s", 1))
	for _, c := range []struct {
		name   string
		config Config
		at     Mapping
		raw    []float32
		want   []float32
	}{
		{"xyxy", Config{Boxes: &Boxes{}}, Mapping{}, []float32{10, 20, 30, 60}, []float32{10, 20, 30, 60}},
		{"xywh", Config{Boxes: &Boxes{Format: "xywh"}}, Mapping{}, []float32{10, 20, 20, 40},
			[]float32{10, 20, 30, 60}},
		{"cxcywh", Config{Boxes: &Boxes{Format: "cxcywh"}}, Mapping{}, []float32{20, 40, 20, 40},
			[]float32{10, 20, 30, 60}},
		{"normalised", Config{Boxes: &Boxes{Units: "normalised"}}, Mapping{}, []float32{0.25, 0.5, 0.5, 0.75},
			[]float32{160, 320, 320, 480}},
		{"letterbox", Config{Boxes: &Boxes{}}, letterbox, []float32{100, 200, 300, 400}, []float32{200, 120, 600, 520}},
		{"clamped", Config{Boxes: &Boxes{}}, letterbox, []float32{-5, 0, 700, 640}, []float32{0, 0, 1280, 720}},
		{"normalised letterbox", Config{Boxes: &Boxes{Units: "normalised", Format: "cxcywh"}}, letterbox,
			[]float32{0.5, 0.5, 0.25, 0.125}, []float32{480, 280, 800, 440}},
		{"a tensor is not clamped", Config{Boxes: &Boxes{}}, Mapping{X: [2]float64{2, 0}, Y: [2]float64{2, 0}},
			[]float32{-5, 0, 700, 640}, []float32{-5, 0, 700, 640}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := answer(t, decoder(t, c.config, m), c.at, tensor("b", c.raw, 1, 1, 4),
				tensor("s", []float32{0.9}, 1, 1))
			wantFloats(t, got["boxes"], c.want...)
			wantFloats(t, got["scores"], 0.9)
		})
	}
}

// six has two boxes with an overlap of 0.6, a separate box, a box with a low score, a box with swapped corners and a
// box with NaN.
var six = []float32{
	0, 0, 10, 10,
	0, 0, 10, 6,
	50, 50, 60, 60,
	70, 70, 80, 80,
	30, 30, 20, 20,
	nan, 0, 10, 10,
}

func TestBoxesAreChosen(t *testing.T) {
	one := []float32{0.8, 0.9, 0.7, 0.4, 0.95, 0.99}
	for _, c := range []struct {
		name   string
		config Config
		scores []float32
		want   []float32 // scores, best first
	}{
		{"the better of two", Config{Boxes: &Boxes{}}, one, []float32{0.9, 0.7}},
		{"less overlap is asked for", Config{Boxes: &Boxes{IoU: 0.61}}, one, []float32{0.9, 0.8, 0.7}},
		{"no suppression", Config{Boxes: &Boxes{IoU: 1}}, one, []float32{0.9, 0.8, 0.7}},
		{"a low threshold", Config{Boxes: &Boxes{Threshold: 0.4}}, one, []float32{0.9, 0.7, 0.4}},
		{"a high threshold", Config{Boxes: &Boxes{Threshold: 0.91}}, one, nil},
		{"one at most", Config{Boxes: &Boxes{Max: 1}}, one, []float32{0.9}},
		{"two at most without suppression", Config{Boxes: &Boxes{Max: 2, IoU: 2}}, one, []float32{0.9, 0.8}},
		{"sigmoid", Config{Boxes: &Boxes{Activation: "sigmoid", Threshold: 0.7}},
			[]float32{0, float32(math.Log(3)), 0, 0, 9, 9}, []float32{0.75}},
		{"no numbers", Config{Boxes: &Boxes{}}, []float32{nan, inf, -inf, 0, 1, 1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, shape := range [][]int{{6}, {6, 1}} {
				d := decoder(t, c.config, modelOf(spec("s", shape...), spec("b", 6, 4)))
				got := answer(t, d, Mapping{}, tensor("s", c.scores, append([]int{1}, shape...)...),
					tensor("b", six, 1, 6, 4))
				wantFloats(t, got["scores"], c.want...)
				wantShape(t, got["boxes"], 1, len(c.want), 4)
				if len(got) != 2 {
					t.Errorf("%d tensors for one class", len(got))
				}
			}
		})
	}
}

// TestBoxesOfFreeShape: exports of PyTorch may leave all dimensions free. An output with a free number of columns is
// taken as boxes when the settings name it, and an answer with another number of columns than 4 is an error.
func TestBoxesOfFreeShape(t *testing.T) {
	m := modelOf(spec("b", -1, -1), spec("s", -1, -1))
	_, err := New(Config{Boxes: &Boxes{}}, m)
	wantError(t, err, stream.InvalidArgument, "output.boxes.boxes", "if b has the boxes, set output.boxes.boxes: b")
	d := decoder(t, Config{Boxes: &Boxes{Boxes: "b"}}, m)
	got := answer(t, d, Mapping{}, tensor("b", []float32{10, 20, 30, 60}, 1, 1, 4),
		tensor("s", []float32{0.2, 0.9}, 1, 1, 2))
	wantFloats(t, got["boxes"], 10, 20, 30, 60)
	wantFloats(t, got["scores"], 0.9)
	_, err = d.Decode([]stream.Tensor{tensor("b", []float32{10, 20, 30}, 1, 1, 3),
		tensor("s", []float32{0.2, 0.9}, 1, 1, 2)}, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.b.shape", "has 3 numbers for a box, want 4")
}

func TestClassesOfBoxes(t *testing.T) {
	names := labelFile(t, "cat\ndog")
	places := tensor("b", []float32{0, 0, 10, 10, 0, 0, 10, 9, 0, 0, 10, 8}, 1, 3, 4)
	ln3 := float32(math.Log(3))
	scores := func(v ...float32) stream.Tensor { return tensor("s", v, 1, 3, len(v)/3) }
	for _, c := range []struct {
		name    string
		config  Config
		out     []stream.Tensor
		classes []int64
		scores  []float32
		labels  []string
	}{
		{"the highest score, suppressed per class", Config{Labels: names, Boxes: &Boxes{}},
			[]stream.Tensor{scores(0.6, 0.1, 0.2, 0.7, 0.8, 0.1)},
			[]int64{0, 1}, []float32{0.8, 0.7}, []string{"cat", "dog"}},
		{"background", Config{Labels: names, Boxes: &Boxes{Background: true}},
			[]stream.Tensor{scores(0.1, 0.9, 0, 0.9, 0.6, 0, 0, 0, 0.7)},
			[]int64{0, 1}, []float32{0.9, 0.7}, []string{"cat", "dog"}},
		{"one class and a background", Config{Boxes: &Boxes{Background: true}},
			[]stream.Tensor{scores(0.9, 0.1, 0.2, 0.8, 0.4, 0.6)},
			nil, []float32{0.8}, nil},
		{"softmax counts the background", Config{Boxes: &Boxes{Background: true, Activation: "softmax",
			Threshold: 0.7}}, []stream.Tensor{scores(0, ln3, 0, 0, ln3, 0)},
			nil, []float32{0.75}, nil},
		{"a tensor of classes", Config{Labels: names, Boxes: &Boxes{}},
			[]stream.Tensor{tensor("s", []float32{0.7, 0.8, 0.9}, 1, 3), int64s("c", []int64{1, 0, 7}, 1, 3)},
			[]int64{7, 0, 1}, []float32{0.9, 0.8, 0.7}, []string{"", "cat", "dog"}},
		{"classes as floats after a background", Config{Boxes: &Boxes{Background: true, Classes: "c"}},
			[]stream.Tensor{tensor("s", []float32{0.7, 0.8, 0.9}, 1, 3), tensor("c", []float32{2, 0, nan}, 1, 3)},
			[]int64{1}, []float32{0.7}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := append([]stream.Tensor{places}, c.out...)
			m := modelOf()
			for _, o := range out {
				m.Outputs = append(m.Outputs, stream.TensorSpec{Name: o.Name, Datatype: o.Datatype, Shape: o.Shape[1:]})
			}
			got := answer(t, decoder(t, c.config, m), Mapping{}, out...)
			wantFloats(t, got["scores"], c.scores...)
			wantInts(t, got["classes"], c.classes...)
			wantWords(t, got["labels"], c.labels...)
		})
	}
}

func TestShortRowsArePadded(t *testing.T) {
	d := decoder(t, Config{Labels: labelFile(t, "a\nb"), Boxes: &Boxes{}}, modelOf(spec("b", 2, 4), spec("s", 2, 2)))
	out := []stream.Tensor{
		tensor("b", []float32{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 0, 0, 1, 1, 0, 0, 1, 1}, 3, 2, 4),
		tensor("s", []float32{0, 0.9, 0, 0.1, 0.8, 0, 0, 0.9, 0, 0, 0, 0}, 3, 2, 2),
	}
	got := answer(t, d, Mapping{}, out...)
	wantFloats(t, got["boxes"], 1, 1, 2, 2, 0, 0, 0, 0, 7, 7, 8, 8, 5, 5, 6, 6, 0, 0, 0, 0, 0, 0, 0, 0)
	wantFloats(t, got["scores"], 0.9, 0, 0.9, 0.8, 0, 0)
	wantInts(t, got["classes"], 1, -1, 1, 0, -1, -1)
	wantWords(t, got["labels"], "b", "", "b", "a", "", "")

	// One row is the result for one request of a batch.
	some, err := d.Decode(out, 1, 1, Mapping{})
	if err != nil {
		t.Fatal(err)
	}
	wantFloats(t, some[1], 0.9, 0.8)
	one := some[0].Shape
	if _, err := d.Decode(out, 2, 1, Mapping{}); err != nil || one[1] != 2 {
		t.Errorf("the shape that was returned became %v (%v)", one, err)
	}
}

func TestOtherFloats(t *testing.T) {
	halves := func(name string, v []uint16, shape ...int) stream.Tensor {
		t := stream.Tensor{Name: name, Datatype: stream.Float16, Shape: shape}
		for _, x := range v {
			t.Data = binary.LittleEndian.AppendUint16(t.Data, x)
		}
		return t
	}
	doubles := stream.Tensor{Name: "s", Datatype: stream.Float64, Shape: []int{1, 1},
		Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.75))}
	m := modelOf(stream.TensorSpec{Name: "b", Datatype: stream.Float16, Shape: []int{1, 4}},
		stream.TensorSpec{Name: "s", Datatype: stream.Float64, Shape: []int{1}})
	got := answer(t, decoder(t, Config{Boxes: &Boxes{}}, m), Mapping{},
		halves("b", []uint16{0x3c00, 0xc000, 0x4900, 0x3555}, 1, 1, 4), doubles)
	wantFloats(t, got["boxes"], 1, -2, 10, 0.33325195)
	wantFloats(t, got["scores"], 0.75)
}
