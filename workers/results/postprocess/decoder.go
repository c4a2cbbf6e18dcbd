package postprocess

import (
	"millrace/stream"
)

// Mapping maps pixels of the model's picture to the frame as sent: pixel p becomes p*X[0]+X[1] in the frame, or with
// Y. Width and Height are the frame's; 0 means a frame sent as a tensor: results keep the model's pixels.
type Mapping struct {
	X, Y          [2]float64
	Width, Height int
}

// Decoder makes results from raw tensors, for one goroutine at a time.
type Decoder struct {
	kind kind
	part part
}

// kind is one kind of result.
type kind interface {
	specs() []stream.TensorSpec // without the batch axis
	decode(*part) ([]stream.Tensor, error)
}

// part is the decoded range of rows of raw tensors.
type part struct {
	tensors   []stream.Tensor
	row, rows int
	at        Mapping
}

// New returns a Decoder for the raw outputs of m. Errors name the setting and the model's outputs.
func New(c Config, m *stream.Model) (*Decoder, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	names, all := c.configuredKinds()
	if len(all) == 0 {
		return nil, stream.Errorf(stream.InvalidArgument, "output", "has no kind of result")
	}
	k, err := all[0].build(newFinder(names[0], c.Labels, all[0].named(), m))
	if err != nil {
		return nil, err
	}
	return &Decoder{kind: k}, nil
}

// Specs returns the outputs of results, without the batch axis.
func (d *Decoder) Specs() []stream.TensorSpec { return d.kind.specs() }

// classes returns the names of the classes of objects, by number; nil = unknown, empty = no names.
func (d *Decoder) classes() []string {
	if k, ok := d.kind.(interface{ classNames() []string }); ok {
		return k.classNames()
	}
	return nil
}

// Decode makes results from the rows row to row+rows of out, the model's dense outputs with the batch axis in front.
// The result has rows rows and is valid until the next call, except the shapes, which are never written again. An out
// that differs from the model's declaration is an error.
func (d *Decoder) Decode(out []stream.Tensor, row, rows int, at Mapping) ([]stream.Tensor, error) {
	if row < 0 || rows < 1 {
		return nil, stream.Errorf(stream.Internal, "rows", "%d rows from row %d are not possible", rows, row)
	}
	if at.Width <= 0 || at.Height <= 0 {
		at = Mapping{X: [2]float64{1, 0}, Y: [2]float64{1, 0}}
	}
	d.part = part{tensors: out, row: row, rows: rows, at: at}
	got, err := d.kind.decode(&d.part)
	d.part.tensors = nil
	return got, err
}

// point maps a point of the model's picture to the frame.
func (p Mapping) point(x, y float32) (float32, float32) {
	return float32(float64(x)*p.X[0] + p.X[1]), float32(float64(y)*p.Y[0] + p.Y[1])
}

// clampedPoint maps a point like point, and moves the point into the frame.
func (p Mapping) clampedPoint(x, y float32) (float32, float32) {
	x, y = p.point(x, y)
	if p.Width > 0 {
		x, y = min(max(x, 0), float32(p.Width)), min(max(y, 0), float32(p.Height))
	}
	return x, y
}
