package inference

import (
	"fmt"
	"strconv"
	"strings"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

// Frame makes a frame of c.Request for model m: from the tensors, or from the picture in the element of a BYTES
// tensor. The frame owns the memory of the tensors or of the picture, also after an error.
func (c *Call) Frame(m *stream.Model) (f stream.Frame, err error) {
	if m.Decoupled && !c.Several {
		return f, ingest.ErrDecoupled(m)
	}
	if err := c.checkOutputs(m); err != nil {
		return f, err
	}
	if err := c.takeParams(&f, m); err != nil {
		return f, err
	}
	if err := c.readShared(m); err != nil {
		return f, err
	}
	if c.hasPicture(m) {
		return f, c.picture(&f, m)
	}
	f.Codec, f.Inputs = stream.Tensors, frames.Tensors(c.Request.Inputs)
	if f.Lease, err = c.gather(f.Inputs); err == nil && m.Image != nil {
		err = asPicture(&f, m)
	}
	return f, err
}

// asPicture turns a frame with a single BYTES tensor into a frame with a picture, for a model that takes pictures.
func asPicture(f *stream.Frame, m *stream.Model) error {
	if m.AcceptsAnyInput || len(f.Inputs) != 1 || len(m.Inputs) != 1 || f.Inputs[0].Datatype != stream.Bytes ||
		f.Inputs[0].Name != m.Inputs[0].Name {
		return nil
	}
	t := &f.Inputs[0]
	if n := stream.Elements(t.Shape); n != 1 {
		return stream.Errorf(stream.InvalidArgument, "inputs[0].shape",
			"%v has %d elements: model %s takes one picture in a request", t.Shape, n, m.Name)
	}
	kind, err := frames.Picture(t.Data[4:])
	if err != nil {
		return stream.Errorf(stream.Unsupported, "inputs[0].data", "of model %s, which takes pictures: %w", m.Name, err)
	}
	f.Codec, f.Payload, f.Inputs = kind, t.Data[4:], nil
	return nil
}

// checkOutputs refuses outputs unknown to the model. For a model that takes any inputs, only the result tells the
// outputs.
func (c *Call) checkOutputs(m *stream.Model) error {
	if m.AcceptsAnyInput || len(m.Outputs) == 0 {
		return nil
	}
next:
	for i := range c.Request.Outputs {
		for j := range m.Outputs {
			if c.Request.Outputs[i].Name == m.Outputs[j].Name {
				continue next
			}
		}
		return noOutput(i, c.Request.Outputs[i].Name, m)
	}
	return nil
}

func noOutput(i int, name string, m *stream.Model) error {
	return stream.Errorf(stream.InvalidArgument, "outputs["+strconv.Itoa(i)+"].name", "model %s has no output %q",
		m.Name, name)
}

// gather returns the one lease that owns the data of all tensors. Data in a single lease are not copied: the body
// with its binary tensors, or the numbers decoded from JSON. Data in several leases are copied.
func (c *Call) gather(tensors []stream.Tensor) (*buf.Buf, error) {
	full, total := 0, 0
	var last []byte // the data of the last tensor with data
	for i := range tensors {
		if n := len(tensors[i].Data); n > 0 {
			full++
			total += n
			last = tensors[i].Data
		}
	}
	var owner *buf.Buf
	switch {
	case len(c.data) == 0:
		owner = c.TakeBody()
	case len(c.data) == 1 && (full == 0 || full == 1 && begins(c.data[0], last)):
		owner = c.data[0]
		c.data = c.data[:0]
	default:
		var err error
		if owner, err = c.pool.Lease(total); err != nil {
			return nil, err
		}
		dst := owner.Bytes()
		for i := range tensors {
			n := copy(dst, tensors[i].Data)
			tensors[i].Data, dst = dst[:n:n], dst[n:]
		}
	}
	c.releaseLeases()
	return owner, nil
}

// begins reports whether a lease begins with data.
func begins(b *buf.Buf, data []byte) bool { return b.Len() > 0 && &b.Bytes()[0] == &data[0] }

// InRequest returns err with the input's place in the request: inputs[0].shape in place of the core's
// inputs.NAME.shape, and inputs[0].data for a picture sent in a tensor. The time-out becomes a parameter.
func InRequest(err error, inputs []oip.Tensor) error {
	return coded.RenameFunc(err, func(field string) string {
		for i := range inputs {
			if rest, ok := strings.CutPrefix(field, "inputs."+inputs[i].Name+"."); ok {
				return fmt.Sprintf("inputs[%d].%s", i, rest)
			}
		}
		switch {
		case field == "timeout": // of the queue
			return "parameters.timeout"
		case field == "frame" && len(inputs) == 1 && inputs[0].Datatype == oip.Bytes:
			return "inputs[0].data"
		}
		return field
	})
}
