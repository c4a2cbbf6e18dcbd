package graph

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// A condition is written as a text with the meaning of the read text.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{"", "a > 0.5", "boxes.score>=1", "x == NaN", "x != -0", "a<b", "any(x) < 3", "x[1] > 2",
		"x > 1e999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c, again Condition
		if c.UnmarshalText([]byte(text)) != nil {
			return
		}
		out, err := c.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalText(out); err != nil {
			t.Fatalf("%q is written as %q: %v", text, out, err)
		}
		if twice, err := again.MarshalText(); err != nil || string(twice) != string(out) {
			t.Errorf("%q is written as %q, then as %q, %v", text, out, twice, err)
		}
	})
}

// fuzzed are the models for the steps of fuzzed graphs; all other models take any input.
var fuzzed = map[string]*stream.Model{
	"detector": {
		Name: "detector", MaxBatch: 8, Image: &stream.ImageSpec{Width: 8, Height: 8, Color: "RGB", Layout: "NHWC"},
		Inputs: []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{8, 8, 3}}},
		Outputs: []stream.TensorSpec{{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}},
			{Name: "ids", Datatype: stream.Int64, Shape: []int{-1}}},
	},
	"pair": {
		Name: "pair", MaxBatch: 4, Stateful: true,
		Inputs: []stream.TensorSpec{{Name: "a", Datatype: stream.Float32, Shape: []int{2}},
			{Name: "b", Datatype: stream.Float32, Shape: []int{-1}}},
		Outputs: []stream.TensorSpec{{Name: "sum", Datatype: stream.Float32, Shape: []int{2}}},
	},
	"flat": {
		Name: "flat", MaxBatch: 1, Axis: stream.NoAxis,
		Inputs:  []stream.TensorSpec{{Name: "x", Datatype: stream.Bytes, Shape: []int{}}},
		Outputs: []stream.TensorSpec{{Name: "y", Datatype: stream.Bytes, Shape: []int{}}},
	},
}

// plans makes the plan of settings, with the models named by the steps.
func plans(t *testing.T, s *Settings) {
	var models []*stream.Model
	for i := range s.Steps {
		m := fuzzed[s.Steps[i].Model]
		if m == nil {
			m = &stream.Model{Name: s.Steps[i].Model, AcceptsAnyInput: true, Ragged: true, MaxBatch: 16}
		}
		models = append(models, m)
	}
	_, m, err := newPlan(s, models, workers.Declared{})
	checkRefusal(t, err)
	if err == nil {
		for _, specs := range [][]stream.TensorSpec{m.Inputs, m.Outputs} {
			for i, spec := range specs {
				for _, other := range specs[:i] {
					if spec.Name == other.Name {
						t.Errorf("the graph has %q twice", spec.Name)
					}
				}
			}
		}
	}
}

// checkRefusal checks that an error tells the client what to change.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var e *coded.Error
	if err != nil && (!errors.As(err, &e) || e.Code != coded.InvalidArgument && e.Code != coded.Unsupported &&
		e.Code != coded.TooLarge) {
		t.Errorf("%v has the code %s", err, coded.CodeOf(err))
	}
}

// Settings of a graph in JSON, as in load requests, are refused or make a graph, and are unchanged after writing and
// reading.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"steps":[{"model":"detector"}]}`, `{"steps":[{"model":"flat","when":"count(y) > 0"}]}`,
		`{"steps":[{"model":"pair","input":{"a":"x","b":"x"},"output":{"sum":"y"}},{"name":"again","model":"pair",` +
			`"input":{"a":"y","b":"y"},"output":{"sum":"z"}}],"outputs":["z"],"frames":3}`,
		`{"steps":[{"model":"detector"},{"model":"detector","name":"c","crop":{"boxes":"boxes","ids":"ids",` +
			`"refresh":"10","max":4,"margin":0.5},"input":{"image":"image"},"output":{"boxes":"inner"}}]}`,
		`{"steps":[{"name":"a","model":"any","input":{"x":"q"},"output":{"x":"p"}},{"name":"b","model":"any",` +
			`"input":{"x":"p"},"output":{"x":"q"}}]}`,
		`{"steps":[{"model":"nobody","version":"3","timeout":"1s","when":"max(x) < 0.5"}]}`, `{"steps":{"model":"a"}}`,
		`{"steps":[[]]}`, `{"outputs":"x"}`, `{"frames":-1}`,
	} {
		f.Add([]byte(s))
	}
	kind, ok := workers.Lookup("graph")
	if !ok {
		f.Fatal("there is no kind graph")
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var params stream.Params
		if json.Unmarshal(text, &params) != nil {
			return
		}
		settings, err := kind.Decode(params)
		checkRefusal(t, err)
		if err != nil {
			return
		}
		s := settings.(*Settings)
		again, err := kind.Decode(s.Params())
		if err != nil || !reflect.DeepEqual(again.(*Settings).Params(), s.Params()) {
			t.Errorf("%s is written as %v, which is read as %+v, %v", text, s.Params(), again, err)
		}
		plans(t, s)
	})
}

// An ensemble is refused or makes a graph.
func FuzzEnsemble(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"Outputs": ["y"], "Steps": [{"Model": "pair", "Input": {"a": "x", "b": "x"}, "Output": {"sum": "y"}}]}`,
		`{"Steps": [{"Model": "a", "Input": {"x": "y"}, "Output": {"x": "y"}}, {"Model": "a", "Input": {"x": "y"}, ` +
			`"Output": {"y": "y"}}]}`,
		`{"Steps": [{"Model": "", "Version": "x"}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var e workers.Ensemble
		if json.Unmarshal([]byte(text), &e) != nil {
			return
		}
		s, err := FromEnsemble(e)
		checkRefusal(t, err)
		if err == nil {
			plans(t, s)
		}
	})
}
