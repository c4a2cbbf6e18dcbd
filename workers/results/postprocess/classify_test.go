package postprocess

import (
	"math"
	"testing"

	"millrace/stream"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func TestClassify(t *testing.T) {
	names := labelFile(t, "\ufeffcat\r\n dog \n\nowl\n\n")
	for _, c := range []struct {
		name    string
		config  Config
		raw     []float32
		rows    int
		classes []int64
		scores  []float32
		labels  []string
	}{
		{"best first", Config{Classify: &Classify{TopK: 2}}, []float32{0.1, 0.7, 0.2, 0}, 1, []int64{1, 2},
			[]float32{0.7, 0.2}, nil},
		{"fewer classes than by default", Config{Classify: &Classify{}}, []float32{0.1, 0.7, 0.2, 0}, 1,
			[]int64{1, 2, 0, 3}, []float32{0.7, 0.2, 0.1, 0}, nil},
		{"equal scores", Config{Classify: &Classify{TopK: 3}}, []float32{0.1, 0.2, 0.1, 0.2}, 1, []int64{1, 3, 0},
			[]float32{0.2, 0.2, 0.1}, nil},
		{"softmax", Config{Classify: &Classify{TopK: 2, Activation: "softmax"}},
			[]float32{0, float32(math.Log(3)), float32(math.Log(4)), -inf}, 1, []int64{2, 1}, []float32{0.5, 0.375},
			nil},
		{"sigmoid", Config{Classify: &Classify{TopK: 2, Activation: "sigmoid"}},
			[]float32{0, float32(math.Log(3)), -1, -2}, 1, []int64{1, 0}, []float32{0.75, 0.5}, nil},
		{"large numbers", Config{Classify: &Classify{TopK: 2, Activation: "softmax"}}, []float32{3e38, -3e38, 3e38, 0},
			1, []int64{0, 2}, []float32{0.5, 0.5}, nil},
		{"labels", Config{Labels: names, Classify: &Classify{TopK: 3}}, []float32{0.1, 0.7, 0.8, 0.9}, 1,
			[]int64{3, 2, 1}, []float32{0.9, 0.8, 0.7}, []string{"owl", "", "dog"}},
		{"no numbers", Config{Labels: names, Classify: &Classify{TopK: 3}}, []float32{nan, 0.5, inf, -inf}, 1,
			[]int64{1, -1, -1}, []float32{0.5, 0, 0}, []string{"dog", "", ""}},
		{"rows", Config{Classify: &Classify{TopK: 1}}, []float32{1, 0, 0, 0, 0, 0, 0.5, 0}, 2, []int64{0, 2},
			[]float32{1, 0.5}, nil},
		{"rounded scores", Config{Classify: &Classify{TopK: 1}}, []float32{1.0005, -0.0005, 0, 0}, 1, []int64{0},
			[]float32{1.0005}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, shape := range [][]int{{4}, {4, 1, 1}, {-1}} {
				full := append([]int{c.rows}, shape...)
				full[1] = 4
				got := answer(t, decoder(t, c.config, modelOf(spec("out", shape...))), Mapping{},
					tensor("out", c.raw, full...))
				wantInts(t, got["classes"], c.classes...)
				wantFloats(t, got["scores"], c.scores...)
				wantWords(t, got["labels"], c.labels...)
				wantShape(t, got["classes"], c.rows, len(c.classes)/c.rows)
			}
		})
	}
}

// TestClassifyLogits: scores outside of 0..1 are an error that names the setting, also below 0 and behind values that
// are no numbers. With an activation, every number is a score.
func TestClassifyLogits(t *testing.T) {
	for _, raw := range [][]float32{{0.1, 0.2, 2.5}, {-0.5, 0.2, 0.3}, {nan, inf, -3}, {0, 0, 0, 0, 0, 9}} {
		m, in := modelOf(spec("out", 3)), tensor("out", raw, len(raw)/3, 3)
		_, err := decoder(t, Config{Classify: &Classify{}}, m).Decode([]stream.Tensor{in}, 0, len(raw)/3, Mapping{})
		wantError(t, err, stream.Internal, "outputs.out", "want 0 to 1: set output.classify.activation: softmax")
		for _, a := range []string{"softmax", "sigmoid"} {
			answer(t, decoder(t, Config{Classify: &Classify{Activation: a}}, m), Mapping{}, in)
		}
	}
}

// TestTopKAboveClasses: a top_k above a known number of classes is refused at load.
func TestTopKAboveClasses(t *testing.T) {
	for top, ok := range map[int]bool{0: true, 1: true, 3: true, 4: false, 5: false} {
		_, err := New(Config{Classify: &Classify{TopK: top}}, modelOf(spec("out", 3)))
		if ok && err != nil {
			t.Errorf("top_k %d: %v", top, err)
		} else if !ok {
			wantError(t, err, stream.InvalidArgument, "output.classify.top_k",
				"output out has 3 classes: want at most 3")
		}
	}
	if _, err := New(Config{Classify: &Classify{TopK: 9}}, modelOf(spec("out", -1))); err != nil {
		t.Error(err)
	}
}

func TestLabelFiles(t *testing.T) {
	m := modelOf(spec("out", 3))
	long := make([]byte, 1025)
	for i := range long {
		long[i] = 'x'
	}
	for _, c := range []struct{ path, text string }{
		{"/does/not/exist", "no such file"},
		{t.TempDir(), "is not a file"},
		{labelFile(t, "a\nb\n"), "has 2 names for 3 classes"},
		{labelFile(t, "\n"), "is empty"},
		{labelFile(t, "a\xff\nb\nc"), "not UTF-8"},
		{labelFile(t, "a\n"+string(long)+"\nc"), "line 2"},
		{labelFile(t, string(make([]byte, 4<<20+1))), "larger than"},
	} {
		_, err := New(Config{Labels: c.path, Classify: &Classify{}}, m)
		wantError(t, err, stream.InvalidArgument, "output.labels", c.text)
	}
	_, err := New(Config{Labels: labelFile(t, "background\na\nb"), Boxes: &Boxes{Background: true}},
		modelOf(spec("b", 9, 4), spec("s", 9, 3)))
	wantError(t, err, stream.InvalidArgument, "output.labels", "leave the name of the background out")

	// A number of classes that varies is known only with the outputs.
	d := decoder(t, Config{Labels: labelFile(t, "a\nb"), Classify: &Classify{}}, modelOf(spec("out", -1)))
	answer(t, d, Mapping{}, tensor("out", []float32{0.1, 0.2}, 1, 2))
	_, err = d.Decode([]stream.Tensor{tensor("out", []float32{1, 2, 3}, 1, 3)}, 0, 1, Mapping{})
	wantError(t, err, stream.InvalidArgument, "output.labels", "has 2 names for 3 classes")
}
