package process

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"millrace/stream"
)

// description is the message model of a child.
type description struct {
	Type      string              `json:"type"`
	Inputs    []describedTensor   `json:"inputs"`
	Outputs   []describedTensor   `json:"outputs"`
	MaxBatch  int                 `json:"max_batch"`
	Batch     bool                `json:"batch"`
	Any       bool                `json:"any"`
	Image     *describedImage     `json:"image"`
	Decoupled bool                `json:"decoupled"`
	Stateful  bool                `json:"stateful"`
	Calls     bool                `json:"calls"`  // it takes calls of routes that another model declares
	Begins    bool                `json:"begins"` // it says when it begins a batch
	Labels    map[string][]string `json:"labels"`
	App       *describedApp       `json:"app"`
	Stages    json.RawMessage     `json:"stages"` // for kinds that make models of them
	Graphs    json.RawMessage     `json:"graphs"`
	Options   json.RawMessage     `json:"options"` // the same
}

type describedTensor struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
	Color    string `json:"color,omitempty"`    // of an input that is pixels, UINT8 [height, width, channels]
	Optional bool   `json:"optional,omitempty"` // of an input that requests may leave out
}

type describedImage struct {
	Width  int       `json:"width"`
	Height int       `json:"height"`
	Color  string    `json:"color"`
	Layout string    `json:"layout"`
	Fit    string    `json:"fit"`
	Scale  []float32 `json:"scale"`
	Mean   []float32 `json:"mean"`
	Std    []float32 `json:"std"`
}

type describedApp struct {
	Style  string `json:"style"`
	Routes []struct {
		Method      string `json:"method"`
		Path        string `json:"path"`
		Endpoint    string `json:"endpoint"`
		Model       string `json:"model"`
		Events      bool   `json:"events"`
		OpenAI      bool   `json:"openai"`
		ContentType string `json:"content_type"`
	} `json:"routes"`
	OpenAPI json.RawMessage `json:"openapi"`
	Extra   map[string]any  `json:"extra"`
}

// Bounds on a program's declarations.
const (
	maxTensors = 256
	maxRoutes  = 1024
	maxDims    = 16
	maxBatch   = 4096
	maxSide    = 1 << 14 // of a picture
)

// decodeStrict decodes a message, and refuses members unknown to the protocol.
func decodeStrict(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber()
	return d.Decode(to)
}

// describe reads the message model.
func describe(text []byte) (*description, error) {
	var d description
	if err := decodeStrict(text, &d); err != nil {
		return nil, fmt.Errorf("in model: %w", err)
	}
	return &d, nil
}

// model returns the metadata described by a child's message. whole means that the worker decodes the model's
// pictures, not into rows of a batch: the pictures keep their size, or come with other inputs.
func (d *description) model() (m *stream.Model, whole bool, err error) {
	m = &stream.Model{AcceptsAnyInput: d.Any, MaxBatch: max(d.MaxBatch, 1), Decoupled: d.Decoupled,
		Stateful: d.Stateful,
		Labels:   d.Labels}
	if d.MaxBatch < 0 || d.MaxBatch > maxBatch {
		return nil, false, fmt.Errorf("max_batch is %d: want 1 to %d", d.MaxBatch, maxBatch)
	}
	if d.Stateful {
		m.Affinity = true
		m.Policy.Mode = stream.Every // an omitted frame would be missing in the state
	}
	if m.Inputs, err = specs("inputs", d.Inputs); err != nil {
		return nil, false, err
	}
	if m.Outputs, err = specs("outputs", d.Outputs); err != nil {
		return nil, false, err
	}
	if i := slices.IndexFunc(m.Inputs, func(s stream.TensorSpec) bool { return s.Optional }); i >= 0 &&
		!m.AcceptsAnyInput {
		return nil, false, fmt.Errorf("inputs[%d], %q, is optional, and any is false: the inputs of a batch are the "+
			"same for all requests", i, m.Inputs[i].Name)
	}
	m.Axis = stream.FreeAxis
	if !d.Batch && !d.Any {
		m.Axis, m.MaxBatch = stream.NoAxis, 1
	}
	m.Ragged = d.Any || len(m.Inputs) == 0 || slices.ContainsFunc(m.Inputs, func(s stream.TensorSpec) bool {
		return s.Datatype == stream.Bytes
	})
	if d.Image != nil {
		if whole, err = d.image(m); err != nil {
			return nil, false, err
		}
	}
	if len(m.Inputs) == 0 && !m.AcceptsAnyInput {
		if d.App == nil && !d.Calls {
			return nil, false, fmt.Errorf("it has no inputs, takes not any, and has no routes: nobody could use it")
		}
		m.AcceptsAnyInput = true
	}
	if m.AcceptsAnyInput { // a request's tensors pass unchanged, and so do the answer's
		asTheyCome(m.Inputs)
		asTheyCome(m.Outputs)
	}
	m.Calls = d.App != nil || d.Calls
	if d.App != nil {
		if m.App, err = d.App.app(); err != nil {
			return nil, false, err
		}
		if len(d.Stages)+len(d.Graphs) > 0 {
			// both are JSON already
			m.App.Parts, _ = json.Marshal(map[string]json.RawMessage{"stages": orEmpty(d.Stages),
				"graphs": orEmpty(d.Graphs)})
		}
	}
	return m, whole, nil
}

