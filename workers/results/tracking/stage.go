package tracking

import (
	"encoding/binary"
	"math"
	"slices"

	"millrace/internal/codec"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/workers/results"
)

// Settings configure tracking.
type Settings struct {
	Track bool `yaml:"track" help:"give each object's boxes in a stream the same id, in the output ids"`
	Config
}

// On reports whether tracking is on.
func (s Settings) On() bool { return s.Track }

// Validate refuses all other settings while tracking is off.
func (s Settings) Validate() error {
	var errs []error
	for _, f := range setting.TableOf("output", &s).Fields() {
		if v := f.String(); !s.Track && v != "" && v != f.Default {
			errs = append(errs, stream.Errorf(stream.InvalidArgument, f.Path,
				"is set without output.track, which turns tracking on"))
		}
	}
	return setting.Join(errs...)
}

func init() { results.Register(results.Follow, "output", newStage) }

// ids is the name of the output with the boxes' ids.
const ids = "ids"

// stage is the tracking of one worker.
type stage struct {
	config   Config
	trackers results.Slot
	boxes    []Box // of the current result
	ids      []byte
	env      *results.Env
	camera   camera
	out      []stream.Tensor
	shape    []int // of ids; shared by results, so a different shape needs a new slice
}

func newStage(s Settings, env *results.Env) (results.Stage, error) {
	box := func(t stream.TensorSpec) bool {
		return t.Name == "boxes" && t.Datatype == stream.Float32 && slices.Equal(t.Shape, []int{-1, 4})
	}
	if !env.Decoded || !slices.ContainsFunc(env.Model.Outputs, box) {
		return results.Stage{}, stream.Errorf(stream.InvalidArgument, "output.track",
			"needs boxes: set output.boxes or output.yolo")
	}
	env.Model.Outputs = append(slices.Clone(env.Model.Outputs), stream.TensorSpec{Name: ids, Datatype: stream.Int64,
		Shape: []int{-1}})
	env.MaxAge = s.withDefaults().MaxAge
	t := &stage{config: s.Config, env: env, trackers: env.Slot()}
	if !s.Camera {
		return results.Stage{After: t.after}, nil
	}
	if m := env.Worker; m.Image == nil || m.AcceptsAnyInput || m.Ragged {
		return results.Stage{}, stream.Errorf(stream.InvalidArgument, "output.track_camera",
			"compares pictures, but model %s takes none", m.Name)
	}
	return results.Stage{Before: t.before, After: t.after}, nil
}

// before adds the motion since the last picture of the stream.
func (t *stage) before(r *stream.Request) (none results.Answer, answered bool) {
	if r.Codec == stream.Tensors || r.Stream.Options().OneShot {
		return none, false
	}
	k := t.tracker(r)
	if k.scene == nil {
		k.scene = &scene{moved: still}
	}
	small := codec.Target{Width: cameraWidth, Height: cameraHeight, Color: codec.Gray}
	p, err := t.env.Picture(r, small, k.scene.next())
	if err != nil {
		return none, false // preparing the frame will return the error
	}
	k.scene.add(&t.camera, [6]float64{p.ScaleX, p.ScaleY, p.OriginX, p.OriginY, float64(p.Width), float64(p.Height)})
	return none, false
}

// after adds the ids of a result's boxes. A one-shot request belongs to no stream and gets zeros.
func (t *stage) after(r *stream.Request, in results.Outputs) ([]stream.Tensor, error) {
	if r.Rows != 1 {
		return nil, stream.Errorf(stream.InvalidArgument, "inputs.shape",
			"has %d rows: send the frames of a tracked stream one by one", r.Rows)
	}
	i := slices.IndexFunc(in.Tensors, func(t stream.Tensor) bool { return t.Name == "boxes" })
	if i < 0 {
		return nil, stream.Errorf(stream.Internal, "output.track", "the result has no boxes")
	}
	t.readBoxes(in.Tensors[i].Data)
	t.readScores(in.Tensors)
	t.ids = t.ids[:0]
	if r.Stream.Options().OneShot {
		t.ids = append(t.ids, make([]byte, 8*len(t.boxes))...)
	} else {
		for _, id := range t.tracker(r).Update(r.Time(), t.boxes) {
			t.ids = binary.LittleEndian.AppendUint64(t.ids, uint64(id))
		}
	}
	if len(t.shape) == 0 || t.shape[1] != len(t.boxes) {
		t.shape = []int{1, len(t.boxes)}
	}
	t.out = append(append(t.out[:0], in.Tensors...), stream.Tensor{Name: ids, Datatype: stream.Int64, Shape: t.shape,
		Data: t.ids})
	return t.out, nil
}

func (t *stage) tracker(r *stream.Request) *Tracker {
	k, _ := t.trackers.Get(r).(*Tracker)
	if k == nil {
		k = New(t.config)
		t.trackers.Set(r, k, nil)
	}
	return k
}

func (t *stage) readBoxes(data []byte) {
	t.boxes = t.boxes[:0]
	for ; len(data) >= 16; data = data[16:] {
		t.boxes = append(t.boxes, Box{X1: float32At(data, 0), Y1: float32At(data, 1), X2: float32At(data, 2),
			Y2: float32At(data, 3)})
	}
}

// readScores adds the boxes' scores, and the boxes' classes if the result has classes.
func (t *stage) readScores(outputs []stream.Tensor) {
	for _, o := range outputs {
		switch {
		case o.Name == "scores" && o.Datatype == stream.Float32 && len(o.Data) == 4*len(t.boxes):
			for i := range t.boxes {
				t.boxes[i].Score = float32At(o.Data, i)
			}
		case o.Name == "classes" && o.Datatype == stream.Int64 && len(o.Data) == 8*len(t.boxes):
			for i := range t.boxes {
				t.boxes[i].Class = int32(binary.LittleEndian.Uint64(o.Data[8*i:]))
			}
		}
	}
}

func float32At(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}
