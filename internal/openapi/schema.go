package openapi

import (
	"encoding"
	"encoding/json"
	"path"
	"reflect"
	"strings"
	"time"

	"millrace/stream/coded"
)

// schemas are the named schemas of a document.
type schemas map[string]any

// AnyObject is the schema of an object with any keys.
var AnyObject = map[string]any{"type": "object"}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

var (
	timeType   = reflect.TypeFor[time.Time]()
	rawType    = reflect.TypeFor[json.RawMessage]()
	marshalers = reflect.TypeFor[json.Marshaler]()
	texts      = reflect.TypeFor[encoding.TextMarshaler]()
)

// schemaOf returns the schema of the JSON written by encoding/json for a value. A map with string keys and any values
// is a schema already.
func (s schemas) schemaOf(v any) object {
	if v, ok := v.(object); ok {
		return v
	}
	return s.ofType(reflect.TypeOf(v))
}

func (s schemas) ofType(t reflect.Type) object {
	switch {
	case t == timeType:
		return object{"type": "string", "format": "date-time"}
	case t == rawType, t.Kind() != reflect.Pointer && t.Implements(marshalers):
		return object{} // any value
	case t.Kind() != reflect.Pointer && t.Implements(texts):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.ofType(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": []any{"array", "null"}, "items": s.ofType(t.Elem())}
	case reflect.Map:
		return object{"type": []any{"object", "null"}, "additionalProperties": s.ofType(t.Elem())}
	case reflect.Struct:
		return s.ofStruct(t)
	}
	return object{}
}

// ofStruct returns the schema of a struct. The schema of a named struct is a component.
func (s schemas) ofStruct(t reflect.Type) object {
	name := component(t)
	if name != "" {
		if s[name] != nil {
			return ref(name)
		}
		s[name] = object{} // for recursive types
	}
	properties, required := object{}, []any{}
	s.fields(t, properties, &required)
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	if name == "" {
		return out
	}
	s[name] = out
	return ref(name)
}

// fields adds the fields of a struct, and the fields of embedded structs.
func (s schemas) fields(t reflect.Type, properties object, required *[]any) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-", !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			s.fields(f.Type, properties, required)
			continue
		case name == "":
			name = f.Name
		}
		schema := s.ofType(f.Type)
		optional := strings.Contains(options, "omit")
		if f.Type.Kind() == reflect.Pointer && !optional {
			schema = object{"anyOf": []any{schema, object{"type": "null"}}}
		}
		properties[name] = schema
		if !optional {
			*required = append(*required, name)
		}
	}
}

// component returns the name of the schema of a type, "" for an unnamed type.
func component(t reflect.Type) string {
	if t.Name() == "" || strings.ContainsAny(t.Name(), "[") {
		return ""
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

func errorSchema() object {
	var codes []any
	for _, c := range coded.Codes {
		codes = append(codes, string(c))
	}
	return object{
		"type": "object", "required": []any{"error", "code"},
		"properties": object{
			"error": object{"type": "string", "description": "what is wrong, beginning with the field"},
			"code":  object{"type": "string", "enum": codes},
		},
	}
}
