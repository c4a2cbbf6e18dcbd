package oip

import (
	"math"
	"strconv"

	"millrace/stream/coded"
)

// Kind is the kind of a parameter's value.
type Kind uint8

// The kinds of parameter values allowed by the protocol.
const (
	String Kind = iota + 1
	Int
	Float
	Boolean
	Uint // unsigned 64-bit, above the range of Int; the field Int has the bits
)

// Param is one parameter. Kind selects the field with the value.
type Param struct {
	Key   string
	Kind  Kind
	Str   string
	Int   int64
	Float float64
	Bool  bool
}

// Value returns the value as string, int64, float64 or bool.
func (p Param) Value() any {
	switch p.Kind {
	case String:
		return p.Str
	case Int, Uint:
		return p.Int
	case Float:
		return p.Float
	case Boolean:
		return p.Bool
	}
	return nil
}

// ParamOf returns the parameter with a key and a value of type string, int, int64, float64 or bool. For a value of
// another type ok is false and Kind is unset.
func ParamOf(key string, value any) (p Param, ok bool) {
	p.Key = key
	switch v := value.(type) {
	case string:
		p.Kind, p.Str = String, v
	case int:
		p.Kind, p.Int = Int, int64(v)
	case int64:
		p.Kind, p.Int = Int, v
	case float64:
		p.Kind, p.Float = Float, v
	case bool:
		p.Kind, p.Bool = Boolean, v
	default:
		return p, false
	}
	return p, true
}

// Params are the parameters of a message, a tensor or an output, in their order.
type Params []Param

// Get finds a parameter by key.
func (ps Params) Get(key string) (Param, bool) {
	for i := range ps {
		if ps[i].Key == key {
			return ps[i], true
		}
	}
	return Param{}, false
}

// appendParams appends the members of a parameters object, without braces.
func appendParams(dst []byte, ps Params, field string) ([]byte, error) {
	for i := range ps {
		if i > 0 {
			dst = append(dst, ',')
		}
		p := &ps[i]
		dst = AppendString(dst, p.Key)
		dst = append(dst, ':')
		switch p.Kind {
		case String:
			dst = AppendString(dst, p.Str)
		case Int:
			dst = strconv.AppendInt(dst, p.Int, 10)
		case Uint:
			dst = strconv.AppendUint(dst, uint64(p.Int), 10)
		case Float:
			if math.IsNaN(p.Float) || math.IsInf(p.Float, 0) {
				return dst, &coded.Error{Code: coded.InvalidArgument, Field: join(field, "parameters."+p.Key),
					Msg: "is not finite, for which JSON has no notation; expected a number"}
			}
			dst = appendFloat(dst, p.Float)
		case Boolean:
			dst = strconv.AppendBool(dst, p.Bool)
		default:
			return dst, &coded.Error{Code: coded.InvalidArgument, Field: join(field, "parameters."+p.Key),
				Msg: "has no value; expected a string, a number, or true or false"}
		}
	}
	return dst, nil
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "." + b
}

// appendFloat writes v so that a reader takes v for a float: a whole number without a fraction would become an
// integer parameter.
func appendFloat(dst []byte, v float64) []byte {
	from := len(dst)
	dst = strconv.AppendFloat(dst, v, 'g', -1, 64)
	for _, c := range dst[from:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, '.', '0')
}
