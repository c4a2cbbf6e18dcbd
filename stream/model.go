package stream

import "time"

// TensorSpec describes one input or output of a model. A dimension of -1 is variable. The shape does not include the
// batch axis: Model.Shape adds the batch axis.
type TensorSpec struct {
	Name     string
	Datatype Datatype
	Shape    []int
	// Unbatched is true for a tensor without batch axis in a model with a batch axis: an output per row of a model
	// that takes one row at a time, or a tensor of a model that takes any input unchanged.
	Unbatched bool
	// Color marks one of several inputs as a picture: UINT8 [height, width, channels] with the channels RGB, BGR or
	// GRAY; "" = not known to be a picture.
	Color string
	// Optional inputs may be missing in a request.
	Optional bool
}

// BatchAxis is the meaning of the first dimension of a model's tensors.
type BatchAxis uint8

// The kinds of batch axis.
const (
	FreeAxis  BatchAxis = iota // a batch of 1 to MaxBatch rows
	FixedAxis                  // a batch of MaxBatch rows: short batches are padded
	NoAxis                     // no batch: the model computes one request at a time
)

// ImageSpec describes how pictures become a model's input tensor. A model with an ImageSpec takes pictures and raw
// video frames; the server decodes, turns upright, resizes and normalises pictures straight into the batch.
type ImageSpec struct {
	Width  int        `yaml:"width" unset:"the model's" min:"1" max:"16384" advanced:"yes" example:"640" help:"width of the input in pixels"`
	Height int        `yaml:"height" unset:"the model's" min:"1" max:"16384" advanced:"yes" example:"640" help:"height of the input in pixels"`
	Color  string     `yaml:"color" unset:"the model's" words:"RGB BGR GRAY" help:"order of the channels"`
	Layout string     `yaml:"layout" unset:"the model's" words:"NHWC NCHW" advanced:"yes" help:"order of the axes"`
	Fit    string     `yaml:"fit" unset:"stretch" words:"stretch letterbox" help:"how a picture with another aspect ratio is fitted"`
	Scale  [3]float32 `yaml:"scale" unset:"1" example:"0.00392157" help:"factor of FP32 and FP16 inputs, a number, or three for the channels: (pixel * scale - mean) / std"`
	Mean   [3]float32 `yaml:"mean" unset:"0" help:"mean of FP32 and FP16 inputs, a number, or three for the channels"`
	Std    [3]float32 `yaml:"std" unset:"1" help:"divisor of FP32 and FP16 inputs, a number, or three for the channels"`
}

// PictureStep describes the picture for a step of a graph: the picture of the request, or each crop of that picture.
type PictureStep struct {
	Step          string
	Width, Height int // 0 = the picture's, or the crop's, own size
	Color         string
	Crop          bool
}

// Model describes a loaded model. A Model does not change while loaded.
type Model struct {
	Name            string // endpoint, the name for clients
	Version         string
	Platform        string // what computes the model, as in metadata
	Inputs          []TensorSpec
	Outputs         []TensorSpec
	Image           *ImageSpec   // Inputs[0] as a picture, or nil
	Assembly        Assembly     // makes requests of a stream's frames; nil when each frame is a request
	AcceptsAnyInput bool         // takes any input unchanged (identity, delay); video frames as NV12
	Files           bool         // takes and answers files (FileRun) of tasks, and refuses requests
	Ragged          bool         // a batch is a list of views of the requests' tensors, not one contiguous tensor
	JoinRagged      bool         // a ragged batch's tensors are joined to one: shapes are equal except for the rows
	Stateful        bool         // keeps state per stream: one frame of a stream in flight, in order
	StateRow        int          // bytes of state per batch row, besides inputs and outputs
	Affinity        bool         // the state is in one worker: only this worker runs the stream's frames
	AppliesRules    bool         // applies the rules of a stream (Options.Rules)
	NeedsFullSize   bool         // looks at parts of pictures again: video frames are not scaled to Image
	Axis            BatchAxis    // meaning of the tensors' first dimension
	MaxBatch        int          // rows, >= 1; 1 with NoAxis
	Policy          Policy       // defaults for streams
	Queue           QueuePolicy  // of frames waiting for a worker
	Counts          *FrameCounts // of frames; nil when nobody reads the counts
	Cache           *Cache       // results of one-shot requests, or nil
	Params          Params       // of loading, for the workers; must not be changed

	// A Decoupled model may answer a request several times (Request.Emit) before ending the request.
	Decoupled bool
	// Calls is true for a model that takes frames with a Call besides its inputs, like a model with an App: routes of
	// other models send frames to this model.
	Calls bool
	// App has the routes of a model that is a program with its own routes; nil = none.
	App *App
	// Metadata is the metadata written into the model's file by the exporter, by key; nil = none.
	Metadata map[string]string
	// Labels has the names of the elements of an output row, such as classes, by the output's name; nil = none.
	Labels map[string][]string
	// Classes names the classes of the objects (AppliesRules), by number; nil = unknown, empty = no names.
	Classes []string
	// PictureSteps describes the pictures for the steps of a graph when one size is not enough: the steps have
	// several sizes, or take crops. Image is then the spec of one step.
	PictureSteps []PictureStep
	// Sequences bounds the sequences of requests, for a model with state.
	Sequences Sequences
	// Cost estimates the time to decode a request's pictures; nil = pictures are not decoded before a run. Cost is
	// called with the lock of the request's stream held.
	Cost func(*Request) time.Duration
}

