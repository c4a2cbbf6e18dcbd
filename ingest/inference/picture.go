package inference

import (
	"encoding/base64"
	"encoding/binary"

	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/coded"
)

// hasPicture reports whether the request's input is a picture for m: a BYTES tensor for a model that decodes
// pictures.
func (c *Call) hasPicture(m *stream.Model) bool {
	return m.Image != nil && !m.AcceptsAnyInput && len(c.Request.Inputs) == 1 &&
		c.Request.Inputs[0].Datatype == oip.Bytes
}

// picture makes f from the only element of the request's input: a JPEG, PNG or WebP picture, plain or in base64
// (needed in JSON). f owns the memory of the picture.
func (c *Call) picture(f *stream.Frame, m *stream.Model) error {
	t := &c.Request.Inputs[0]
	if want := m.Inputs[0].Name; t.Name != want {
		return stream.Errorf(stream.InvalidArgument, "inputs[0].name",
			"unexpected inference input '%.64s' for model '%s': its inputs are %s", t.Name, m.Name, want)
	}
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	if n != 1 {
		return stream.Errorf(stream.InvalidArgument, "inputs[0].shape", "has %d elements: send one picture in each "+
			"request, as a BYTES tensor of shape [1], so that it is decoded for model %s", n, m.Name)
	}
	if len(t.Data) < 4 || int(binary.LittleEndian.Uint32(t.Data)) != len(t.Data)-4 {
		return stream.Errorf(stream.InvalidArgument, "inputs[0].data",
			"is not one BYTES element: want its length in four bytes and then the picture")
	}
	f.Payload = t.Data[4:]
	kind, err := frames.Picture(f.Payload)
	if err == nil {
		f.Codec = kind
		one := [1]stream.Tensor{{Data: f.Payload}}
		f.Lease, err = c.gather(one[:])
		f.Payload = one[0].Data
		return err
	}
	decoded, leaseErr := c.pool.Lease(base64.StdEncoding.DecodedLen(len(f.Payload)))
	if leaseErr != nil {
		return leaseErr
	}
	size, notBase64 := base64.StdEncoding.Decode(decoded.Bytes(), f.Payload)
	if notBase64 != nil || size == 0 {
		decoded.Release()
		return noPicture(err, m)
	}
	decoded.Resize(size)
	if kind, err = frames.Picture(decoded.Bytes()); err != nil {
		decoded.Release()
		return noPicture(err, m)
	}
	c.releaseLeases()
	f.Codec, f.Payload, f.Lease = kind, decoded.Bytes(), decoded
	return nil
}

// noPicture returns the error for an element that is no picture; err describes the element.
func noPicture(err error, m *stream.Model) error {
	return stream.Errorf(stream.Unsupported, "inputs[0].data", "model %s takes one picture, as it is or in base64: %w",
		m.Name, coded.RenameFunc(err, func(string) string {
			return ""
		}))
}
