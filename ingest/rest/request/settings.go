package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"millrace/stream"
)

// LogChange reads the body of a change of the log settings. Numbers become int64; a number that is no int64 becomes
// -1, a value that no setting accepts.
func LogChange(body []byte) (map[string]any, error) {
	bad := func(err error) (map[string]any, error) {
		return nil, stream.Errorf(stream.InvalidArgument, "",
			"the body is not a change of the log: %w: want an object such as {\"level\":\"debug\"}", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var change map[string]any
	if err := d.Decode(&change); err != nil {
		return bad(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad(errMore)
	}
	for name, v := range change {
		if n, ok := v.(json.Number); ok {
			whole, err := n.Int64()
			if err != nil {
				whole = -1
			}
			change[name] = whole
		}
	}
	return change, nil
}

var errMore = errors.New("there is more text after the object")

// TraceChange reads the body of a change of the trace settings. An empty body changes nothing.
func TraceChange(body []byte) (map[string][]string, error) {
	var given map[string]any
	if len(body) > 0 {
		if err := json.Unmarshal(body, &given); err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, "", "the body is not a change of the settings of "+
				"traces: %w: want an object such as {\"trace_rate\":\"100\"}", err)
		}
	}
	change := make(map[string][]string, len(given))
	for name, v := range given {
		values, err := settingValues(v)
		if err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, name, "%w", err)
		}
		change[name] = values
	}
	return change, nil
}

// settingValues reads a string, a list of strings, or null, the empty list.
func settingValues(v any) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		out := make([]string, 0, len(v))
		for _, one := range v {
			text, ok := one.(string)
			if !ok {
				return nil, stream.Errorf(stream.InvalidArgument, "", "is not a list of strings")
			}
			out = append(out, text)
		}
		return out, nil
	}
	return nil, stream.Errorf(stream.InvalidArgument, "", "is not a string, a list of strings, or null")
}
