// Package frames turns the data of clients into frames, for every adapter: the package recognises pictures, checks
// raw frames, and converts tensors and parameters from and to Open Inference Protocol messages. The package must not
// know any protocol's connections, sessions or requests.
package frames

import (
	"millrace/internal/codec"
	"millrace/stream"
)

// Picture returns the codec of a picture by its first bytes. For other data, the error (Unsupported) names the
// format.
func Picture(data []byte) (stream.Codec, error) {
	switch codec.Sniff(data) {
	case codec.JPEG:
		return stream.JPEG, nil
	case codec.PNG:
		return stream.PNG, nil
	case codec.WebP:
		return stream.WebP, nil
	}
	_, err := codec.Header(data) // the error names the format
	return 0, stream.Errorf(stream.Unsupported, "frame", "%w", err)
}

// Recognise sets the codec of a frame with a payload: Auto becomes a codec by the first bytes and the model.
// Recognise returns an error for a frame that the model cannot take.
func Recognise(f *stream.Frame, m *stream.Model) error {
	if len(f.Payload) == 0 {
		return stream.Errorf(stream.InvalidArgument, "frame", "is empty: send one frame in each message")
	}
	if f.Codec != stream.Auto {
		return CheckRaw(f)
	}
	if !m.AcceptsAnyInput && m.Image == nil {
		f.Codec = stream.Opaque
		if kind, err := Picture(f.Payload); err == nil && !m.TakesBytes() {
			f.Codec = kind // for the error about the model's inputs
		}
		return nil
	}
	kind, err := Picture(f.Payload)
	switch {
	case err == nil:
		f.Codec = kind
	case m.AcceptsAnyInput:
		f.Codec = stream.Opaque
	case codec.Container(f.Payload) != "":
		return stream.Errorf(stream.Unsupported, "codec", "not a picture: %s",
			codec.ContainerHint(codec.Container(f.Payload)))
	default:
		return stream.Errorf(stream.Unsupported, "codec",
			"not a picture: model %s takes JPEG, PNG and WebP, or raw frames named as rgb24 or nv12", m.Name)
	}
	return nil
}

// CheckRaw returns an error for a raw frame whose width and height are missing or do not match the length of the
// payload. Frames of other codecs pass.
func CheckRaw(f *stream.Frame) error {
	var format codec.RawFormat
	switch f.Codec {
	case stream.RGB24:
		format = codec.RGB24
	case stream.NV12:
		format = codec.NV12
	default:
		return nil
	}
	if f.Width <= 0 || f.Height <= 0 {
		return stream.Errorf(stream.InvalidArgument, "width", "and height are needed with a frame of %s", f.Codec)
	}
	if want := format.Size(f.Width, f.Height); want != len(f.Payload) {
		return stream.Errorf(stream.InvalidArgument, "frame", "has %d bytes: want %d for %s of %d x %d pixels",
			len(f.Payload), want, f.Codec, f.Width, f.Height)
	}
	return nil
}
