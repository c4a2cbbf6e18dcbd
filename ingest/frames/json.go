package frames

import (
	"bytes"
	"encoding/json"
	"errors"

	"millrace/internal/oip"
	"millrace/internal/processors"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

// TakesText reports whether a text message is a frame of model m: the model takes tensors, or anything, and no
// pictures.
func TakesText(m *stream.Model) bool {
	return m.Image == nil && !m.AcceptsAnyInput && len(m.Inputs) > 0
}

// Text turns the payload of f, a text message for a model of TakesText, into the frame's inputs. A JSON object with
// names of inputs is a generate request; for a model with a single BYTES input, any other text is the input's only
// element. The new memory replaces f.Lease, also after an error. Without memory, the error wraps buf.ErrBudget.
func Text(f *stream.Frame, m *stream.Model, pool *buf.Pool, turns *processors.Turns) error {
	if turns.Begin(len(f.Payload)) {
		defer turns.End()
	}
	if m.TakesBytes() && !namesInput(f.Payload, m) {
		f.Codec = stream.Opaque
		return nil
	}
	text, fields, err := Generate(f.Payload, m)
	if err != nil {
		return err
	}
	var held []*buf.Buf
	alloc := func(n int) []byte {
		b, err := pool.Lease(n)
		if err != nil {
			return nil
		}
		held = append(held, b)
		return b.Bytes()
	}
	var request oip.InferRequest
	err = oip.DecodeRequest(&request, text, -1, alloc, oip.Limits{})
	f.Lease.Release()
	f.Codec, f.Payload, f.Lease = stream.Tensors, nil, buf.Join(held...)
	switch {
	case errors.Is(err, oip.ErrMemory):
		return buf.ErrBudget
	case err != nil:
		return coded.RenameFunc(err, func(field string) string { return InField(field, fields) })
	case request.ID != "":
		return stream.Errorf(stream.InvalidArgument, "id",
			"is for requests: frames of a stream are numbered, leave it out")
	}
	f.Inputs, f.Params = Tensors(request.Inputs), Params(request.Params)
	return nil
}

// namesInput reports whether the text is a JSON object with a member named like an input of the model, whose value an
// input can have.
func namesInput(text []byte, m *stream.Model) bool {
	if t := bytes.TrimLeft(text, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return false
	}
	value, named := object[m.Inputs[0].Name]
	value = bytes.TrimSpace(value)
	return named && len(value) > 0 && value[0] != '{' && value[0] != 'n'
}
