package workers

import (
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// Pictures decodes whole pictures, for workers that use parts of pictures. Only one goroutine at a time may use
// Pictures.
type Pictures struct {
	decoder *codec.Decoder
	mem     *buf.Pool
}

// NewPictures returns Pictures whose memory comes from mem.
func NewPictures(limits codec.Limits, mem *buf.Pool) *Pictures {
	return &Pictures{NewDecoder(limits, mem), mem}
}

// RGB decodes a picture to a frame of RGB24, upright and of the picture's own size, whose
// lease the caller releases. Errors have a code, or are buf.ErrBudget.
func (p *Pictures) RGB(data []byte) (f stream.Frame, err error) {
	defer func() { // a decoder's panic fails only this picture
		if x := recover(); x != nil {
			f.Lease.Release()
			f, err = stream.Frame{}, stream.Errorf(stream.Internal, "frame", "the picture's decoder panicked: %v", x)
		}
	}()
	info, err := p.decoder.Limits.Header(data)
	if err != nil {
		return f, pictureError(err)
	}
	f.Codec = stream.RGB24
	f.Width, f.Height = info.Upright()
	if f.Lease, err = p.mem.Lease(3 * f.Width * f.Height); err != nil {
		return stream.Frame{}, err
	}
	f.Payload = f.Lease.Bytes()
	if _, err := p.decoder.DecodeInfo(data, info, codec.Target{}, f.Payload); err != nil {
		f.Lease.Release()
		return stream.Frame{}, pictureError(err)
	}
	return f, nil
}

// Pixels converts a frame of RGB24 or NV12 to interleaved pixels of the given color and size, or of the frame's own
// size if width or height is 0. The caller releases the memory.
func (p *Pictures) Pixels(f *stream.Frame, color string, width,
	height int) (t stream.Tensor, lease *buf.Buf, err error) {
	defer func() {
		if x := recover(); x != nil {
			lease.Release()
			lease, err = nil, stream.Errorf(stream.Internal, "frame", "converting the picture panicked: %v", x)
		}
	}()
	to := codec.Target{Width: width, Height: height, SourceWidth: f.SourceWidth, SourceHeight: f.SourceHeight}
	if err := to.Color.UnmarshalText([]byte(color)); err != nil {
		return t, nil, stream.Errorf(stream.Internal, "frame", "%w", err)
	}
	w, h := f.Width, f.Height
	if f.SourceWidth > 0 {
		w, h = f.SourceWidth, f.SourceHeight
	}
	from := codec.RGB24
	if f.Codec == stream.NV12 {
		from = codec.NV12
	}
	w, h = to.Dims(w, h)
	t = stream.Tensor{Datatype: stream.Uint8, Shape: []int{h, w, to.Color.Channels()}}
	if lease, err = p.mem.Lease(h * w * to.Color.Channels()); err != nil {
		return t, nil, err
	}
	t.Data = lease.Bytes()
	if _, err := p.decoder.Convert(f.Payload, from, f.Width, f.Height, to, t.Data); err != nil {
		lease.Release()
		return t, nil, pictureError(err)
	}
	return t, lease, nil
}

// Close frees the memory for decoding.
func (p *Pictures) Close() { p.decoder.Close() }
