package stream

import "hash/maphash"

// classes is a seed that no client knows: two shapes of one class would be laid
// out in one batch.
var classes = maphash.MakeSeed()

// TensorSpec describes one input or output of a model. A dimension of -1 may
// vary. The shape leaves the batch axis out.
type TensorSpec struct {
	Name     string
	Datatype Datatype
	Shape    []int
}

// ImageSpec says how pictures become a model's input tensor. A model that has
// one takes pictures and raw video frames; they are decoded, turned upright,
// resized and normalised straight into the batch.
type ImageSpec struct {
	Width  int        `yaml:"width" unset:"the model's" min:"1" max:"16384" help:"pixels"`
	Height int        `yaml:"height" unset:"the model's" min:"1" max:"16384" help:"pixels"`
	Color  string     `yaml:"color" unset:"the model's" words:"RGB BGR GRAY" help:"order of the channels"`
	Layout string     `yaml:"layout" unset:"the model's" words:"NHWC NCHW" help:"order of the axes"`
	Fit    string     `yaml:"fit" unset:"stretch" words:"stretch letterbox" help:"how a picture of another shape is fitted in"`
	Scale  [3]float32 `yaml:"scale" unset:"1" help:"of FP32 inputs: (pixel*scale - mean) / std, one number or three"`
	Mean   [3]float32 `yaml:"mean" unset:"0" help:"one number or three"`
	Std    [3]float32 `yaml:"std" unset:"1" help:"one number or three"`
}

// Model is what a loaded model says of itself. It does not change while the
// model is loaded.
type Model struct {
	Name     string // the endpoint
	Version  string
	Platform string // the worker kind
	Inputs   []TensorSpec
	Outputs  []TensorSpec
	Image    *ImageSpec // Inputs[0] as a picture, or nil
	Assembly Assembly   // makes its input of a stream's frames; nil when each frame is a request
	Any      bool       // takes any inputs as they come (identity, delay)
	Ragged   bool       // batches are views of the requests' own tensors, not one contiguous tensor
	Stateful bool       // keeps state per stream: one frame of a stream in flight, in order
	Affinity bool       // the state lives in one worker: a stream stays with it
	Fixed    bool       // the batch axis is fixed: short batches are padded
	MaxBatch int        // rows, >= 1
	Policy   Policy     // defaults of its streams
}

// Batched says whether requests carry a batch axis in front of Shape.
func (m *Model) Batched() bool { return !m.Any && m.MaxBatch > 1 }

// KeepsState says whether something of a stream is kept from one frame to the next.
func (m *Model) KeepsState() bool { return m.Stateful || m.Assembly != nil }

// Check says whether the model takes f, and returns how many rows of a batch it
// needs and the class of batch it can join: frames of one class have equal
// shapes. Any tensor's own data must already fit its shape (Tensor.CheckSize).
func (m *Model) Check(f *Frame) (rows int, class uint64, err error) {
	if f.Region != (Region{}) {
		if err = m.checkRegion(f); err != nil {
			return 0, 0, err
		}
	}
	if m.Any {
		return m.checkAny(f)
	}
	if f.Codec != Tensors {
		if m.Image == nil {
			if f.Codec == Opaque && len(m.Inputs) == 1 && m.Inputs[0].Datatype == Bytes {
				return 1, 0, nil
			}
			return 0, 0, Errorf(Unsupported, "codec", "model %s takes tensors, not %s frames: see its inputs at /v2/models/%s", m.Name, f.Codec, m.Name)
		}
		if !f.Codec.Picture() {
			return 0, 0, Errorf(Unsupported, "codec", "model %s takes pictures, not %s: send jpeg, png, webp, rgb24 or nv12", m.Name, f.Codec)
		}
		return 1, 0, nil
	}
	return m.checkTensors(f)
}

// checkRegion refuses a region of what has no pixels, or none that the model sees.
func (m *Model) checkRegion(f *Frame) error {
	if !m.Any && m.Image != nil && f.Codec.Picture() {
		return nil
	}
	return Errorf(Unsupported, "roi", "is cut out of pictures for models that see pixels: model %s with a frame of %s does not. Leave the region out", m.Name, f.Codec)
}

func (m *Model) checkAny(f *Frame) (int, uint64, error) {
	if f.Codec == Tensors && len(f.Inputs) == 0 {
		return 0, 0, Errorf(InvalidArgument, "inputs", "is empty: send at least one tensor")
	}
	return 1, 0, nil
}

func (m *Model) checkTensors(f *Frame) (rows int, class uint64, err error) {
	if len(f.Inputs) > len(m.Inputs) {
		return 0, 0, Errorf(InvalidArgument, "inputs", "%d tensors, model %s has %d", len(f.Inputs), m.Name, len(m.Inputs))
	}
	for i := range m.Inputs {
		spec := &m.Inputs[i]
		t := find(f.Inputs, spec.Name)
		if t == nil {
			return 0, 0, Errorf(InvalidArgument, "inputs", "%q is missing", spec.Name)
		}
		if t.Datatype != spec.Datatype {
			return 0, 0, Errorf(InvalidArgument, "inputs."+t.Name+".datatype", "is %s, model %s wants %s", t.Datatype, m.Name, spec.Datatype)
		}
		n, dims, ok := split(t.Shape, spec.Shape)
		if !ok {
			return 0, 0, Errorf(InvalidArgument, "inputs."+t.Name+".shape", "is %v, model %s wants %v, with a batch axis in front of it if you like (-1 = any)", t.Shape, m.Name, spec.Shape)
		}
		if i > 0 && n != rows {
			return 0, 0, Errorf(InvalidArgument, "inputs."+t.Name+".shape", "has %d rows, the input before it %d", n, rows)
		}
		rows = n
		for j, d := range dims {
			if spec.Shape[j] < 0 && !m.Ragged {
				class = maphash.Comparable(classes, [2]uint64{class, uint64(d)}) // over the free dimensions
			}
		}
	}
	if rows > m.MaxBatch {
		return 0, 0, Errorf(InvalidArgument, "inputs.shape", "%d rows, model %s takes at most %d at once (batching.max_size)", rows, m.Name, m.MaxBatch)
	}
	if rows < 1 {
		return 0, 0, Errorf(InvalidArgument, "inputs.shape", "has no rows")
	}
	return rows, class, nil
}

func find(ts []Tensor, name string) *Tensor {
	for i := range ts {
		if ts[i].Name == name {
			return &ts[i]
		}
	}
	return nil
}

// split takes the batch axis off shape. Without one the tensor is one row.
func split(shape, want []int) (rows int, dims []int, ok bool) {
	rows, dims = 1, shape
	if len(shape) == len(want)+1 {
		rows, dims = shape[0], shape[1:]
	}
	if len(dims) != len(want) {
		return 0, nil, false
	}
	for i, d := range dims {
		if d < 0 || want[i] >= 0 && d != want[i] {
			return 0, nil, false
		}
	}
	return rows, dims, true
}