// Sequences bounds the sequences of requests to a model: streams whose frames are requests sent one by one.
type Sequences struct {
	Idle time.Duration `yaml:"idle" default:"1s" min:"1ms" max:"24h" request:"24h" advanced:"yes" help:"a sequence without a request for this time ends, and the state is released"`
	Max  int           `yaml:"max" default:"4096" min:"1" max:"1048576" request:"1048576" advanced:"yes" help:"most sequences at once; each sequence also counts for max_flows"`
}

// FrameSize returns the size to which video frames may be scaled for m; 0, 0 = m needs frames of the original size,
// because m takes pictures as sent or looks at parts again.
func (m *Model) FrameSize() (width, height int) {
	if m.AcceptsAnyInput || m.NeedsFullSize || m.Image == nil {
		return 0, 0
	}
	return m.Image.Width, m.Image.Height
}

// Shape returns the shape of an input or output of m for clients, in metadata and in answers: with the batch axis, if
// any, in front. A free axis is -1, a fixed axis its number of rows.
func (m *Model) Shape(s *TensorSpec) []int {
	switch {
	case m.Axis == NoAxis || s.Unbatched:
		return s.Shape
	case m.Axis == FixedAxis:
		return append([]int{m.MaxBatch}, s.Shape...)
	}
	return append([]int{-1}, s.Shape...)
}

// TrimRows changes the shapes of a request's outputs to the clients' shapes. Inside the server every output has an
// axis of rows in front; TrimRows removes that axis where Shape has none. The shapes' memory is shared, not written.
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

// KeepsState reports whether a stream keeps data from one frame to the next.
func (m *Model) KeepsState() bool { return m.Stateful || m.Assembly != nil }

// newAssembler returns a new assembler for a stream of m, or nil when m needs none.
func (m *Model) newAssembler(oneShot bool) Assembler {
	if m.Assembly == nil {
		return nil
	}
	return m.Assembly.NewAssembler(m, oneShot)
}

// Assembly makes the assemblers of a model whose requests are not single frames. Package stream/window implements
// Assembly for windows.
type Assembly interface {
	// NewAssembler returns an assembler for one stream of m. The frames of a one-shot stream are independent of each
	// other.
	NewAssembler(m *Model, oneShot bool) Assembler
}

// Assembler makes requests from the frames of one stream. The stream passes each frame to the Assembler before the
// mailbox, so that a dropped request leaves no gap in the input of later requests. The stream holds its lock during
// the calls: an Assembler needs no lock, must not block and must not call the stream.
type Assembler interface {
	// IsRequest reports whether f alone is a request and needs no assembling.
	IsRequest(f *Frame) bool
	// Assemble adds f to the earlier frames and turns f into the input of the completed request, with the returned
	// rows. parts are the other frames of the request, or nil; params go into the result and must not be written to.
	// With 0 rows, f completes no request: f is answered in turn, without a run. After an error the assembler is
	// empty and f is not part of any request. An error that wraps buf.ErrBudget drops the frame for want of memory.
	Assemble(f *Frame) (rows int, parts *Assembled, params Params, err error)
	// Reset forgets all earlier frames; the next frame counts as the first.
	Reset()
	// Adopt reports whether m can use the frames assembled for the present model. If so, the assembler continues for
	// m.
	Adopt(m *Model) bool
}

// Assembled is the Assembler's result for several frames, or for parts of frames.
type Assembled struct {
	Stride int     // bytes from one row of the only input to the next: rows may overlap
	Frames []Frame // or the pictures of the only row, the oldest first; the last is the request's own
}

// release returns the memory of all frames but the last; the request owns the last.
func (a *Assembled) release() {
	if a == nil || len(a.Frames) == 0 {
		return
	}
	for _, f := range a.Frames[:len(a.Frames)-1] {
		f.Lease.Release()
	}
	a.Frames = nil
}
