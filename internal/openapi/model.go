package openapi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/oip"
)

// Model is a loaded model.
type Model struct {
	oip.ModelMetadata
	InputRules
	Any       bool // tensors are not checked: the declared inputs, or any tensors if none are declared
	Program   bool // a program with its own routes
	Element   bool // accepts the bytes of its single element
	Decoupled bool // may answer a request more than once
}

// maxExample is the most numbers in an example request.
const maxExample = 64

func (m *Model) tag() string { return "model " + m.Name }

// Lines describes the inputs and answers of the model.
func (m *Model) Lines() []string {
	var parts []string
	switch {
	case m.Picture != nil:
		parts = append(parts, "takes "+m.Picture.String())
	case m.Any && len(m.Inputs) == 0:
		parts = append(parts, "declares no inputs, and takes any tensors")
	}
	for _, t := range m.Inputs {
		text := "input " + tensorText(&t)
		if slices.Contains(m.Optional, t.Name) {
			text += ", which may be left out"
		}
		parts = append(parts, text)
	}
	for _, t := range m.Outputs {
		parts = append(parts, "output "+tensorText(&t))
	}
	return parts
}

func (m *Model) text() string { return strings.Join(m.Lines(), "; ") }

func tensorText(t *oip.TensorMetadata) string {
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = strconv.Itoa(d)
	}
	return t.Name + " " + t.Datatype + " [" + strings.Join(dims, ",") + "]"
}

// model adds the route of a model, infer or the route with several answers, with schemas of the model's tensors.
func (d *document) model(m *Model) {
	request, response := m.component("request"), m.component("response")
	d.schemas[request], d.schemas[response] = d.message(m, "inputs", m.Inputs), d.message(m, "outputs", m.Outputs)
	message := object{"schema": ref(request)}
	if example, ok := m.Example(); ok {
		summary := "tensors of zeros"
		if len(m.Inputs) == 0 {
			summary = "the model declares no inputs: the name, datatype and shape are an example"
		}
		message["examples"] = object{"tensors": object{"summary": summary, "value": example}}
	}
	content := object{"application/json": message, "application/octet-stream": object{"schema": object{
		"description": "binary tensors behind the JSON, whose length is in the header " +
			"Inference-Header-Content-Length; or the bytes of one tensor",
	}}}
	if m.Picture != nil && m.Picture.Alone || m.takesAll() {
		for _, kind := range []string{"image/jpeg", "image/png", "image/webp"} {
			content[kind] = object{"schema": object{"description": "a picture, of any size"}}
		}
	}
	route, summary, answer := "infer", "Run an inference of "+m.Name, object{
		"application/json": object{"schema": ref(response)},
		"application/octet-stream": object{"schema": object{
			"description": "JSON and then the bytes of binary outputs"}},
	}
	if m.Decoupled {
		route, summary = "infer_stream", "Run an inference of "+m.Name+", with an event for each answer"
		answer = object{"text/event-stream": object{
			"schema": object{"description": "server-sent events: the data of each is a reply in JSON; the last is " +
				"called end, or error"}}}
	}
	d.operation("POST", "/v2/models/"+m.Name+"/"+route, object{
		"tags": []any{m.tag()}, "summary": summary, "description": m.text(),
		"operationId": "post_model_" + escaped(m.Name),
		"requestBody": object{"required": true, "content": content},
		"responses": object{
			"200": object{"description": "the outputs", "content": answer},
			"default": object{"description": "an error",
				"content": object{"application/json": object{"schema": ref("Error")}}},
		},
		modelKey: m.Name, versionKey: strings.Join(m.Versions, ","), inputRulesKey: m.InputRules,
	})
}

// takesAll reports whether the model accepts any tensors.
func (m *Model) takesAll() bool { return m.Any && !m.Program && len(m.Inputs) == 0 }

