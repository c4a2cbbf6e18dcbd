package workers

import (
	"reflect"
	"strings"
	"testing"

	"millrace/stream"
)

func TestApplyImage(t *testing.T) {
	fp32 := func(shape ...int) []stream.TensorSpec {
		return []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: shape}}
	}
	tests := []struct {
		name   string
		inputs []stream.TensorSpec
		own    *stream.ImageSpec
		set    *stream.ImageSpec
		want   stream.ImageSpec
		shape  []int
		err    string
	}{
		{name: "all from the shape", inputs: fp32(3, 240, 320), set: &stream.ImageSpec{},
			want: stream.ImageSpec{Width: 320, Height: 240, Color: "RGB", Layout: "NCHW"}, shape: []int{3, 240, 320}},
		{name: "channels last, grey", inputs: fp32(28, 30, 1), set: &stream.ImageSpec{},
			want: stream.ImageSpec{Width: 30, Height: 28, Color: "GRAY", Layout: "NHWC"}, shape: []int{28, 30, 1}},
		{name: "free sides", inputs: fp32(3, -1, -1), set: &stream.ImageSpec{Width: 64, Height: 48, Color: "BGR"},
			want: stream.ImageSpec{Width: 64, Height: 48, Color: "BGR", Layout: "NCHW"}, shape: []int{3, 48, 64}},
		{name: "laid over the worker's own", inputs: fp32(48, 64, 3), own: &stream.ImageSpec{Width: 64, Height: 48,
			Fit: "stretch"}, set: &stream.ImageSpec{Fit: "letterbox"},
			want:  stream.ImageSpec{Width: 64, Height: 48, Color: "RGB", Layout: "NHWC", Fit: "letterbox"},
			shape: []int{48, 64, 3}},
		{name: "a side of 0", inputs: fp32(3, 0, 8), set: &stream.ImageSpec{},
			want: stream.ImageSpec{Width: 8, Color: "RGB", Layout: "NCHW"}, shape: []int{3, 0, 8}},
		{name: "another side than 0", inputs: fp32(3, 0, 8), set: &stream.ImageSpec{Height: 4},
			err: "input.image.height: is 4, but input x of model m has 0"},
		{name: "free sides, not said", inputs: fp32(3, -1, -1), set: &stream.ImageSpec{Width: 64},
			err: "input.image.height: is missing"},
		{name: "another size", inputs: fp32(3, 240, 320), set: &stream.ImageSpec{Width: 640},
			err: "input.image.width: is 640, but input x of model m has 320"},
		{name: "other channels", inputs: fp32(1, 240, 320), set: &stream.ImageSpec{Color: "RGB"},
			err: "input.image.color: is RGB, but input x of model m has 1 channels"},
		{name: "no picture", inputs: fp32(1000), set: &stream.ImageSpec{}, err: "which is not a picture"},
		{name: "four channels", inputs: fp32(4, 16, 16), set: &stream.ImageSpec{}, err: "which is not a picture"},
		{name: "whole numbers", inputs: []stream.TensorSpec{{Name: "ids", Datatype: stream.Int64,
			Shape: []int{3, 8, 8}}}, set: &stream.ImageSpec{}, err: "input ids of model m is INT64"},
		{name: "two inputs", inputs: append(fp32(3, 8, 8), fp32(2)...), set: &stream.ImageSpec{}, err: "has 2 inputs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &stream.Model{Name: "m", Inputs: tt.inputs, Image: tt.own}
			err := ApplyImage(m, tt.set)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *m.Image != tt.want || !reflect.DeepEqual(m.Inputs[0].Shape, tt.shape) {
				t.Errorf("got %+v with shape %v, want %+v with %v", *m.Image, m.Inputs[0].Shape, tt.want, tt.shape)
			}
		})
	}
}
