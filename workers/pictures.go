package workers

import (
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// Pictures decodes whole pictures, for workers that look at parts of them. One goroutine
// at a time may use it.
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
	defer func() { // a picture for which a decoder panics fails alone
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

// Close frees the memory for decoding.
func (p *Pictures) Close() { p.decoder.Close() }
