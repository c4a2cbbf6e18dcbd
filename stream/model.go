package stream

import "time"

// TensorSpec describes one input or output of a model. A dimension of -1 is variable.
// The shape does not include the batch axis: Model.Shape adds it.
type TensorSpec struct {
	Name     string
	Datatype Datatype
	Shape    []int
	// Unbatched says that it has no batch axis although the model has one: an output of a
	// model that takes one row at a time is that of the row, and the tensors of a model that
	// takes any inputs are as they come.
	Unbatched bool
	// Color says of an input of several that it is a picture: UINT8 [height, width, channels]
	// with the channels RGB, BGR or GRAY; "" = it is not known to be one.
	Color string
	// Optional says of an input that a request may leave it out.
	Optional bool
}

// BatchAxis says what the first dimension of a model's tensors is.
type BatchAxis uint8

// The kinds of batch axis.
const (
	FreeAxis  BatchAxis = iota // a batch of 1 to MaxBatch rows
	FixedAxis                  // a batch of MaxBatch rows: short batches are padded
	NoAxis                     // no batch: the model computes one request at a time
)

// ImageSpec says how pictures become a model's input tensor. A model that has
// one takes pictures and raw video frames; they are decoded, turned upright,
// resized and normalised straight into the batch.
type ImageSpec struct {
	Width  int        `yaml:"width" unset:"the model's" min:"1" max:"16384" advanced:"yes" help:"width of the input in pixels"`
	Height int        `yaml:"height" unset:"the model's" min:"1" max:"16384" advanced:"yes" help:"height of the input in pixels"`
	Color  string     `yaml:"color" unset:"the model's" words:"RGB BGR GRAY" help:"order of the channels"`
	Layout string     `yaml:"layout" unset:"the model's" words:"NHWC NCHW" advanced:"yes" help:"order of the axes"`
	Fit    string     `yaml:"fit" unset:"stretch" words:"stretch letterbox" help:"how a picture with another aspect ratio is fitted"`
	Scale  [3]float32 `yaml:"scale" unset:"1" help:"factor of FP32 and FP16 inputs, a number, or three for the channels: (pixel * scale - mean) / std"`
	Mean   [3]float32 `yaml:"mean" unset:"0" help:"mean of FP32 and FP16 inputs, a number, or three for the channels"`
	Std    [3]float32 `yaml:"std" unset:"1" help:"divisor of FP32 and FP16 inputs, a number, or three for the channels"`
}

// PictureStep is the picture that a step of a graph gets: the picture of the request, or each crop of it.
type PictureStep struct {
	Step          string
	Width, Height int // 0 = the picture's, or the crop's, own size
	Color         string
	Crop          bool
}

// Model describes a loaded model. It does not change while the model is loaded.
type Model struct {
	Name     string // by which clients call it: its endpoint
	Version  string
	Platform string // what computes it, as metadata say
	Inputs   []TensorSpec
	Outputs  []TensorSpec
	Image    *ImageSpec   // Inputs[0] as a picture, or nil
	Assembly Assembly     // makes requests of a stream's frames; nil when each frame is a request
	Any      bool         // takes any inputs as they come (identity, delay); frames of video as NV12
	Ragged   bool         // batches are views of the requests' own tensors, not one contiguous tensor
	Joined   bool         // a ragged batch's tensors are joined to one: they have equal shapes but for their rows
	Stateful bool         // keeps state per stream: one frame of a stream in flight, in order
	StateRow int          // bytes of state that a row of a batch has besides its inputs and outputs
	Affinity bool         // the state lives in one worker: the stream's frames run on it only
	Whole    bool         // parts of its pictures are looked at again: frames of video are not scaled to Image
	Axis     BatchAxis    // what the first dimension of its tensors is
	MaxBatch int          // rows, >= 1; 1 with NoAxis
	Policy   Policy       // defaults of its streams
	Queue    QueuePolicy  // of its frames that wait for a worker
	Counts   *FrameCounts // of its frames; nil when nobody reads them
	Cache    *Cache       // of the results of one-shot requests, or nil
	Params   Params       // with which its workers were loaded; must not be changed

	// Decoupled says that it may answer a request several times (Request.Emit) before it
	// ends it.
	Decoupled bool
	// Calls says that it takes frames with a Call besides its inputs, as a model with an App
	// does: routes of other models send theirs to it.
	Calls bool
	// App has the routes of a model that is a program with routes of its own; nil = it has none.
	App *App
	// Metadata are what the exporter has written into the model's file, by key; nil = nothing.
	Metadata map[string]string
	// Labels are the names of the elements of a row of an output, such as classes, by the
	// output's name; nil = there are none.
	Labels map[string][]string
	// PictureSteps are the pictures that the steps of a graph get, when one size does not describe them: the steps have several sizes, or
	// take crops. Image is then that of one step.
	PictureSteps []PictureStep
	// Sequences bound the sequences of requests, of a model that keeps state.
	Sequences Sequences
	// Cost estimates how long decoding a request's pictures takes; nil = they are not decoded
	// before a run. It is called with the lock of the request's stream held.
	Cost func(*Request) time.Duration
}

