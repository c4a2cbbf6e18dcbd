package frames

import (
	"errors"
	"slices"
	"strings"

	"millrace/internal/oip"
	"millrace/stream"
)

// Tensors makes a frame's inputs from the inputs of a message. Names and data are shared; shapes are copied, because
// the message is reused.
func Tensors(from []oip.Tensor) []stream.Tensor {
	dims := 0
	for i := range from {
		dims += len(from[i].Shape)
	}
	var out []stream.Tensor
	var shapes []int
	if len(from) == 1 && dims <= 4 { // the common case, with one allocation
		one := new(struct {
			tensor [1]stream.Tensor
			shape  [4]int
		})
		out, shapes = one.tensor[:], one.shape[:0]
	} else {
		out, shapes = make([]stream.Tensor, len(from)), make([]int, 0, dims)
	}
	for i := range from {
		t, n := &from[i], len(shapes)
		shapes = append(shapes, t.Shape...)
		out[i] = stream.Tensor{Name: t.Name, Datatype: stream.Datatype(t.Datatype),
			Shape: shapes[n:len(shapes):len(shapes)], Data: t.Data}
	}
	return out
}

// FromRequest reads the tensors of an inference request whose data all follow the jsonLen bytes of JSON. The tensors'
// data are views into body; data in the JSON itself are refused. The memory of request is reused.
func FromRequest(request *oip.InferRequest, body []byte, jsonLen int) ([]stream.Tensor, error) {
	none := func(int) []byte { return nil }
	err := oip.DecodeRequest(request, body, jsonLen, none, oip.Limits{})
	if errors.Is(err, oip.ErrMemory) {
		return nil, stream.Errorf(stream.InvalidArgument, "inputs",
			"have data in JSON: send them as binary data after it, with binary_data_size")
	}
	if err != nil {
		return nil, err
	}
	return Tensors(request.Inputs), nil
}

// Message makes a message tensor from t. All parts are shared.
func Message(t *stream.Tensor) oip.Tensor {
	return oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
}

// Params makes a frame's parameters from a message's parameters; without parameters, nil.
func Params(from oip.Params) stream.Params {
	if len(from) == 0 {
		return nil
	}
	out := make(stream.Params, len(from))
	for _, p := range from {
		out[p.Key] = p.Value()
	}
	return out
}

// AppendParams appends a result's parameters to a message's parameters, sorted by key. Values that a message cannot
// have are left out.
func AppendParams(dst oip.Params, params stream.Params) oip.Params {
	if len(params) == 0 {
		return dst
	}
	from := len(dst)
	for key, v := range params {
		if p, ok := oip.ParamOf(key, v); ok {
			dst = append(dst, p)
		}
	}
	slices.SortFunc(dst[from:], func(a, b oip.Param) int { return strings.Compare(a.Key, b.Key) })
	return dst
}
