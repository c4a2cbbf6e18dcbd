//go:build !notracing && !nometrics

package frames_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/internal/servertest"
	"millrace/stream"
	"millrace/tracing/spans"
	"millrace/workers"
)

// The steps of a graph have spans with the frames of their models below, and the metrics count each step by its
// ending: result, skipped, or error.
func TestStepsAreObserved(t *testing.T) {
	const steps = `[{"name":"one","model":"echo","input":{"x":"x"},"output":{"x":"a"}},
		{"name":"two","model":"echo","input":{"x":"a"},"output":{"x":"y"},"when":"max(a) > 5"},
		{"name":"three","model":"fails","input":{"x":"a"},"output":{"y":"z"},"when":"max(a) > 100"}]`
	scenes.Store("fails", &scene{T: t, bySeq: []string{"refuse"}})
	defer scenes.Delete("fails")
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "echo", Source: "identity"},
		workers.Config{Name: "fails", Source: "scripted"},
		workers.Config{Name: "g", Source: "graph", Params: stream.Params{"steps": steps}})
	counted := map[string]int{}
	for i, c := range []struct {
		value  string
		status int
		spans  []string          // in order, with their kinds
		counts map[string]string // the outcome of each step
	}{
		{"7", 200, []string{"step one result", "step two result", "step three skipped"},
			map[string]string{"one": "result", "two": "result", "three": "skipped"}},
		{"3", 200, []string{"step one result", "step two skipped"},
			map[string]string{"one": "result", "two": "skipped", "three": "skipped"}},
		{"200", 400, []string{"step one result", "step three error"},
			map[string]string{"one": "result", "three": "error"}},
	} {
		id := strings.Repeat("0", 31) + string(rune('1'+i))
		req, err := http.NewRequest(http.MethodPost, "http://"+s.Addr("http")+"/v2/models/g/infer",
			strings.NewReader(`{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[`+c.value+`]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("traceparent", "00-"+id+"-"+servertest.SpanID+"-01")
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != c.status {
			t.Errorf("%s: %s", c.value, r.Status)
		}
		isStep := func(sp spans.KeptSpan) bool { return strings.HasPrefix(sp.Name, "step ") }
		k := servertest.Kept(t, s, "", func(k *spans.KeptFrame) bool {
			return k.TraceID == id && slices.ContainsFunc(k.Spans,
				isStep)
		})
		servertest.CheckTree(t, k)
		var got []string
		for _, sp := range k.Spans {
			if !isStep(sp) {
				continue
			}
			outcome := sp.Attributes["millrace.outcome"].(string)
			got = append(got, sp.Name+" "+outcome)
			if outcome == "skipped" {
				continue
			}
			model := "echo"
			if outcome == "error" {
				model = "fails"
			}
			of := servertest.Kept(t, s, "", func(k *spans.KeptFrame) bool {
				return k.TraceID == id && k.Spans[0].ParentID == sp.SpanID
			})
			if of.Spans[0].Attributes["millrace.model"] != model {
				t.Errorf("%s: under %s is %v", c.value, sp.Name, of.Spans[0])
			}
		}
		for _, want := range c.spans {
			if !slices.Contains(got, want) {
				t.Errorf("%s: spans %q, want %q", c.value, got, want)
			}
		}
		for step, outcome := range c.counts {
			counted[`outcome="`+outcome+`",step="`+step]++
		}
		_, text := servertest.Get(t, s, "/metrics")
		for step, outcome := range c.counts {
			key := `outcome="` + outcome + `",step="` + step
			n := counted[key]
			if !strings.Contains(text, `millrace_steps_total{model="g",`+key+`",version="1"} `+string(rune('0'+n))+
				"\n") {
				t.Errorf("%s: %s is not %d", c.value, key, n)
			}
		}
	}
}