// Sequences bound the sequences of requests to a model: streams whose frames are the
// requests that clients send one by one.
type Sequences struct {
	Idle time.Duration `yaml:"idle" default:"1s" min:"1ms" max:"24h" request:"24h" advanced:"yes" help:"a sequence without a request for this time ends, and the state is released"`
	Max  int           `yaml:"max" default:"4096" min:"1" max:"1048576" request:"1048576" advanced:"yes" help:"most sequences at once; each sequence also counts for max_flows"`
}

// FrameSize returns the size to which frames of a video may be scaled for m; 0, 0 = m needs them in the size of the video:
// it takes pictures as they were sent, or looks at parts of them again.
func (m *Model) FrameSize() (width, height int) {
	if m.Any || m.Whole || m.Image == nil {
		return 0, 0
	}
	return m.Image.Width, m.Image.Height
}

// Shape returns the shape of an input or output of m as clients see it, in metadata and
// in answers: with the batch axis, if it has one, in front. A free axis is -1, a fixed
// one its number of rows.
func (m *Model) Shape(s *TensorSpec) []int {
	switch {
	case m.Axis == NoAxis || s.Unbatched:
		return s.Shape
	case m.Axis == FixedAxis:
		return append([]int{m.MaxBatch}, s.Shape...)
	}
	return append([]int{-1}, s.Shape...)
}

// TrimRows changes the shapes of a request's outputs to those that clients get. Inside
// the server every output has an axis of rows in front; it is removed where Shape has
// none. The shapes' memory is shared, not written.
func (m *Model) TrimRows(outputs []Tensor) {
	if m.Axis == FreeAxis {
		return
	}
	for i := range outputs {
		if t := &outputs[i]; len(t.Shape) > 0 && (m.Axis == NoAxis || m.unbatched(t.Name)) {
			t.Shape = t.Shape[1:]
		}
	}
}

func (m *Model) unbatched(output string) bool {
	for i := range m.Outputs {
		if m.Outputs[i].Name == output {
			return m.Outputs[i].Unbatched
		}
	}
	return false
}

// KeepsState reports whether something of a stream is kept from one frame to the next.
func (m *Model) KeepsState() bool { return m.Stateful || m.Assembly != nil }

// newAssembler returns the assembler of a stream of m, or nil when it needs none.
func (m *Model) newAssembler(oneShot bool) Assembler {
	if m.Assembly == nil {
		return nil
	}
	return m.Assembly.NewAssembler(m, oneShot)
}

// Assembly makes the assemblers of a model whose requests are not single frames. The
// implementation that cuts windows is in package stream/window.
type Assembly interface {
	// NewAssembler returns the assembler of one stream of m. The frames of a one-shot
	// stream are independent of each other.
	NewAssembler(m *Model, oneShot bool) Assembler
}

// Assembler makes requests of the frames of one stream. It gets each frame before the
// mailbox does, so that a dropped request leaves no gap in the input of later ones. The
// stream calls it with the stream's lock held: an Assembler needs no lock, must not
// block and must not call the stream.
type Assembler interface {
	// IsRequest reports whether f alone is a request, which needs no assembling.
	IsRequest(f *Frame) bool
	// Assemble adds f to the frames before it and makes f the input of the request, of
	// that many rows, that it completes. parts are the other frames of the request, or
	// nil; params are put into the result and are not written to. With 0 rows f
	// completes no request: it is answered in its turn, without a run. After an error
	// the assembler is empty and f is not part of any request. An error that wraps
	// buf.ErrBudget drops the frame for want of memory.
	Assemble(f *Frame) (rows int, parts *Assembled, params Params, err error)
	// Reset forgets all frames so far: the next one is treated as the first.
	Reset()
	// Adopt reports whether what was assembled for the present model can be used by m.
	// If so, the assembler continues for m.
	Adopt(m *Model) bool
}

// Assembled is what an Assembler has made of several frames, or of parts of them.
type Assembled struct {
	Stride int     // bytes from one row of the only input to the next: rows may overlap
	Frames []Frame // or the pictures of the only row, the oldest first; the last is the request's own
}

// release returns the frames' memory, except that of the last one, which the request
// owns.
func (a *Assembled) release() {
	if a == nil || len(a.Frames) == 0 {
		return
	}
	for _, f := range a.Frames[:len(a.Frames)-1] {
		f.Lease.Release()
	}
	a.Frames = nil
}
