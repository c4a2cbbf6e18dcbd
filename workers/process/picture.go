package process

import (
	"millrace/internal/codec"
	"millrace/stream"
)

// The server decodes pictures of their own size, and pictures of programs with further optional inputs: the requests
// have different shapes, so no rows of a batch.

const planar = codec.NCHW

// isPicture reports whether r is to be decoded for the program.
func (w *Worker) isPicture(r *stream.Request) bool {
	return w.pictures && r.Call == nil && r.Codec != stream.Tensors
}

// pictureSize returns the size of r's picture. ok is false when decoding will fail.
func (w *Worker) pictureSize(r *stream.Request) (width, height int, ok bool) {
	switch {
	case r.Codec == stream.RGB24 || r.Codec == stream.NV12:
		width, height = r.Width, r.Height
		if r.SourceWidth > 0 {
			width, height = r.SourceWidth, r.SourceHeight
		}
	default:
		info, err := codec.Header(r.Payload)
		if err != nil {
			return 0, 0, false
		}
		width, height = info.Upright()
	}
	most := w.env.Pixels.MaxPixels
	if most <= 0 {
		most = codec.DefaultMaxPixels
	}
	return width, height, width > 0 && height > 0 && width <= most/height
}