// escaped returns a name in letters, digits and _. An escaped byte is _ and its hexadecimal code, so that different
// names stay different.
func escaped(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// component returns the name of a schema of the model.
func (m *Model) component(of string) string { return "model." + m.Name + "." + of }

// message returns the schema of a request or a reply with tensors.
func (d *document) message(m *Model, side string, tensors []oip.TensorMetadata) object {
	kind := "InferRequest"
	if side == "outputs" {
		kind = "InferResponse"
	}
	if m.Any || len(tensors) == 0 {
		return ref(kind)
	}
	var forms []any
	for i := range tensors {
		forms = append(forms, tensorSchema(&tensors[i]))
	}
	if side == "outputs" {
		for i := range tensors {
			if tensors[i].Datatype != oip.Bytes {
				forms = append(forms, classesSchema(&tensors[i]))
			}
		}
	}
	if side == "inputs" && m.Picture != nil {
		forms = append(forms, pictureSchema(&tensors[0]))
	}
	list := object{"type": "array", "items": object{"oneOf": forms}, "maxItems": len(tensors)}
	if side == "inputs" {
		list["minItems"] = len(tensors)
	}
	return object{"allOf": []any{ref(kind), object{"properties": object{side: list}}}}
}

// tensorSchema returns the schema of a tensor in JSON.
func tensorSchema(t *oip.TensorMetadata) object {
	properties := object{
		"name":     object{"const": t.Name},
		"datatype": object{"const": t.Datatype},
		"shape":    shapeSchema(t.Shape),
		"data":     dataSchema(t.Datatype),
	}
	return object{"type": "object", "title": tensorText(t), "properties": properties,
		"required": []any{"name", "datatype", "shape"}}
}

// pictureSchema returns the schema of a picture in place of the tensor t.
func pictureSchema(t *oip.TensorMetadata) object {
	return object{"type": "object", "title": t.Name + " as a picture", "required": []any{"name", "datatype", "shape"},
		"properties": object{
			"name":     object{"const": t.Name},
			"datatype": object{"const": oip.Bytes},
			"shape":    object{"type": "array", "items": object{"const": 1}},
			"data": object{"type": "array", "minItems": 1, "maxItems": 1,
				"description": "JPEG, PNG or WebP, of any size",
				"items":       object{"type": "string", "contentEncoding": "base64"}},
		}}
}

// classesSchema returns the schema of the largest elements of the tensor t, the answer to a request with the
// parameter classification.
func classesSchema(t *oip.TensorMetadata) object {
	return object{"type": "object", "title": "the largest elements of " + t.Name,
		"description": "with the parameter classification: VALUE:INDEX or VALUE:INDEX:LABEL",
		"required":    []any{"name", "datatype", "shape"}, "properties": object{
			"name":     object{"const": t.Name},
			"datatype": object{"const": oip.Bytes},
			"shape":    object{"type": "array", "items": object{"type": "integer", "minimum": 0}},
			"data":     dataSchema(oip.Bytes),
		}}
}

// shapeSchema requires the size of each dimension, and allows any size for -1.
func shapeSchema(shape []int) object {
	dims := []any{}
	for _, n := range shape {
		if n < 0 {
			dims = append(dims, object{"type": "integer", "minimum": 0})
		} else {
			dims = append(dims, object{"const": n})
		}
	}
	return object{"type": "array", "prefixItems": dims, "items": object{"type": "integer"}}
}

// dataSchema returns the schema of a tensor's elements, flat or nested.
func dataSchema(datatype string) object {
	element := object{"type": "number"}
	switch {
	case datatype == "BOOL":
		element = object{"type": "boolean"}
	case datatype == "BYTES":
		element = object{"type": "string"}
	case strings.HasPrefix(datatype, "UINT"):
		element = object{"type": "integer", "minimum": 0}
	case strings.HasPrefix(datatype, "INT"):
		element = object{"type": "integer"}
	}
	return object{"type": "array", "items": object{"anyOf": []any{element, object{"type": "array"}}}}
}

// inferRequest is the schema of a request for any model.
func inferRequest() object {
	return object{
		"type": "object", "required": []any{"inputs"},
		"properties": object{
			"id":         object{"type": "string", "description": "the reply has it too"},
			"parameters": object{"type": "object"},
			"inputs":     object{"type": "array", "items": anyTensor()},
			"outputs": object{"type": "array", "items": object{
				"type": "object", "required": []any{"name"},
				"properties": object{"name": object{"type": "string"}, "parameters": object{"type": "object"}},
			}},
		},
	}
}

// inferResponse is the schema of the reply of any model.
func inferResponse() object {
	return object{
		"type": "object", "required": []any{"model_name", "outputs"},
		"properties": object{
			"model_name": object{"type": "string"}, "model_version": object{"type": "string"},
			"id":         object{"type": "string"},
			"parameters": object{"type": "object"}, "outputs": object{"type": "array", "items": anyTensor()},
		},
	}
}

func anyTensor() object {
	return object{
		"type": "object", "required": []any{"name", "datatype", "shape"},
		"properties": object{
			"name": object{"type": "string"},
			"datatype": object{"type": "string", "enum": []any{"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8",
				"INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES"}},
			"shape":      object{"type": "array", "items": object{"type": "integer"}},
			"parameters": object{"type": "object"},
			"data":       object{"type": "array", "description": "flat or nested; missing when the data are binary"},
		},
	}
}
