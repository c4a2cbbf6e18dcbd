// Package payload turns the bytes of a message into what a frame holds: pictures told by their content, raw frames checked
// against their size, tensors out of their framing. It must not know connections or protocols.
package payload

import (
	"errors"

	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Recognise settles the frame's codec, and says what is wrong with a frame that the model is not worth asking about.
func Recognise(f *stream.Frame, m *stream.Model) error {
	if len(f.Payload) == 0 {
		return stream.Errorf(stream.InvalidArgument, "", "the message is empty: send one frame in each")
	}
	switch f.Codec {
	case stream.RGB24:
		return checkRaw(f, codec.RGB24)
	case stream.NV12:
		return checkRaw(f, codec.NV12)
	case stream.Auto:
	default:
		return nil
	}
	switch kind := codec.Sniff(f.Payload); {
	case !m.Any && m.Image == nil:
		f.Codec = stream.Opaque
	case kind == codec.JPEG:
		f.Codec = stream.JPEG
	case kind == codec.PNG:
		f.Codec = stream.PNG
	case kind == codec.WebP:
		f.Codec = stream.WebP
	case m.Any:
		f.Codec = stream.Opaque
	default:
		return stream.Errorf(stream.Unsupported, "codec", "not a picture: model %s takes JPEG, PNG and WebP, or raw frames named by ?codec=", m.Name)
	}
	return nil
}

func checkRaw(f *stream.Frame, format codec.RawFormat) error {
	if want := format.Size(f.Width, f.Height); want != len(f.Payload) {
		return stream.Errorf(stream.InvalidArgument, "", "the message has %d bytes: a frame of %s with %d x %d pixels has %d", len(f.Payload), f.Codec, f.Width, f.Height, want)
	}
	return nil
}

// Tensors reads the tensors of a payload of kind tensor. Their data are views into it. request is memory that is used again.
func Tensors(payload []byte, request *oip.InferRequest) ([]stream.Tensor, error) {
	json, _, err := wire.SplitTensors(payload)
	if err != nil {
		return nil, err
	}
	nothing := func(int) []byte { return nil }
	if err := oip.DecodeRequest(request, payload[wire.TensorsPrefixLen:], len(json), nothing, oip.Limits{}); err != nil {
		var e *stream.Error
		switch {
		case errors.Is(err, oip.ErrMemory):
			return nil, stream.Errorf(stream.InvalidArgument, "inputs", "have data in JSON: send them raw behind it, with binary_data_size")
		case errors.As(err, &e):
			return nil, stream.Errorf(stream.InvalidArgument, e.Field, "%s", e.Msg)
		}
		return nil, err
	}
	from := request.Inputs
	dims := 0
	for i := range from {
		dims += len(from[i].Shape)
	}
	out, shapes := make([]stream.Tensor, len(from)), make([]int, 0, dims)
	for i := range from {
		t, n := &from[i], len(shapes)
		shapes = append(shapes, t.Shape...)
		out[i] = stream.Tensor{Name: t.Name, Datatype: stream.Datatype(t.Datatype), Shape: shapes[n:len(shapes):len(shapes)], Data: t.Data}
	}
	return out, nil
}
