package graph_test

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// viewer is a kind that takes a picture in several forms, with boxes, and answers with its inputs.
type viewer struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "viewer", New: func() workers.Worker { return &viewer{} }})
}

func (*viewer) Init(context.Context, *workers.Env) (*stream.Model, error) {
	spec := func(name, color string, shape ...int) stream.TensorSpec {
		return stream.TensorSpec{Name: name, Datatype: stream.Uint8, Shape: shape, Color: color}
	}
	list := []stream.TensorSpec{spec("rgb", "RGB", -1, -1, 3), spec("bgr", "BGR", -1, -1, 3),
		spec("gray", "", 1, 20, 1)}
	m := &stream.Model{MaxBatch: 1, Axis: stream.NoAxis, Ragged: true,
		Inputs: append(list, stream.TensorSpec{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}})}
	for _, s := range list {
		m.Outputs = append(m.Outputs, spec("seen_"+s.Name, "", s.Shape...))
	}
	m.Outputs = append(m.Outputs, stream.TensorSpec{Name: "seen_boxes", Datatype: stream.Float32, Shape: []int{-1, 4}})
	return m, nil
}

func (*viewer) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		var out []stream.Tensor
		for _, t := range r.Inputs {
			// with the axis of rows
			t.Name, t.Data, t.Shape = "seen_"+t.Name, slices.Clone(t.Data), append([]int{1}, t.Shape...)
			out = append(out, t)
		}
		b.Finish(i, out)
	}
	return nil
}

func viewing(views ...string) graph.Settings {
	in := map[string]string{"boxes": "boxes"}
	for _, v := range views {
		in[v] = "frame"
	}
	return graph.Settings{Outputs: []string{"seen_rgb", "seen_bgr", "seen_gray", "seen_boxes"}, Steps: []graph.Step{
		{Name: "look", Model: "viewer", Input: in}, // listed before the step that look waits for
		{Name: "find", Model: "boxer", Input: map[string]string{"image": "frame"},
			Output: map[string]string{"boxes": "boxes"}},
	}}
}

// A step gets the picture of the request in the forms of the step's inputs, with boxes of another step, for any form
// of the sent picture.
func TestPixelsAndBoxes(t *testing.T) {
	x := newMachine(t)
	x.load("boxer", "boxer", nil)
	x.load("viewer", "viewer", nil)
	x.graph(viewing("rgb", "bgr", "gray"))
	picture := image.NewRGBA(image.Rect(0, 0, 40, 2))
	var rgb, bgr []byte
	for y := range 2 {
		for i := range 40 {
			c := color.RGBA{byte(5 * i), byte(100 * y), 200, 255}
			picture.Set(i, y, c)
			rgb, bgr = append(rgb, c.R, c.G, c.B), append(bgr, c.B, c.G, c.R)
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		t.Fatal(err)
	}
	for _, f := range []stream.Frame{
		{Codec: stream.RGB24, Width: 40, Height: 2, Payload: rgb}, {Codec: stream.PNG, Payload: file.Bytes()},
	} {
		lease, err := x.memory.Lease(len(f.Payload))
		if err != nil {
			t.Fatal(err)
		}
		copy(lease.Bytes(), f.Payload)
		f.Lease, f.Payload, f.Params = lease, lease.Bytes(), stream.Params{"n": int64(2)}
		r := x.infer("g", f)
		if r.Err != nil {
			t.Fatal(f.Codec, r.Err)
		}
		for name, want := range map[string][]byte{"seen_rgb": rgb, "seen_bgr": bgr} {
			if got := output(t, r, name); !bytes.Equal(got.Data, want) || !slices.Equal(got.Shape, []int{2, 40, 3}) {
				t.Errorf("%s: %s is %v %v", f.Codec, name, got.Shape, got.Data)
			}
		}
		if got := output(t, r, "seen_gray"); !slices.Equal(got.Shape, []int{1, 20, 1}) || len(got.Data) != 20 ||
			got.Data[0] >= got.Data[19] {
			t.Errorf("%s: gray is %v %v", f.Codec, got.Shape, got.Data)
		}
		if got := output(t, r, "seen_boxes").Float32s(); !slices.Equal(got, []float32{0, 0, 1, 2, 1, 0, 2, 2}) {
			t.Errorf("%s: boxes are %v", f.Codec, got)
		}
		r.Release()
	}
	// Tensors of a request cannot become pixels, and the error of an unreadable picture names the step.
	bad, err := x.memory.Lease(3)
	if err != nil {
		t.Fatal(err)
	}
	r := x.infer("g", stream.Frame{Codec: stream.PNG, Payload: bad.Bytes(), Lease: bad,
		Params: stream.Params{"n": int64(1)}})
	if r.Err == nil || !strings.HasPrefix(r.Err.Error(), "steps.") {
		t.Errorf("%v", r.Err)
	}
	r.Release()
}

func TestPixelsOfWhatIsNoPicture(t *testing.T) {
	x := newMachine(t)
	x.load("two", "scale", nil)
	x.load("viewer", "viewer", nil)
	set := graph.Settings{Steps: []graph.Step{
		{Name: "a", Model: "two"}, {Name: "b", Model: "viewer", Input: map[string]string{"gray": "y", "rgb": "x",
			"bgr": "x"}},
	}}
	err := x.tryLoad(workers.Config{Name: "h", Kind: "graph", Params: set.Params()})
	if err == nil || !strings.Contains(err.Error(), "steps.b.input.") {
		t.Errorf("%v", err)
	}
}

// large is a kind that takes pictures of 4x4.
type large struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "large", New: func() workers.Worker { return &large{} }})
}

