package frames

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/oip"
	"millrace/stream"
)

// maxDims is the most dimensions of a nested value.
const maxDims = 64

// Generate turns a generate request to model m into an inference request in JSON. Each member of the object named
// like an input becomes this input, from a single value or an array; id and parameters keep their meaning; every
// other member becomes a parameter. fields are the members that became inputs, in order.
func Generate(body []byte, m *stream.Model) (text []byte, fields []string, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, stream.Errorf(stream.InvalidArgument, "",
			"the body is not a JSON object: want a generate request, such as {\"text_input\":\"hello\"}")
	}
	var seen []string
	var id, inputs, params []byte
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, notJSON(err)
		}
		key := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, notJSON(err)
		}
		if slices.Contains(seen, key) {
			return nil, nil, errRepeatedMember(m, key)
		}
		if seen = append(seen, key); len(seen) > 2*maxDims {
			return nil, nil, stream.Errorf(stream.InvalidArgument, "", "the body has more than %d members", 2*maxDims)
		}
		spec := inputOf(m, key)
		switch {
		case spec != nil:
			shape, data, err := values(value)
			if err != nil {
				return nil, nil, stream.Errorf(stream.InvalidArgument, key, "%w", err)
			}
			if len(fields) > 0 {
				inputs = append(inputs, ',')
			}
			inputs = oip.AppendString(append(inputs, `{"name":`...), key)
			inputs = append(append(inputs, `,"datatype":"`...), spec.Datatype...)
			inputs = append(inputs, `","shape":[`...)
			for i, n := range inputShape(shape, spec) {
				if i > 0 {
					inputs = append(inputs, ',')
				}
				inputs = strconv.AppendInt(inputs, int64(n), 10)
			}
			inputs = append(append(append(inputs, `],"data":`...), data...), '}')
			fields = append(fields, key)
		case key == "id":
			id = append(append(id, `"id":`...), value...)
			id = append(id, ',')
		case key == "parameters":
			var inner map[string]json.RawMessage
			if err := json.Unmarshal(value, &inner); err != nil {
				return nil, nil, stream.Errorf(stream.InvalidArgument, "parameters",
					"Expected JSON object for keyword: 'parameters'")
			}
			for name, v := range inner {
				if !scalar(v) {
					return nil, nil, stream.Errorf(stream.InvalidArgument, "parameters."+name,
						"Converting keyword: 'parameters': parameter '%s' has invalid type. Send a string, a "+
							"number, or true or false", name)
				}
			}
			if value = bytes.TrimSpace(value); len(inner) > 0 {
				params = append(append(params, bytes.TrimSpace(value[1:len(value)-1])...), ',')
			}
		case !scalar(value):
			return nil, nil, stream.Errorf(stream.InvalidArgument, key, "parameter '%s' has invalid type: it is no "+
				"input of model %s, so send a string, a number, or true or false", key, m.Name)
		default:
			params = append(append(oip.AppendString(params, key), ':'), value...)
			params = append(params, ',')
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, notJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, stream.Errorf(stream.InvalidArgument, "", "the body has more bytes after its JSON object")
	}
	text = append(append([]byte{'{'}, id...), `"parameters":{`...)
	text = append(text, bytes.TrimSuffix(params, []byte{','})...)
	text = append(append(append(text, `},"inputs":[`...), inputs...), `]}`...)
	return text, fields, nil
}

// notJSON returns the error for a text that is not JSON.
func notJSON(err error) error {
	return stream.Errorf(stream.InvalidArgument, "", "the body is not the JSON that is expected here: %w", err)
}

// errRepeatedMember returns the error of a second member with the name key.
func errRepeatedMember(m *stream.Model, key string) error {
	if inputOf(m, key) == nil {
		return stream.Errorf(stream.InvalidArgument, key, "is given twice: send it once")
	}
	return stream.Errorf(stream.InvalidArgument, key, "input '%s' already exists in request: send it once", key)
}

// scalar reports whether a value is none of an object, an array and null.
func scalar(value json.RawMessage) bool {
	value = bytes.TrimSpace(value)
	return len(value) > 0 && value[0] != '{' && value[0] != '[' && value[0] != 'n'
}

func inputOf(m *stream.Model, name string) *stream.TensorSpec {
	for i := range m.Inputs {
		if m.Inputs[i].Name == name {
			return &m.Inputs[i]
		}
	}
	return nil
}

// values returns the shape of a value, measured by the first elements, and the value as an array.
func values(value json.RawMessage) (shape []int, data []byte, err error) {
	data = bytes.TrimSpace(value)
	switch data[0] {
	case '{', 'n':
		return nil, nil, stream.Errorf(stream.InvalidArgument, "",
			"is not a value of an input: want a string, a number, true or false, or an array of those")
	case '[':
	default:
		return nil, slices.Concat([]byte{'['}, data, []byte{']'}), nil
	}
	// The value is known to be JSON. The loop reads each byte once.
	depth, path := 0, 0 // number of open arrays: all arrays, and arrays that are first elements
	first := true       // no element of the innermost has begun
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case ' ', '\t', '\r', '\n':
			continue
		case ',':
			if depth == path {
				shape[path-1]++
			}
			continue
		case ']', '}':
			if depth == path {
				path--
			}
			depth, first = depth-1, false
			continue
		case '[', '{':
			depth++
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
		if !first {
			continue
		}
		if path > 0 {
			shape[path-1] = 1
		}
		if first = data[i] == '['; first {
			if len(shape) == maxDims {
				return nil, nil, stream.Errorf(stream.InvalidArgument, "", "has more than %d dimensions", maxDims)
			}
			shape, path = append(shape, 0), path+1
		}
	}
	return shape, data, nil
}

// inputShape returns the shape for sending a value as input spec: the shape of the value; or, for a single value or a
// flat array with the input's number of elements, the shape of the input.
func inputShape(shape []int, spec *stream.TensorSpec) []int {
	if len(shape) > 1 || len(shape) == len(spec.Shape) && len(shape) == 1 && (spec.Shape[0] < 0 ||
		spec.Shape[0] == shape[0]) {
		return shape
	}
	n := 1
	for _, d := range shape {
		n *= d
	}
	whole, free, fixed := slices.Clone(spec.Shape), -1, 1
	for i, d := range whole {
		if d < 0 && free >= 0 {
			return shape
		}
		if d < 0 {
			free = i
		} else {
			fixed *= d
		}
	}
	switch {
	case free >= 0 && fixed > 0 && n%fixed == 0:
		whole[free] = n / fixed
	case free >= 0 || n != fixed:
		return shape
	}
	return whole
}

// InField translates a field of the inference request made by Generate to the field of the generate request:
// text_input for inputs[0].data[0].
func InField(field string, fields []string) string {
	rest, ok := strings.CutPrefix(field, "inputs[")
	if !ok {
		return field
	}
	number, rest, _ := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if err != nil || i >= len(fields) {
		return field
	}
	return fields[i] + strings.TrimPrefix(rest, ".data")
}
