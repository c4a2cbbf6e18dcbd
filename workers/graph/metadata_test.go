package graph

import (
	"fmt"
	"testing"

	"millrace/stream"
	"millrace/workers"
)

// TestShapesOfOutputs: metadata of a graph have the shapes answered by the models of the steps.
func TestShapesOfOutputs(t *testing.T) {
	pixels := stream.TensorSpec{Name: "image", Datatype: stream.Uint8, Shape: []int{-1, -1, 3}, Color: "RGB",
		Unbatched: true}
	boxes := stream.TensorSpec{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}}
	found, drawn := boxes, pixels
	found.Name, drawn.Name, drawn.Color = "found", "drawn", ""
	boxes.Unbatched = true
	class := &stream.Model{Name: "class", AcceptsAnyInput: true, Ragged: true, MaxBatch: 1,
		Inputs: []stream.TensorSpec{pixels, boxes}, Outputs: []stream.TensorSpec{drawn}}
	detector := func(axis stream.BatchAxis, any bool) *stream.Model {
		m := &stream.Model{Name: "detector", MaxBatch: 4, Axis: axis, Outputs: []stream.TensorSpec{found}}
		if any {
			m.AcceptsAnyInput, m.Inputs, m.Outputs[0].Unbatched = true, []stream.TensorSpec{pixels}, true
			return m
		}
		m.Image = &stream.ImageSpec{Width: 32, Height: 24, Color: "RGB", Layout: "NHWC"}
		m.Inputs = []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{24, 32, 3}}}
		return m
	}
	set := &Settings{Steps: []Step{
		{Name: "find", Model: "detector", Input: map[string]string{"image": "frame"}},
		{Name: "draw", Model: "class", Input: map[string]string{"image": "frame", "boxes": "found"}},
	}, Outputs: []string{"found", "drawn"}}
	for name, c := range map[string]struct {
		detector *stream.Model
		want     string
	}{
		"with a batch axis":    {detector(stream.FreeAxis, false), "[-1 24 32 3] [-1 -1 4] [-1 -1 3]"},
		"without a batch axis": {detector(stream.NoAxis, false), "[24 32 3] [-1 4] [-1 -1 3]"},
		"a class":              {detector(stream.FreeAxis, true), "[-1 -1 3] [-1 4] [-1 -1 3]"},
	} {
		_, m, err := newPlan(set, []*stream.Model{c.detector, class}, workers.Declared{})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Inputs) != 1 || len(m.Outputs) != 2 {
			t.Fatalf("%s: inputs %v, outputs %v", name, m.Inputs, m.Outputs)
		}
		if got := fmt.Sprint(m.Shape(&m.Inputs[0]), m.Shape(&m.Outputs[0]), m.Shape(&m.Outputs[1])); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
