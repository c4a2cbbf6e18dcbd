package openapi

import "millrace/internal/oip"

// Example returns a request with zeros for the model; ok = it is short enough to be
// shown.
func (m *Model) Example() (request map[string]any, ok bool) {
	inputs := []any{}
	left := maxExample
	tensors := m.Inputs
	if m.Any {
		tensors = []oip.TensorMetadata{{Name: "x", Datatype: "FP32", Shape: []int{2}}}
	}
	for i := range tensors {
		t := &tensors[i]
		shape := ExampleShape(t.Shape)
		n := 1
		for _, d := range shape {
			n *= d
		}
		if left -= n; n < 0 || left < 0 {
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
