package graph_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// TestGraphFollowsItsSteps: when the model of a step is loaded again with another shape, the metadata of the graph,
// and of a graph made of the graph, fit the new model when the load returns. An unsuitable model makes the graph not
// ready, with the reason, until a suitable model is loaded.
func TestGraphFollowsItsSteps(t *testing.T) {
	x := newMachine(t)
	x.load("m", "scale", stream.Params{"size": int64(2)})
	x.load("n", "scale", stream.Params{"size": int64(2)})
	x.graph(graph.Settings{Steps: []graph.Step{{Name: "one", Model: "m", Output: map[string]string{"y": "a"}}},
		Outputs: []string{"a"}})
	x.load("outer", "graph", (&graph.Settings{Steps: []graph.Step{{Name: "in", Model: "g"}}}).Params())
	x.load("both", "graph", (&graph.Settings{Steps: []graph.Step{
		{Name: "one", Model: "m", Output: map[string]string{"y": "a"}},
		{Name: "two", Model: "n", Input: map[string]string{"x": "a"}},
	}}).Params())
	group := func(name string) *workers.Group {
		t.Helper()
		g, err := x.models.Group(name, "")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	check := func(want int, fits bool) {
		t.Helper()
		for _, name := range []string{"g", "outer"} {
			m := group(name).Model()
			if got := fmt.Sprint(m.Inputs[0].Shape, m.Outputs[0].Shape); got != fmt.Sprintf("[%d] [%d]", want, want) ||
				!group(name).Ready() {
				t.Errorf("%s has the shapes %s, and the step %d", name, got, want)
			}
		}
		st := group("both").Stats()
		if fits != group("both").Ready() || fits == strings.Contains(st.Reason,
			"model m was loaded with other inputs or outputs, and this model cannot be made of it: ") {
			t.Errorf("a graph whose steps fit (%v) is %s: %s", fits, st.State, st.Reason)
		}
	}
	check(2, true)
	swap := func(size int64) {
		t.Helper()
		if err := x.models.Swap(t.Context(), "m",
			workers.Config{Kind: "scale", Params: stream.Params{"size": size}}); err != nil {
			t.Fatal(err)
		}
	}
	swap(3)
	check(3, false)
	if r := x.infer("both", x.tensors(map[string][]float32{"x": {1, 2, 3}})); r.Outcome != stream.Failed {
		t.Errorf("a graph whose steps do not fit answers %v", r.Outputs)
	}
	if r := x.infer("g", x.tensors(map[string][]float32{"x": {1, 2, 3}})); r.Outcome != stream.Answered {
		t.Error(r.Err)
	} else {
		r.Release()
	}
	before := group("g")
	swap(3)
	if check(3, false); group("g") != before {
		t.Error("the graph was loaded again although its model has the form that it had")
	}
	swap(2)
	check(2, true)
	for range 2 { // one unload for each load
		if err := x.models.Remove(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
	}
	x.load("m", "scale", stream.Params{"size": int64(4)})
	check(4, false)
	x.load("n", "scale", stream.Params{"size": int64(2)}) // shared: nothing changes
	check(4, false)
	if err := x.models.Swap(t.Context(), "n",
		workers.Config{Kind: "scale", Params: stream.Params{"size": int64(4)}}); err != nil {
		t.Fatal(err)
	}
	if !group("both").Ready() {
		t.Errorf("a graph whose other step was swapped to fit: %s", group("both").Stats().Reason)
	}
}
