package workers

import (
	"slices"
	"strings"
	"testing"

	"millrace/stream"
	"millrace/stream/window"
)

func TestApplyInputs(t *testing.T) {
	fp32 := func(shape ...int) []stream.TensorSpec {
		return []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: shape}}
	}
	for _, tt := range []struct {
		name   string
		inputs []stream.TensorSpec
		any    bool
		ragged bool
		image  *stream.ImageSpec
		window Window
		shape  []int
		hop    int
		err    string
	}{
		{name: "none", inputs: fp32(-1, 3), shape: []int{-1, 3}},
		{name: "samples", inputs: fp32(640), window: Window{640, 320}, shape: []int{640}, hop: 320},
		{name: "the model's length", inputs: fp32(640), window: Window{Hop: 320}, shape: []int{640}, hop: 320},
		{name: "no overlap", inputs: fp32(640, 2), window: Window{Length: 640}, shape: []int{640, 2}, hop: 640},
		{name: "any length", inputs: fp32(-1), window: Window{16000, 8000}, shape: []int{16000}, hop: 8000},
		{name: "pictures", inputs: fp32(8, 3, 240, 320), image: &stream.ImageSpec{}, window: Window{Hop: 1},
			shape: []int{8, 3, 240, 320}, hop: 1},
		{name: "pictures of any size", inputs: fp32(-1, 3, -1, -1), image: &stream.ImageSpec{Width: 4, Height: 2},
			window: Window{5, 1}, shape: []int{5, 3, 2, 4}, hop: 1},
		{name: "one sample", inputs: fp32(1), window: Window{1, 1}, shape: []int{1}, hop: 1},
		{name: "a length of 0", inputs: fp32(0), window: Window{Hop: 1}, err: "has the shape [0]: all but the length"},
		{name: "another length than 0", inputs: fp32(0), window: Window{Length: 5},
			err: "window.length: is 5, but input x of model m has 0"},
		{name: "another length", inputs: fp32(640), window: Window{320, 320},
			err: "window.length: is 320, but input x of model m has 640"},
		{name: "no length", inputs: fp32(-1), window: Window{Hop: 320},
			err: "window.length: is missing: model m takes any"},
		{name: "free features", inputs: fp32(640, -1), window: Window{Length: 640},
			err: "window: is set, but input x of model m has the shape [640 -1]: all but the length"},
		{name: "a number", inputs: fp32(), window: Window{Length: 640},
			err: "window: is set, but input x of model m has no dimension for it"},
		{name: "two inputs", inputs: append(fp32(640), fp32(2)...), window: Window{Length: 640},
			err: "window: is set, but model m has 2 inputs"},
		{name: "no picture", inputs: fp32(640), image: &stream.ImageSpec{}, window: Window{Length: 640},
			err: "which is not a picture"},
		{name: "anything", any: true, window: Window{Length: 640}, err: "window: is set, but identity takes anything"},
		{name: "text", inputs: fp32(640), ragged: true, window: Window{Length: 640},
			err: "window: is set, but model m takes text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &stream.Model{Name: "m", Platform: "identity", Inputs: tt.inputs, AcceptsAnyInput: tt.any,
				Ragged: tt.ragged}
			err := ApplyInputs(m, tt.image, tt.window, nil)
			if err == nil {
				err = ApplyInputs(m, tt.image, tt.window, nil) // the group calls ApplyInputs again
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w, cut := m.Assembly.(*window.Window)
			if !slices.Equal(m.Inputs[0].Shape, tt.shape) || cut != (tt.hop > 0) || m.KeepsState() != cut {
				t.Fatalf("shape %v, assembly %v", m.Inputs[0].Shape, m.Assembly)
			}
			if cut && (w.Hop != tt.hop || w.Length != tt.shape[0]) {
				t.Errorf("%+v, want length %d and hop %d", w, tt.shape[0], tt.hop)
			}
		})
	}
}

func TestWindowSettings(t *testing.T) {
	for want, w := range map[string]Window{
		"window.length: -1 is not between 1 and 16777216":    {Length: -1},
		"window.hop: -1 is not between 1 and 16777216":       {Length: 1, Hop: -1},
		"window.hop: 16777217 is not between 1 and 16777216": {Hop: 1<<24 + 1},
	} {
		if err := (Config{Name: "m", Kind: "identity", Window: w}).Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", w, err, want)
		}
	}
	a := Config{Window: Window{640, 320}}.WithDefaults()
	if b := a; !a.CanShareGroup(b) {
		t.Error("not the same")
	} else if b.Window.Hop = 160; a.CanShareGroup(b) {
		t.Error("another hop is the same")
	}
}