func (*large) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 8, Image: &stream.ImageSpec{Width: 4, Height: 4, Color: "GRAY", Layout: "NHWC"},
		Inputs:  []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{4, 4, 1}}},
		Outputs: []stream.TensorSpec{{Name: "size", Datatype: stream.Uint8, Shape: []int{1}}},
	}, nil
}

func (*large) Run(context.Context, *batching.Batch) error { return nil }

// TestPictureSteps: the metadata of a graph have the picture of each step when the steps differ, also of a graph
// within the graph; frames of video keep their size when steps want several sizes.
func TestPictureSteps(t *testing.T) {
	x := newMachine(t)
	x.load("viewer", "viewer", nil)
	x.load("boxer", "boxer", nil)
	x.load("mean", "mean", nil)
	x.load("large", "large", nil)
	frame, gray := map[string]string{"image": "frame"}, func(step string, side int, crop bool) stream.PictureStep {
		return stream.PictureStep{Step: step, Width: side, Height: side, Color: "GRAY", Crop: crop}
	}
	find := graph.Step{Name: "find", Model: "boxer", Input: frame}
	cut := graph.Step{Name: "cut", Model: "mean", Input: frame, Crop: &graph.Crop{Boxes: "boxes"},
		Output: map[string]string{"mean": "m", "list": "l"}}
	for _, c := range []struct {
		name  string
		steps []graph.Step
		want  []stream.PictureStep
		whole bool
	}{
		{"one", []graph.Step{find}, nil, false},
		{"alike", []graph.Step{find, {Name: "mean", Model: "mean", Input: frame}}, nil, false},
		{"sizes", []graph.Step{find, {Name: "large", Model: "large", Input: frame,
			Output: map[string]string{"size": "s"}}}, []stream.PictureStep{gray("find", 2, false),
			gray("large", 4, false)}, true},
		{"crops", []graph.Step{find, cut}, []stream.PictureStep{gray("find", 2, false), gray("cut", 2, true)}, true},
		{"inner", []graph.Step{{Name: "all", Model: "crops", Input: map[string]string{"frame": "picture"}},
			{Name: "large", Model: "large", Input: map[string]string{"image": "picture"},
				Output: map[string]string{"size": "s"}}},
			[]stream.PictureStep{gray("all.find", 2, false), gray("all.cut", 2, true), gray("large", 4, false)}, true},
		{"pixels", viewing("rgb", "bgr", "gray").Steps, []stream.PictureStep{{Step: "look", Color: "RGB"},
			{Step: "look", Color: "BGR"}, {Step: "look", Width: 20, Height: 1, Color: "GRAY"}, gray("find", 2, false)},
			true},
	} {
		if err := x.tryLoad(workers.Config{Name: c.name, Kind: "graph",
			Params: (&graph.Settings{Steps: c.steps}).Params()}); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		g, err := x.models.Group(c.name, "")
		if err != nil {
			t.Fatal(err)
		}
		if m := g.Model(); !slices.Equal(m.PictureSteps, c.want) || m.NeedsFullSize != c.whole {
			t.Errorf("%s: %+v, whole %v: want %+v, %v", c.name, m.PictureSteps, m.NeedsFullSize, c.want, c.whole)
		}
	}
}