// asTheyCome marks tensors without a batch axis.
func asTheyCome(specs []stream.TensorSpec) {
	for i := range specs {
		specs[i].Unbatched = true
	}
}

func orEmpty(list json.RawMessage) json.RawMessage {
	if len(list) == 0 || string(list) == "null" {
		return json.RawMessage("[]")
	}
	return list
}

func specs(field string, of []describedTensor) (out []stream.TensorSpec, err error) {
	if len(of) > maxTensors {
		return nil, fmt.Errorf("%s are %d: at most %d are possible", field, len(of), maxTensors)
	}
	for i, t := range of {
		at := fmt.Sprintf("%s[%d]", field, i)
		s := stream.TensorSpec{Name: t.Name, Datatype: stream.Datatype(t.Datatype), Shape: t.Shape, Color: t.Color,
			Optional: t.Optional}
		if s.Shape == nil {
			s.Shape = []int{}
		}
		switch {
		case t.Name == "" || len(t.Name) > 256:
			return nil, fmt.Errorf("%s has no name, or one of more than 256 bytes", at)
		case slices.ContainsFunc(out, func(o stream.TensorSpec) bool { return o.Name == t.Name }):
			return nil, fmt.Errorf("%s has the name %q, which another one has", at, t.Name)
		case !s.Datatype.Valid():
			return nil, fmt.Errorf("%s, %q, has the datatype %q, which is not known", at, t.Name, t.Datatype)
		case t.Color != "" && !slices.Contains([]string{"RGB", "BGR", "GRAY"}, t.Color), t.Color != "" &&
			(s.Datatype != stream.Uint8 || len(t.Shape) != 3):
			return nil, fmt.Errorf("%s, %q, is %s %v of the color %q: want UINT8 [height, width, channels], and "+
				"RGB, BGR or GRAY", at, t.Name, t.Datatype, t.Shape, t.Color)
		case len(t.Shape) > maxDims:
			return nil, fmt.Errorf("%s, %q, has %d dimensions: at most %d are possible", at, t.Name, len(t.Shape),
				maxDims)
		}
		fixed := 1
		for _, n := range t.Shape {
			if n < -1 || n == 0 {
				return nil, fmt.Errorf("%s, %q, has the shape %v: want dimensions from 1, or -1 for any", at, t.Name,
					t.Shape)
			}
			if n > 0 && fixed > (1<<40)/n {
				return nil, fmt.Errorf("%s, %q, has the shape %v, which is too large", at, t.Name, t.Shape)
			}
			fixed *= max(n, 1)
		}
		out = append(out, s)
	}
	return out, nil
}

