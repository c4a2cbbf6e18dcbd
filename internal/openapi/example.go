package openapi

import (
	"maps"
	"slices"

	"millrace/internal/oip"
)

// Example returns a request with zeros for the model; ok = the request is short enough to show, and the model's
// inputs are known.
func (m *Model) Example() (request map[string]any, ok bool) {
	inputs := []any{}
	left := maxExample
	tensors := RequiredInputs(m.Inputs, m.Optional, func(t oip.TensorMetadata) string { return t.Name })
	if m.takesAll() {
		tensors = []oip.TensorMetadata{{Name: "x", Datatype: "FP32", Shape: []int{2}}}
	}
	for i := range tensors {
		t := &tensors[i]
		shape := ExampleShape(t.Shape)
		n := 1
		for _, d := range shape {
			n *= d
		}
		if left -= n; n < 0 || left < 0 || t.Datatype == "FP16" || t.Datatype == "BF16" { // without a notation in JSON
			return nil, false
		}
		data := make([]any, n)
		for i := range data {
			switch t.Datatype {
			case "BOOL":
				data[i] = false
			case "BYTES":
				data[i] = "text"
			default:
				data[i] = 0
			}
		}
		inputs = append(inputs, object{"name": t.Name, "datatype": t.Datatype, "shape": shape, "data": data})
	}
	return object{"inputs": inputs}, len(inputs) > 0
}

// RequiredInputs returns the inputs for a request: all inputs that are not optional, or the first input if all are
// optional.
func RequiredInputs[T any](inputs []T, optional []string, name func(T) string) []T {
	if len(inputs) == 0 {
		return nil
	}
	needed := slices.DeleteFunc(slices.Clone(inputs), func(t T) bool { return slices.Contains(optional, name(t)) })
	if len(needed) == 0 {
		return inputs[:1]
	}
	return needed
}

// ExampleShape returns a shape with 1 in place of the dimensions of any size.
func ExampleShape(shape []int) []int {
	out := make([]int, len(shape))
	for i, d := range shape {
		out[i] = d
		if d < 0 {
			out[i] = 1
		}
	}
	return out
}

// modelKey marks the operations of a model.
const modelKey = "x-millrace-model"

// modelOf returns the model of the operations of a path, "" for operations of any model.
func modelOf(item any) string {
	operations, _ := item.(map[string]any)
	for _, op := range operations {
		if op, ok := op.(map[string]any); ok {
			name, _ := op[modelKey].(string)
			return name
		}
	}
	return ""
}

// ModelsOf returns the names of the models in a document.
func ModelsOf(document map[string]any) (names []string) {
	paths, _ := document["paths"].(map[string]any)
	for _, item := range paths {
		if name := modelOf(item); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// OnlyModel removes everything from a document but the operations of one model and their schemas. The result reports
// whether the document has the model.
func OnlyModel(document map[string]any, model string) bool {
	paths, _ := document["paths"].(map[string]any)
	maps.DeleteFunc(paths, func(_ string, item any) bool { return modelOf(item) != model })
	components, _ := document["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	m := Model{ModelMetadata: oip.ModelMetadata{Name: model}}
	keep := []string{"Error", "InferRequest", "InferResponse", m.component("request"), m.component("response")}
	maps.DeleteFunc(schemas, func(name string, _ any) bool { return !slices.Contains(keep, name) })
	tags, _ := document["tags"].([]any)
	document["tags"] = slices.DeleteFunc(tags, func(tag any) bool {
		t, _ := tag.(map[string]any)
		return t["name"] != m.tag()
	})
	return len(paths) > 0
}
