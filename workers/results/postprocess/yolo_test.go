package postprocess

import (
	"testing"

	"millrace/stream"
)

// turn transposes rows of width numbers to columns.
func turn(v []float32, width int) []float32 {
	n := len(v) / width
	out := make([]float32, len(v))
	for i := range n {
		for j := range width {
			out[j*n+i] = v[i*width+j]
		}
	}
	return out
}

func TestYolo(t *testing.T) {
	names := labelFile(t, "cat\ndog\nowl\n")
	// Eight boxes: two overlapping boxes of class 1, the same of class 0, a box with a low score, a box in the
	// border, two with an invalid place.
	v5 := []float32{
		320, 320, 100, 50, 0.9, 0.1, 0.8, 0.0,
		322, 320, 100, 50, 0.9, 0.1, 0.9, 0.0,
		320, 320, 100, 50, 0.5, 0.9, 0.0, 0.0,
		100, 300, 20, 20, 0.4, 0.0, 0.0, 0.5,
		200, 100, 20, 100, 1.0, 0.0, 0.0, 0.3,
		200, 300, inf, 100, 1.0, 0.0, 0.0, 1.0,
		200, nan, 10, 10, 1.0, 0.0, 0.0, 1.0,
		200, 300, 10, 10, 0.1, 0.0, 1.0, 0.0,
	}
	boxes := []float32{
		544, 310, 744, 410,
		540, 310, 740, 410,
		380, 0, 420, 20,
	}
	var v8 []float32
	for i := 0; i < len(v5); i += 8 {
		v8 = append(v8, v5[i:i+4]...)
		for _, s := range v5[i+5 : i+8] {
			v8 = append(v8, s*v5[i+4])
		}
	}
	for _, c := range []struct {
		name   string
		layout string
		spec   stream.TensorSpec
		out    stream.Tensor
	}{
		{"v5", "", spec("out", -1, 8), tensor("out", v5, 1, 8, 8)},
		{"v5 named", "v5", spec("out", 8, 8), tensor("out", v5, 1, 8, 8)},
		{"v8", "", spec("out", 7, 8), tensor("out", turn(v8, 7), 1, 7, 8)},
		{"v8 named", "v8", spec("out", 7, -1), tensor("out", turn(v8, 7), 1, 7, 8)},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decoder(t, Config{Labels: names, YOLO: &YOLO{Layout: c.layout}}, modelOf(c.spec))
			got := answer(t, d, letterbox, c.out)
			wantFloats(t, got["boxes"], boxes...)
			wantFloats(t, got["scores"], 0.81, 0.45, 0.3)
			wantInts(t, got["classes"], 1, 0, 2)
			wantWords(t, got["labels"], "dog", "cat", "owl")
		})
	}
}

func TestYoloOfOneClass(t *testing.T) {
	d := decoder(t, Config{YOLO: &YOLO{Units: "normalised"}}, modelOf(spec("out", 5, 7)))
	raw := make([]float32, 35)
	for j, v := range []float32{0.5, 0.5, 0.1, 0.2, 0.9} {
		raw[j*7+3] = v
	}
	got := answer(t, d, Mapping{}, tensor("out", raw, 1, 5, 7))
	wantFloats(t, got["boxes"], 288, 256, 352, 384)
	if _, ok := got["classes"]; ok || len(got) != 2 {
		t.Errorf("one class has no tensor of classes: %v", got)
	}
}
