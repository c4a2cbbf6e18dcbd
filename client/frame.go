package client

import (
	"bytes"
	"image"
	"math"
	"time"

	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Frame is one frame for a Stream. Set Data or Inputs; the stream neither keeps nor changes the data.
type Frame struct {
	// Data is a picture, samples, a chunk of video or bytes, depending on Codec.
	Data []byte
	// Inputs are the model's tensors by name, instead of Data.
	Inputs []stream.Tensor

	Codec         string // "" = the stream's
	Width, Height int    // pixels, of rgb24 and nv12; 0 = the stream's

	// Key and Discontinuity are for h264 (Annex B), vp8, vp9 and av1. A stream asks for
	// a key frame with Advice.KeyFrame.
	Key           bool // can be decoded without earlier frames
	Discontinuity bool // a gap precedes the frame; the stream sets Discontinuity after a loss

	Must      bool            // never superseded, overtaken or stale
	Last      bool            // close the stream when this frame has ended
	CaptureUS int64           // time by the caller's clock, repeated in the reply
	Deadline  time.Duration   // 0 = the policy's; up to 65 s
	Region    image.Rectangle // only this part of the picture, in pixels as sent; empty = all
	Params    stream.Params   // for the model; values are strings, int64, float64 or bool
	Trace     string          // a W3C traceparent
}

// message is a frame in the wire format: head, then json, then body.
type message struct {
	head wire.Header
	json []byte // of tensors
	body [][]byte
	size int
}

// message checks f and encodes f for the wire. The server checks model-dependent properties.
func (f *Frame) message(o *StreamOptions) (m message, err error) {
	h := &m.head
	if err := f.kind(h, o); err != nil {
		return m, err
	}
	if !fits(f.Width, math.MaxUint16) || !fits(f.Height, math.MaxUint16) {
		return m, stream.Errorf(stream.InvalidArgument, "Width", "and Height are %d and %d: want 0 to %d", f.Width,
			f.Height, math.MaxUint16)
	}
	h.Width, h.Height = uint16(f.Width), uint16(f.Height)
	if !fits(millis(f.Deadline), math.MaxUint16) {
		return m, stream.Errorf(stream.InvalidArgument, "Deadline", "is %v: want 0 to %d ms", f.Deadline,
			math.MaxUint16)
	}
	h.DeadlineMS, h.CaptureUS = uint16(millis(f.Deadline)), f.CaptureUS
	for _, flag := range []struct {
		on  bool
		bit wire.Flags
	}{{f.Key, wire.FlagKey}, {f.Discontinuity, wire.FlagDiscontinuity}, {f.Must, wire.FlagMust},
		{f.Last, wire.FlagEnd}} {
		if flag.on {
			h.Flags |= flag.bit
		}
	}
	if err := f.ext(&h.Ext); err != nil {
		return m, err
	}
	if err := h.Check(wire.Client); err != nil {
		return m, stream.Errorf(stream.InvalidArgument, "", "the frame cannot be sent: %w", err)
	}
	m.body = [][]byte{f.Data}
	if h.Kind == wire.KindTensor {
		if m.json, m.body, err = f.tensors(); err != nil {
			return m, err
		}
		m.size = wire.TensorsPrefixLen + len(m.json)
	}
	m.size += h.Size()
	for _, b := range m.body {
		m.size += len(b)
	}
	return m, nil
}

func fits(n, most int) bool { return n >= 0 && n <= most }

// kind sets the kind and the codec of the message.
func (f *Frame) kind(h *wire.Header, o *StreamOptions) error {
	if f.Inputs != nil {
		if f.Data != nil {
			return stream.Errorf(stream.InvalidArgument, "Inputs", "go without Data")
		}
		h.Kind, h.Codec = wire.KindTensor, wire.Tensors
		return nil
	}
	name := f.Codec
	if name == "" {
		name = o.Codec
	}
	h.Kind = wire.KindFrame
	if name != "" && name != stream.Auto.String() { // otherwise the server recognises the codec by the content
		c, err := stream.ParseCodec(name)
		if err != nil {
			return err
		}
		h.Codec = wire.Codec(c)
	}
	if h.Codec == wire.PCM16 || h.Codec == wire.PCMFloat {
		h.Kind = wire.KindAudio
	}
	return nil
}

func (f *Frame) ext(x *wire.Ext) (err error) {
	if f.Trace != "" {
		x.Traceparent = []byte(f.Trace)
	}
	if r := f.Region; !r.Empty() {
		if !fits(r.Min.X, math.MaxUint16) || !fits(r.Min.Y, math.MaxUint16) || r.Dx() > math.MaxUint16 ||
			r.Dy() > math.MaxUint16 {
			return stream.Errorf(stream.InvalidArgument, "Region", "%v is not within a picture", r)
		}
		x.HasROI, x.ROI = true, [4]uint16{uint16(r.Min.X), uint16(r.Min.Y), uint16(r.Dx()), uint16(r.Dy())}
	}
	if len(f.Params) > 0 {
		if x.Params, err = wire.Params(f.Params).MarshalJSON(); err != nil {
			return stream.Errorf(stream.InvalidArgument, "", "%w", err)
		}
	}
	return nil
}

func (f *Frame) tensors() (json []byte, raw [][]byte, err error) {
	var msg oip.InferRequest
	for _, t := range f.Inputs {
		msg.Inputs = append(msg.Inputs, oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape,
			Data: t.Data})
		raw = append(raw, t.Data)
	}
	if json, err = oip.AppendRequest(nil, &msg, oip.AlwaysBinary); err != nil {
		return nil, nil, stream.Errorf(stream.InvalidArgument, "Inputs", "cannot be sent: %w", err)
	}
	return json, raw, nil
}

// configSeq is the number in messages with a codec's parameters; no frame has this number.
const configSeq = math.MaxUint64

// config encodes the parameters of a codec for the wire.
func config(codec string, data []byte) (m message, err error) {
	c, err := stream.ParseCodec(codec)
	if err != nil {
		return m, err
	}
	m.head = wire.Header{Kind: wire.KindConfig, Codec: wire.Codec(c), Seq: configSeq}
	if !interCoded(m.head.Codec) {
		return m, stream.Errorf(stream.InvalidArgument, "codec", "%s has no parameters: want h264, vp8, vp9 or av1",
			codec)
	}
	if len(data) > maxConfig {
		return m, stream.Errorf(stream.TooLarge, "data", "has %d bytes: want at most %d", len(data), maxConfig)
	}
	m.body = [][]byte{bytes.Clone(data)}
	return m, nil
}

const maxConfig = 64 << 10

// interCoded reports whether frames of a codec depend on earlier frames.
func interCoded(c wire.Codec) bool { return c >= wire.H264 && c <= wire.AV1 }
