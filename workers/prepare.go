package workers

import (
	"errors"
	"fmt"
	"strings"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// preparer decodes pictures into batches, for one instance.
type preparer struct {
	decoder *codec.Decoder
	target  codec.Target
}

// newPreparer makes a preparer for m whose decoding takes memory from mem.
func newPreparer(m *stream.Model, limits codec.Limits, mem *buf.Pool) (*preparer, error) {
	p := &preparer{decoder: NewDecoder(limits, mem)}
	if m.Image == nil {
		return p, nil
	}
	t, err := target(m)
	p.target = t
	return p, err
}

// LetterboxGray is the pixel value around a letterboxed picture, as in YOLO's tools.
const LetterboxGray = 114

// target converts a model's image specification.
func target(m *stream.Model) (t codec.Target, err error) {
	s := m.Image
	t.Width, t.Height = s.Width, s.Height
	read := func(field string, into interface{ UnmarshalText([]byte) error }, text string) {
		if err != nil || text == "" {
			return
		}
		if e := into.UnmarshalText([]byte(text)); e != nil {
			err = stream.Errorf(stream.InvalidArgument, "input.image."+field, "%w", e)
		}
	}
	read("color", &t.Color, s.Color)
	read("layout", &t.Layout, s.Layout)
	read("fit", &t.Fit, s.Fit)
	t.Fill = LetterboxGray
	read("datatype", &t.Type, string(m.Inputs[0].Datatype)) // a picture fills the only input
	t.Norm.Scale, t.Norm.Mean, t.Norm.Std = s.Scale, s.Mean, s.Std
	if err == nil {
		if e := t.Validate(); e != nil {
			err = stream.Errorf(stream.InvalidArgument, "input.image", "%w", e)
		}
	}
	return t, err
}

// NewDecoder returns a decoder of pictures that takes memory from mem, unless mem is nil.
func NewDecoder(limits codec.Limits, mem *buf.Pool) *codec.Decoder {
	d := codec.NewDecoder(limits)
	if mem != nil {
		d.Memory = decodingMemory{mem}
	}
	return d
}

// decode implements batching.Decode.
func (p *preparer) decode(r *stream.Request, dst []byte) error {
	return DecodePicture(p.decoder, r, p.target, dst)
}

// DecodePicture decodes r's picture into dst as t says, and notes in r the time for decoding and the place of the
// picture in the frame. An error has the code and field for clients, or is a buf.ErrBudget: then the frame is
// dropped.
func DecodePicture(d *codec.Decoder, r *stream.Request, t codec.Target, dst []byte) (err error) {
	defer func() { // a decoder's panic fails only this picture
		if x := recover(); x != nil {
			err = stream.Errorf(stream.Internal, "frame", "the picture's decoder panicked: %v", x)
		}
	}()
	begun := stream.Now()
	placed, err := convert(d, r, t, dst)
	decoded(d, r, begun)
	if err != nil {
		return pictureError(err)
	}
	r.SentWidth, r.SentHeight = placed.Width, placed.Height
	x0, y0 := placed.ToFrame(0, 0)
	x1, y1 := placed.ToFrame(1, 1)
	r.MapX, r.MapY = [2]float64{x1 - x0, x0}, [2]float64{y1 - y0, y0}
	return nil
}

// decoded notes in r the time since the begin of decoding.
func decoded(d *codec.Decoder, r *stream.Request, begun stream.Instant) {
	ended := stream.Now()
	r.Decoding.Add(begun, ended.Sub(begun), d.Drawn)
	r.Account.Decoded(ended.Sub(begun), ended)
}

// DecodeFile decodes a picture file that came in r beside r's frame, such as a part of a form. The pixels are
// interleaved, of the size of t, or of the picture's own size if t has none, in memory of mem that the caller
// releases. Errors are as for DecodePicture.
func DecodeFile(d *codec.Decoder, r *stream.Request, file []byte, t codec.Target, mem *buf.Pool) (p Pixels, err error) {
	defer func() { // a decoder's panic fails only this picture
		if x := recover(); x != nil {
			p.Lease.Release()
			p, err = Pixels{}, stream.Errorf(stream.Internal, "frame", "the picture's decoder panicked: %v", x)
		}
	}()
	info, err := d.Limits.Header(file)
	if err != nil {
		return p, pictureError(err)
	}
	p.Width, p.Height = t.Dims(info.Upright())
	if p.Lease, err = mem.Lease(t.Size(p.Width, p.Height)); err != nil {
		return p, err
	}
	begun := stream.Now()
	p.Placed, err = d.DecodeInfo(file, info, t, p.Lease.Bytes())
	decoded(d, r, begun)
	if err != nil {
		p.Lease.Release()
		return Pixels{}, pictureError(err)
	}
	return p, nil
}

// Pixels are the pixels of a decoded picture.
type Pixels struct {
	Width, Height int
	Lease         *buf.Buf // their memory
	Placed        codec.Placed
}

// picture decodes r's picture for the stages before a run.
func (p *preparer) picture(r *stream.Request, to codec.Target, dst []byte) (placed codec.Placed, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = errors.New("the picture's decoder panicked")
		}
	}()
	if r.Account != nil {
		begun := stream.Now()
		defer func() {
			ended := stream.Now()
			r.Account.Decoded(ended.Sub(begun), ended)
		}()
	}
	return convert(p.decoder, r, to, dst)
}

// convert converts the region of r's picture to t.
func convert(d *codec.Decoder, r *stream.Request, t codec.Target, dst []byte) (codec.Placed, error) {
	t.Region = codec.Region{X: int(r.Region.X), Y: int(r.Region.Y), Width: int(r.Region.Width),
		Height: int(r.Region.Height)}
	t.SourceWidth, t.SourceHeight = r.SourceWidth, r.SourceHeight
	switch r.Codec {
	case stream.RGB24:
		return d.Convert(r.Payload, codec.RGB24, r.Width, r.Height, t, dst)
	case stream.NV12:
		return d.Convert(r.Payload, codec.NV12, r.Width, r.Height, t, dst)
	}
	return d.Decode(r.Payload, t, dst)
}

func (p *preparer) close() {
	if p != nil { // p is nil when the worker failed before the preparer was made
		p.decoder.Close()
	}
}

// decodingMemory takes the memory of decoding from the budget.
type decodingMemory struct{ *buf.Pool }

// Charge returns buf.ErrBudget if the memory may be free later, otherwise another error.
func (m decodingMemory) Charge(n int64) error {
	if s := m.Stats(); n > s.Budget-s.Reserved {
		return fmt.Errorf("%w: %s, and memory.budget of %s has %s for frames: raise it, or send the picture smaller",
			codec.ErrTooLarge, bytesText(n), bytesText(s.Budget), bytesText(s.Budget-s.Reserved))
	}
	return m.Pool.Charge(n)
}

// pictureError returns err with the code and field for clients, or an unchanged buf.ErrBudget, which drops the frame.
func pictureError(err error) error {
	code, field := stream.InvalidArgument, "frame"
	switch {
	case errors.Is(err, buf.ErrBudget):
		return err
	case errors.Is(err, codec.ErrSlow):
		code = stream.Timeout
	case errors.Is(err, codec.ErrRegion):
		field = "roi"
	case errors.Is(err, codec.ErrTooLarge):
		code = stream.TooLarge
	case errors.Is(err, codec.ErrUnknown), errors.Is(err, codec.ErrUnsupported):
		code = stream.Unsupported
	}
	// The field names the faulty input, so the package prefix is omitted.
	return &stream.Error{Code: code, Field: field, Msg: strings.TrimPrefix(err.Error(), "codec: "), Err: err}
}
