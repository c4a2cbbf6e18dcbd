package openapi

import "strings"

// Bounds of the nesting and the number of values of an example, since a schema may refer to itself, several times in
// each object.
const maxExampleDepth, maxExampleValues = 16, 1000

// exampler makes an example of a schema in a document.
type exampler struct {
	document map[string]any
	left     int // values still allowed in the example
}

// ExampleValue returns a value allowed by a schema of a document: its example, its default, or a short value of its
// type. An object gets only the required properties. References are resolved in the document. A schema without a type
// allows everything; the example is then an empty object.
func ExampleValue(document, schema map[string]any) any {
	e := exampler{document, maxExampleValues}
	return e.value(schema, 0)
}

func (e *exampler) value(schema map[string]any, depth int) any {
	schema = resolve(e.document, schema)
	if e.left--; depth > maxExampleDepth || e.left < 0 {
		return nil
	}
	for _, key := range []string{"example", "default", "const"} {
		if v, ok := schema[key]; ok {
			return v
		}
	}
	for _, key := range []string{"examples", "enum"} {
		if list, _ := schema[key].([]any); len(list) > 0 {
			return list[0]
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		list, _ := schema[key].([]any)
		for _, item := range list {
			if of, _ := item.(map[string]any); of != nil && of["type"] != "null" {
				return e.value(of, depth+1)
			}
		}
	}
	switch typeOf(schema) {
	case "string":
		return exampleText(schema)
	case "integer", "number":
		return exampleNumber(schema)
	case "boolean":
		return false
	case "null":
		return nil
	case "array":
		return e.array(schema, depth)
	}
	return e.object(schema, depth)
}

// typeOf returns the type of a schema; among several, the first that is not null.
func typeOf(schema map[string]any) string {
	switch t := schema["type"].(type) {
	case string:
		return t
	case []any:
		for _, item := range t {
			if name, _ := item.(string); name != "null" {
				return name
			}
		}
	}
	return ""
}

// resolve follows references within the document.
func resolve(document, schema map[string]any) map[string]any {
	for range maxExampleDepth {
		to, ok := schema["$ref"].(string)
		if !ok {
			break
		}
		path, inside := strings.CutPrefix(to, "#/")
		if !inside {
			return nil
		}
		at := document
		for _, key := range strings.Split(path, "/") {
			at, _ = at[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)].(map[string]any)
		}
		schema = at
	}
	return schema
}

func exampleText(schema map[string]any) string {
	switch schema["format"] {
	case "date-time":
		return "2026-01-31T12:00:00Z"
	case "date":
		return "2026-01-31"
	case "time":
		return "12:00:00"
	case "duration":
		return "PT1S"
	case "uuid":
		return "00000000-0000-4000-8000-000000000000"
	case "byte", "base64":
		return "AAAA"
	case "uri":
		return "http://example.org/"
	}
	text := "text"
	if least, ok := schema["minLength"].(float64); ok && int(least) > len(text) && least <= 1024 {
		text = strings.Repeat("x", int(least))
	}
	if most, ok := schema["maxLength"].(float64); ok && int(most) < len(text) && most >= 0 {
		text = text[:int(most)]
	}
	return text
}

func exampleNumber(schema map[string]any) any {
	n := 1.0
	if least, ok := schema["minimum"].(float64); ok {
		n = max(n, least)
	}
	if over, ok := schema["exclusiveMinimum"].(float64); ok && n <= over {
		n = over + 1
	}
	if most, ok := schema["maximum"].(float64); ok {
		n = min(n, most)
	}
	if below, ok := schema["exclusiveMaximum"].(float64); ok && n >= below {
		n = below - 1
	}
	return n
}

func (e *exampler) array(schema map[string]any, depth int) any {
	list := []any{}
	fixed, _ := schema["prefixItems"].([]any)
	for _, item := range fixed {
		of, _ := item.(map[string]any)
		list = append(list, e.value(of, depth+1))
	}
	items, some := schema["items"].(map[string]any)
	least, _ := schema["minItems"].(float64)
	for n := max(len(fixed), 1, min(int(least), 64)); some && len(list) < n; {
		list = append(list, e.value(items, depth+1))
	}
	return list
}

func (e *exampler) object(schema map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, item := range required {
		name, _ := item.(string)
		of, _ := properties[name].(map[string]any)
		out[name] = e.value(of, depth+1)
	}
	return out
}
