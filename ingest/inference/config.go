package inference

import (
	"encoding/base64"
	"math"
	"sort"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/internal/oip"
)

// AppendMessage appends a message of the protocol's gRPC form as JSON: with the original field names, all fields
// except unset messages and oneofs, and 64-bit integers as numbers.
func AppendMessage(dst []byte, m protoreflect.Message) []byte {
	dst = append(dst, '{')
	first := true
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) && (f.ContainingOneof() != nil || f.Message() != nil && !f.IsList() && !f.IsMap()) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(oip.AppendString(dst, string(f.Name())), ':')
		switch v := m.Get(f); {
		case f.IsMap():
			dst = appendMap(dst, f.MapValue(), v.Map())
		case f.IsList():
			dst = append(dst, '[')
			for k := range v.List().Len() {
				if k > 0 {
					dst = append(dst, ',')
				}
				dst = appendValue(dst, f, v.List().Get(k))
			}
			dst = append(dst, ']')
		default:
			dst = appendValue(dst, f, v)
		}
	}
	return append(dst, '}')
}

func appendMap(dst []byte, f protoreflect.FieldDescriptor, all protoreflect.Map) []byte {
	var keys []protoreflect.MapKey
	all.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(oip.AppendString(dst, k.String()), ':')
		dst = appendValue(dst, f, all.Get(k))
	}
	return append(dst, '}')
}

func appendValue(dst []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return AppendMessage(dst, v.Message())
	case protoreflect.StringKind:
		return oip.AppendString(dst, v.String())
	case protoreflect.BytesKind:
		return oip.AppendString(dst, base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool())
	case protoreflect.EnumKind:
		if name := f.Enum().Values().ByNumber(v.Enum()); name != nil {
			return oip.AppendString(dst, string(name.Name()))
		}
		return strconv.AppendInt(dst, int64(v.Enum()), 10)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if n := v.Float(); !math.IsNaN(n) && !math.IsInf(n, 0) {
			return strconv.AppendFloat(dst, n, 'g', -1, 64)
		}
		return append(dst, "null"...)
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v.Uint(), 10)
	}
	return strconv.AppendInt(dst, v.Int(), 10)
}