// image sets the picture of m.
func (d *description) image(m *stream.Model) (whole bool, err error) {
	i := d.Image
	three := func(field string, of []float32) (out [3]float32) {
		switch len(of) {
		case 0:
		case 1:
			out = [3]float32{of[0], of[0], of[0]}
		case 3:
			copy(out[:], of)
		default:
			err = fmt.Errorf("image.%s has %d numbers: want one or three", field, len(of))
		}
		return out
	}
	s := &stream.ImageSpec{Width: i.Width, Height: i.Height, Color: i.Color, Layout: i.Layout, Fit: i.Fit,
		Scale: three("scale", i.Scale), Mean: three("mean", i.Mean), Std: three("std", i.Std)}
	if err != nil {
		return false, err
	}
	switch {
	case i.Width < 0 || i.Height < 0 || i.Width > maxSide || i.Height > maxSide:
		return false, fmt.Errorf("image is %d x %d: want at most %d a side, or 0 for the size of each picture",
			i.Width, i.Height, maxSide)
	case (i.Width == 0) != (i.Height == 0):
		return false, fmt.Errorf("image is %d x %d: want both sides, or none for the size of each picture", i.Width,
			i.Height)
	case len(m.Inputs) > 1 && !m.AcceptsAnyInput:
		return false, fmt.Errorf("image is set, but there are %d inputs: a picture fills one", len(m.Inputs))
	}
	if i.Width > 0 && !m.AcceptsAnyInput {
		m.Image = s
		return false, nil
	}
	if s.Scale != [3]float32{} || s.Mean != [3]float32{} || s.Std != [3]float32{} {
		return false, fmt.Errorf("image has scale, mean or std, and no size, or any is true: such pictures are UINT8")
	}
	if len(m.Inputs) == 0 {
		m.Inputs = []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{-1, -1, 3}}}
	}
	if in := m.Inputs[0]; in.Datatype != stream.Uint8 || len(in.Shape) != 3 {
		return false, fmt.Errorf("image has no size, or any is true, and input %q is %s of shape %v: such pictures "+
			"are UINT8 with 3 dimensions", in.Name, in.Datatype, in.Shape)
	}
	m.Inputs[0].Color = cmp.Or(m.Inputs[0].Color, i.Color, "RGB")
	// Each picture has its own shape, or comes without other inputs: the batch is ragged, and the worker decodes.
	m.AcceptsAnyInput, m.Ragged, m.Axis, m.MaxBatch = true, true, stream.FreeAxis, max(d.MaxBatch, 1)
	return true, nil
}

func (a *describedApp) app() (*stream.App, error) {
	app := &stream.App{Style: a.Style}
	if len(a.Routes) > maxRoutes {
		return nil, fmt.Errorf("app.routes are %d: at most %d are possible", len(a.Routes), maxRoutes)
	}
	for i, r := range a.Routes {
		switch {
		case r.Method != "GET" && r.Method != "POST" && r.Method != "PUT" && r.Method != "DELETE" &&
			r.Method != "PATCH":
			return nil, fmt.Errorf("app.routes[%d].method is %q: want GET, POST, PUT, DELETE or PATCH", i, r.Method)
		case !strings.HasPrefix(r.Path, "/") || len(r.Path) > 1024:
			return nil, fmt.Errorf("app.routes[%d].path is %.80q: want a path that begins with a slash, of at most "+
				"1024 bytes", i, r.Path)
		}
		if r.OpenAI && r.Method != "POST" {
			return nil, fmt.Errorf("app.routes[%d].method is %s, and openai is for POST, whose body has \"stream\"", i,
				r.Method)
		}
		app.Routes = append(app.Routes, stream.Route{Method: r.Method, Path: r.Path, Endpoint: r.Endpoint,
			Model: r.Model, Events: r.Events, OpenAI: r.OpenAI, ContentType: r.ContentType})
	}
	if len(a.OpenAPI) > 0 && string(a.OpenAPI) != "null" {
		app.OpenAPI = a.OpenAPI
		var text string // also a document in a string
		if json.Unmarshal(a.OpenAPI, &text) == nil {
			app.OpenAPI = []byte(text)
		}
	}
	for key, value := range a.Extra {
		if app.Extra == nil {
			app.Extra = stream.Params{}
		}
		switch v := value.(type) {
		case json.Number:
			if n, err := v.Int64(); err == nil {
				app.Extra[key] = n
				continue
			}
			f, err := v.Float64()
			if err != nil {
				return nil, fmt.Errorf("app.extra.%s is %s, which is too large", key, v)
			}
			app.Extra[key] = f
		case string, bool:
			app.Extra[key] = v
		default: // lists and objects, as JSON
			text, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("app.extra.%s: %w", key, err)
			}
			app.Extra[key] = string(text)
		}
	}
	return app, nil
}
