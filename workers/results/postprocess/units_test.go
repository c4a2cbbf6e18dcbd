package postprocess

import (
	"math"
	"testing"

	"millrace/stream"
)

func TestCoordinatesInAnotherUnit(t *testing.T) {
	box := func(v ...float32) []stream.Tensor {
		return []stream.Tensor{tensor("b", v, 1, len(v)/4, 4), tensor("s", []float32{0.9, 0.8}[:len(v)/4], 1, len(v)/4)}
	}
	points := func(v ...float32) []stream.Tensor { return []stream.Tensor{tensor("b", v, 1, len(v)/2, 2)} }
	yolo := func(v ...float32) []stream.Tensor {
		return []stream.Tensor{tensor("b", boxesOf(84, 6, true, append(v, 0.9, 0)), 1, 6, 84)}
	}
	normalised, pixels := "set output.", "units: pixels"
	for _, c := range []struct {
		name   string
		config Config
		out    []stream.Tensor
		text   string // of the error; "" = none
	}{
		{"normalised boxes read as pixels", Config{Boxes: &Boxes{}}, box(0.1, 0.2, 0.5, 0.6, 0.2, 0.2, 1.1, 0.9),
			normalised + "boxes.units: normalised"},
		{"pixels beside a box in the corner", Config{Boxes: &Boxes{}}, box(0, 0, 1, 1, 10, 10, 20, 20), ""},
		{"boxes of zeros", Config{Boxes: &Boxes{}}, box(0, 0, 0, 0), ""},
		{"pixels read as normalised boxes", Config{Boxes: &Boxes{Units: "normalised"}}, box(10, 20, 30, 60),
			"set output.boxes." + pixels},
		{"normalised boxes over the edge", Config{Boxes: &Boxes{Units: "normalised"}}, box(-0.5, 0, 2, 1), ""},
		{"normalised yolo", Config{YOLO: &YOLO{}}, yolo(0.5, 0.5, 0.2, 0.2), normalised + "yolo.units: normalised"},
		{"yolo with units", Config{YOLO: &YOLO{Units: "normalised"}}, yolo(0.5, 0.5, 0.2, 0.2), ""},
		{"yolo, pixels", Config{YOLO: &YOLO{Units: "normalised"}}, yolo(32, 32, 20, 20), "set output.yolo." + pixels},
		{"normalised points", Config{Keypoints: &Keypoints{}}, points(0.1, 0.2, 0.5, 0.6),
			normalised + "keypoints.units: normalised"},
		{"points in pixels", Config{Keypoints: &Keypoints{Units: "normalised"}}, points(10, 20),
			"set output.keypoints." + pixels},
	} {
		t.Run(c.name, func(t *testing.T) {
			var specs []stream.TensorSpec
			for _, o := range c.out {
				specs = append(specs, spec(o.Name, o.Shape[1:]...))
			}
			_, err := decoder(t, c.config, small(nil, specs...)).Decode(c.out, 0, 1, Mapping{})
			if c.text == "" && err != nil {
				t.Fatal(err)
			}
			if c.text != "" {
				wantError(t, err, stream.Internal, "outputs.b", c.text)
			}
		})
	}
}

func TestScoresOfBoxesWithoutActivation(t *testing.T) {
	m := small(nil, spec("b", 1, 4), spec("s", 1, 3))
	out := []stream.Tensor{tensor("b", []float32{10, 10, 20, 20}, 1, 1, 4), tensor("s", []float32{-2, 4.5, 1}, 1, 1, 3)}
	_, err := decoder(t, Config{Boxes: &Boxes{}}, m).Decode(out, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.s",
		"has the score 4.5, want 0 to 1: set output.boxes.activation: sigmoid")
	got := answer(t, decoder(t, Config{Boxes: &Boxes{Activation: "sigmoid"}}, m), Mapping{}, out...)
	wantFloats(t, got["scores"], float32(1/(1+math.Exp(-4.5))))
}

func TestYOLOXIsDecoded(t *testing.T) {
	// 64 boxes of the grid of 8 pixels, 16 of the grid of 16, 4 of the grid of 32.
	v := boxesOf(84, 7, false)
	at := func(i int, box ...float32) { copy(v[i*7:], box) }
	at(1*8+2, 0.5, 0.5, 0, float32(math.Log(2)), 1, 0.9, 0) // row 1, column 2: (2.5, 1.5) * 8
	at(64+3, 0, 1, float32(math.Log(1.5)), 0, 1, 0, 0.8)    // row 0, column 3: (3, 1) * 16
	at(83, 0, 0, float32(math.Log(0.5)), 0, 0.7, 1, 0)      // row 1, column 1: (1, 1) * 32
	got := answer(t, decoder(t, Config{YOLO: &YOLO{Layout: "yolox", Threshold: 0.4}}, small(nil, spec("o", 84, 7))),
		Mapping{}, tensor("o", v, 1, 84, 7))
	wantFloats(t, got["boxes"], 16, 4, 24, 20, 36, 8, 60, 24, 24, 16, 40, 48)
	wantFloats(t, got["scores"], 0.9, 0.8, 0.7)
	wantInts(t, got["classes"], 0, 1, 0)

	free := decoder(t, Config{YOLO: &YOLO{Layout: "yolox"}}, small(nil, spec("o", -1, 7)))
	_, err := free.Decode([]stream.Tensor{tensor("o", v[:7*50], 1, 50, 7)}, 0, 1, Mapping{})
	wantError(t, err, stream.Internal, "outputs.o.shape", "YOLOX's grids have 84 boxes")
	_, err = New(Config{YOLO: &YOLO{Layout: "yolox", Units: "normalised"}}, small(nil, spec("o", 84, 7)))
	wantError(t, err, stream.InvalidArgument, "output.yolo.units", "leave units out")
}
