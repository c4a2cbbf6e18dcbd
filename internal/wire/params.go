package wire

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"millrace/internal/oip"
)

// Params are parameters for a model: each value is a string, int64, float64 or bool. A number written without
// fraction and exponent is an int64.
type Params map[string]any

// MaxParams bounds the members of Params, and MaxName the bytes of a key.
const (
	MaxParams = 64
	MaxName   = 256
)

// ParseParams reads the JSON object of an extension's Params. The error is an *Error whose field begins with
// "params".
func ParseParams(text []byte) (Params, error) {
	v, fault := checkText(text, math.MaxUint16)
	if fault != nil {
		fault.Fatal = false
		return nil, prefixField("params", fault)
	}
	var p Params
	if err := prefixField("params", p.read(v)); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Params) read(v value) error {
	if v[0] != '{' {
		return v.wrong("an object")
	}
	*p = Params{} // not nil when empty: an empty object replaces other parameters
	return v.members(func(key []byte, member value) error {
		k := string(key)
		if _, twice := (*p)[k]; twice {
			return invalid(ErrTwice, clip(k), "is given twice")
		}
		if len(k) == 0 || len(k) > MaxName {
			return invalid(ErrValue, "", fmt.Sprintf("has the key %q: want 1 to %d bytes", clip(k), MaxName))
		}
		if len(*p) == MaxParams {
			return invalid(ErrValue, "", fmt.Sprintf("has more than %d members", MaxParams))
		}
		x, err := member.scalar()
		if err != nil {
			return prefixField(clip(k), err)
		}
		(*p)[k] = x
		return nil
	})
}

func (v value) scalar() (any, error) {
	switch v[0] {
	case '"':
		return string(v.unquote()), nil
	case 't', 'f':
		return v[0] == 't', nil
	case '{', '[', 'n':
		return nil, v.wrong("a string, a number, true or false")
	}
	if !bytes.ContainsAny(v, ".eE") {
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return nil, v.wrong("a whole number of 64 bits, or one with a fraction")
		}
		return n, nil
	}
	f, err := v.float()
	if err != nil {
		return nil, v.wrong("a number of 64 bits")
	}
	return f, nil
}

// MarshalJSON writes p with sorted keys, and writes floats so that readers take them for floats.
func (p Params) MarshalJSON() ([]byte, error) {
	dst := []byte{'{'}
	for i, k := range slices.Sorted(maps.Keys(p)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(oip.AppendString(dst, k), ':')
		switch x := p[k].(type) {
		case string:
			dst = oip.AppendString(dst, x)
		case bool:
			dst = strconv.AppendBool(dst, x)
		case int64:
			dst = strconv.AppendInt(dst, x, 10)
		case int:
			dst = strconv.AppendInt(dst, int64(x), 10)
		case float64:
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("params.%s: is %v, for which JSON has no notation", clip(k), x)
			}
			from := len(dst)
			dst = strconv.AppendFloat(dst, x, 'g', -1, 64)
			if !bytes.ContainsAny(dst[from:], ".e") {
				dst = append(dst, ".0"...)
			}
		default:
			return nil, fmt.Errorf("params.%s: is a %T: want a string, int64, float64 or bool", clip(k), x)
		}
	}
	return append(dst, '}'), nil
}
