package postprocess

import (
	"testing"

	"millrace/stream"
)

func TestKeypoints(t *testing.T) {
	heat := make([]float32, 2*4*8) // two maps of 4 rows of 8 cells of 80 by 160 pixels
	heat[1*8+3], heat[1*8+4], heat[0*8+3] = 0.9, 0.5, 0.1
	heat[32+0], heat[32+1] = -1, -2
	for i := range heat[32:] {
		heat[32+i] -= 3
	}
	heat[32] = -0.5
	for _, c := range []struct {
		name   string
		config Config
		out    []stream.Tensor
		shape  []int
		want   []float32
	}{
		{"points", Config{Keypoints: &Keypoints{}},
			[]stream.Tensor{tensor("k", []float32{100, 200, 640, 320}, 1, 2, 2)},
			[]int{1, 1, 2, 3}, []float32{200, 120, 1, 1280, 360, 1}},
		{"points with a tensor of scores", Config{Keypoints: &Keypoints{}},
			[]stream.Tensor{tensor("k", []float32{100, 200, 640, 320}, 1, 2, 2),
				tensor("s", []float32{0.5, 0.25}, 1, 2)},
			[]int{1, 1, 2, 3}, []float32{200, 120, 0.5, 1280, 360, 0.25}},
		{"points with scores, normalised", Config{Keypoints: &Keypoints{Units: "normalised"}},
			[]stream.Tensor{tensor("k", []float32{0.5, 0.5, 0.7}, 1, 1, 3)},
			[]int{1, 1, 1, 3}, []float32{640, 360, 0.7}},
		{"below the threshold and no numbers", Config{Keypoints: &Keypoints{Threshold: 0.5}},
			[]stream.Tensor{tensor("k", []float32{0, 140, 0.4, 0, 140, 0.6, nan, 1, 1, 1, inf, 1, 1, 1, nan}, 1, 5, 3)},
			[]int{1, 1, 5, 3}, []float32{0, 0, 0, 0, 0, 0.6, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"bodies outside the frame", Config{Keypoints: &Keypoints{}},
			[]stream.Tensor{tensor("k", []float32{-1, 0, 0.5, 700, 640, 0.6}, 1, 2, 1, 3)},
			[]int{1, 2, 1, 3}, []float32{-2, -280, 0.5, 1400, 1000, 0.6}},
		{"a score for each body", Config{Keypoints: &Keypoints{Scores: "s"}},
			[]stream.Tensor{tensor("k", []float32{0, 140, 0, 140, 0, 140, 0, 140}, 1, 2, 2, 2),
				tensor("s", []float32{0.5, 0.25}, 1, 2)},
			[]int{1, 2, 2, 3}, []float32{0, 0, 0.5, 0, 0, 0.5, 0, 0, 0.25, 0, 0, 0.25}},
		// x: (3.5+0.25)*80*2; y: (1.5-0.25)*160*2-280. At an edge the position is not refined.
		{"heat maps", Config{Keypoints: &Keypoints{}}, []stream.Tensor{tensor("k", heat, 1, 2, 4, 8)},
			[]int{1, 1, 2, 3}, []float32{600, 120, 0.9, 80, -120, -0.5}},
		{"heat maps below the threshold", Config{Keypoints: &Keypoints{Threshold: 0.1}},
			[]stream.Tensor{tensor("k", heat, 1, 2, 4, 8)},
			[]int{1, 1, 2, 3}, []float32{600, 120, 0.9, 80, -120, 0}},
		{"a map of no numbers", Config{Keypoints: &Keypoints{}},
			[]stream.Tensor{tensor("k", []float32{nan, inf, nan, nan}, 1, 1, 1, 4)},
			[]int{1, 1, 1, 3}, []float32{0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := modelOf()
			for _, o := range c.out {
				m.Outputs = append(m.Outputs, spec(o.Name, o.Shape[1:]...))
			}
			got := answer(t, decoder(t, c.config, m), letterbox, c.out...)["keypoints"]
			wantFloats(t, got, c.want...)
			wantShape(t, got, c.shape...)
		})
	}
}

func TestEmbedding(t *testing.T) {
	for _, c := range []struct {
		normalise bool
		raw, want []float32
	}{
		{false, []float32{3, 4}, []float32{3, 4}},
		{true, []float32{3, 4}, []float32{0.6, 0.8}},
		{true, []float32{3e38, 0}, []float32{1, 0}},
		{true, []float32{0, 0}, []float32{0, 0}},
		{true, []float32{nan, -2}, []float32{0, -1}},
		{false, []float32{inf, -2}, []float32{0, -2}},
	} {
		d := decoder(t, Config{Embedding: &Embedding{Normalise: c.normalise}}, modelOf(spec("e", 1, 2)))
		got := answer(t, d, Mapping{}, tensor("e", c.raw, 1, 1, 2))["embedding"]
		wantFloats(t, got, c.want...)
		wantShape(t, got, 1, 2)
	}
}

func TestScoresOfOtherSizes(t *testing.T) {
	d := decoder(t, Config{Keypoints: &Keypoints{}}, modelOf(spec("k", -1, 2, 2), spec("s", -1)))
	points := tensor("k", make([]float32, 8), 1, 2, 2, 2)
	answer(t, d, Mapping{}, points, tensor("s", []float32{1, 0}, 1, 2))
	_, err := d.Decode([]stream.Tensor{points, tensor("s", []float32{1, 0, 1}, 1, 3)}, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.s.shape", "2 bodies of 2 points")

	d = decoder(t, Config{Keypoints: &Keypoints{}}, modelOf(spec("k", 1, -1, 9)))
	_, err = d.Decode([]stream.Tensor{tensor("k", nil, 1, 1, 0, 9)}, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.k.shape", "not a heat map")
	d = decoder(t, Config{Masks: &Masks{}}, modelOf(spec("m", 1, -1, 9)))
	_, err = d.Decode([]stream.Tensor{tensor("m", nil, 1, 1, 0, 9)}, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.m.shape", "not a mask")
	d = decoder(t, Config{Boxes: &Boxes{}}, modelOf(spec("b", 1, 4), spec("s", 1, -1)))
	_, err = d.Decode([]stream.Tensor{tensor("b", make([]float32, 4), 1, 1, 4), tensor("s", nil, 1, 1, 0)}, 0, 1,
		Mapping{})
	wantError(t, err, stream.Internal, "outputs.s.shape", "no class")
}
