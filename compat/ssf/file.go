package ssf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"millrace/internal/textfile"
	"millrace/internal/yamltext"
)

// maxFile is the largest configuration file, in bytes.
const maxFile = 1 << 20

// maxDepth is how deep sections and lists may be inside each other.
const maxDepth = 64

// Section is a part of a configuration, with its fields in the order of the file.
type Section []Field

// Field is a field of a Section.
type Field struct {
	Name  string
	Value any // Section, []any, or a single value
}

// Get returns the value of a field, nil for none.
func (s Section) Get(name string) any {
	for _, f := range s {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// MarshalJSON implements json.Marshaler. It keeps the order.
func (s Section) MarshalJSON() ([]byte, error) {
	out := []byte("{")
	for i, f := range s {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	return append(out, '}'), nil
}

// Read returns a configuration file as a value that encoding/json writes in the order of the file, and so that a
// reader can tell whole numbers from others: 1.0 stays 1.0.
func Read(path string) (Section, error) {
	data, err := textfile.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	out, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// isApplication reports whether a file of any name describes an application.
func isApplication(data []byte) bool {
	s, err := parse(data)
	return err == nil && s.Get("application") != nil && s.Get("endpoints") != nil
}

func parse(data []byte) (Section, error) {
	v, err := yamltext.DecodeOrdered(data, yamltext.MaxSettings)
	if err != nil {
		return nil, err
	}
	if v, err = plain(v, 0); err != nil {
		return nil, err
	}
	s, ok := v.(Section)
	if !ok {
		return nil, errors.New("has no fields: want application and endpoints")
	}
	return s, nil
}

// plain replaces sections by Section, fractions by numbers that are written with a point, and keys that are not text
// by their text.
func plain(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("has more than %d sections inside each other", maxDepth)
	}
	var err error
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("has a number that is not finite")
		}
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		return json.Number(text), nil
	case yamltext.Ordered:
		out := make(Section, len(v))
		for i, e := range v {
			out[i].Name = fmt.Sprint(e.Key)
			if out[i].Value, err = plain(e.Value, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		for i, e := range v {
			if v[i], err = plain(e, depth+1); err != nil {
				return nil, err
			}
		}
	case nil, bool, string, int, int64, uint64:
	default:
		return fmt.Sprint(v), nil
	}
	return v, nil
}
