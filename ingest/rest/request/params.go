package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	"millrace/stream"
)

// LoadParams reads {"parameters": {...}} from clients of Triton, or an object whose members are the parameters from
// clients of AMD Inference Server.
func LoadParams(body []byte) (stream.Params, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var top map[string]any
	if err := d.Decode(&top); err != nil {
		return nil, NotJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, stream.Errorf(stream.InvalidArgument, "", "the body has more bytes after its JSON object")
	}
	object := top
	if p, ok := top["parameters"]; ok {
		if object, ok = p.(map[string]any); !ok {
			return nil, stream.Errorf(stream.InvalidArgument, "parameters", "is not an object")
		}
		for _, name := range slices.Sorted(maps.Keys(top)) {
			if name != "parameters" {
				return nil, stream.Errorf(stream.InvalidArgument, name,
					"stands beside parameters, where nothing reads it: put it into parameters")
			}
		}
	}
	params := make(stream.Params, len(object))
	for k, v := range object {
		p, err := paramValue(v)
		if err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, "parameters."+k, "%w", err)
		}
		params[k] = p
	}
	return params, nil
}

var errParam = errors.New("is not a string, a number, or true or false")

func paramValue(v any) (any, error) {
	switch v := v.(type) {
	case string, bool:
		return v, nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		if f, err := v.Float64(); err == nil {
			return f, nil
		}
	}
	return nil, errParam
}

// NotJSON returns the error for a body that is not the JSON expected by a route.
func NotJSON(err error) error {
	return stream.Errorf(stream.InvalidArgument, "", "the body is not the JSON that is expected here: %w", err)
}
