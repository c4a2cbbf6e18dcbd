package postprocess

import (
	"fmt"
	"slices"
	"testing"

	"millrace/internal/setting"
	"millrace/stream"
)

func TestMasks(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		out    stream.Tensor
		want   []byte
	}{
		{"the highest of three", Config{Masks: &Masks{}}, tensor("m", []float32{
			1, 0, 0, nan,
			0, 2, 0, nan,
			0, 1, inf, nan}, 1, 3, 2, 2), []byte{0, 1, 0, 0}},
		{"logits below 0", Config{Masks: &Masks{Activation: "softmax"}}, tensor("m", []float32{-3, -2, -2, -3}, 1, 2,
			1, 2), []byte{1, 0}},
		{"one channel", Config{Masks: &Masks{}}, tensor("m", []float32{0.5, 0.49, nan, inf}, 1, 1, 2, 2),
			[]byte{1, 0, 0, 0}},
		{"one channel, threshold", Config{Masks: &Masks{Threshold: 0.8}}, tensor("m", []float32{0.79, 0.81}, 1, 1, 1,
			2), []byte{0, 1}},
		{"one channel, sigmoid", Config{Masks: &Masks{Activation: "sigmoid", Threshold: 0.75}},
			tensor("m", []float32{1, 1.2}, 1, 1, 1, 2), []byte{0, 1}},
		{"classes", Config{Masks: &Masks{}}, tensor("m", []float32{0, 2, 255, 256, -1, nan}, 1, 2, 3),
			[]byte{0, 2, 255, 0, 0, 0}},
		{"whole classes", Config{Masks: &Masks{}}, int64s("m", []int64{3, 300}, 1, 1, 2), []byte{3, 0}},
		{"whole classes of one channel", Config{Masks: &Masks{}}, int64s("m", []int64{3, 1}, 1, 1, 1, 2), []byte{3, 1}},
		{"two rows", Config{Masks: &Masks{}}, tensor("m", []float32{1, 0, 0, 1}, 2, 2, 1, 1), []byte{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decoder(t, c.config, modelOf(stream.TensorSpec{Name: "m", Datatype: c.out.Datatype,
				Shape: c.out.Shape[1:]}))
			for range 2 { // the second time in the memory of the first
				got := answer(t, d, letterbox, c.out)
				if !slices.Equal(got["mask"].Data, c.want) {
					t.Errorf("mask %v, want %v", got["mask"].Data, c.want)
				}
				rows := c.out.Shape[0]
				wantShape(t, got["mask"], append([]int{rows}, c.out.Shape[len(c.out.Shape)-2:]...)...)
				region := []float32{0, -280, 1280, 1000}
				if rows == 2 {
					region = append(region, region...)
				}
				wantFloats(t, got["region"], region...)
			}
			wantFloats(t, answer(t, d, Mapping{}, c.out)["region"], slices.Repeat([]float32{0, 0, 640, 640},
				c.out.Shape[0])...)
		})
	}
}

func TestMaskThresholdIsWhatItsSettingSays(t *testing.T) {
	f, ok := setting.TableOf("", new(Masks)).Find("threshold")
	if !ok || f.Unset != fmt.Sprint(maskThreshold) {
		t.Errorf("left out it is said to be %q, and is %v", f.Unset, maskThreshold)
	}
}
