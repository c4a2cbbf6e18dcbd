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

// Read returns a configuration file as a value that encoding/json writes so that a reader can
// tell whole numbers from others: 1.0 stays 1.0.
func Read(path string) (map[string]any, error) {
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

func parse(data []byte) (map[string]any, error) {
	var v any
	if err := yamltext.Decode(data, yamltext.MaxSettings, &v, false); err != nil {
		return nil, err
	}
	v, err := numbers(v, 0)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("has no fields: want application and endpoints")
	}
	return m, nil
}

// numbers replaces fractions by numbers that are written with a point, and keys that are not
// text by their text.
func numbers(v any, depth int) (any, error) {
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
	case map[string]any:
		for k, e := range v {
			if v[k], err = numbers(e, depth+1); err != nil {
				return nil, err
			}
		}
	case map[any]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if out[fmt.Sprint(k)], err = numbers(e, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		for i, e := range v {
			if v[i], err = numbers(e, depth+1); err != nil {
				return nil, err
			}
		}
	case nil, bool, string, int, int64, uint64:
	default:
		return fmt.Sprint(v), nil
	}
	return v, nil
}
