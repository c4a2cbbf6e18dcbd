package rest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Clients of AMD Inference Server send no Accept and the body null, take the whole body of a load's reply as the
// endpoint's name, call workers in upper or lower case, and undo loads of removed endpoints.
func TestWorkersOfAMD(t *testing.T) {
	r := start(t, nil, "pair")
	for _, c := range []struct {
		path, body, accept string
		status             int
		want, kind         string
	}{
		{"/v2/workers/delay/load", `{"fixed":"1ms"}`, "", 200, "delay", "text/plain; charset=utf-8"},
		{"/v2/workers/Delay/load", `{"fixed":"2ms"}`, "", 200, "delay-0", "text/plain; charset=utf-8"},
		{"/v2/workers/delay/load", `{"fixed":"1ms"}`, "*/*", 200, "delay", "text/plain; charset=utf-8"},
		{"/v2/workers/delay/load", `{"fixed":"1ms"}`, "application/json;q=0", 200, "delay",
			"text/plain; charset=utf-8"},
		{"/v2/workers/delay/load", `{"fixed":"1ms"}`, "text/plain;q=0.5, Application/JSON", 200,
			`{"name":"delay","endpoint":"delay","result":"unchanged"}`, "application/json"},
		{"/v2/workers/Nothing/load", `{}`, "", 404, `Nothing`, "application/json"},
		{"/v2/workers/delay/load", `{"fixed":"soon"}`, "", 400, `fixed`, "application/json"},
		{"/v2/workers/delay-0/unload", "null", "", 200, "delay-0", "text/plain; charset=utf-8"},
		{"/v2/workers/delay-0/unload", "null", "", 200, "delay-0", "text/plain; charset=utf-8"},
		{"/v2/workers/never/unload", "null", "", 200, "never", "text/plain; charset=utf-8"},
		{"/v2/workers/delay/scale", `{"instances":2}`, "", 200, `{"name":"delay","endpoint":"delay"}`,
			"application/json"},
		{"/v2/workers/DELAY/unload", "", "", 200, "DELAY", "text/plain; charset=utf-8"},
		{"/v2/repository/models/delay/load", `{"fixed":"2ms"}`, "", 200,
			`{"name":"delay","endpoint":"delay","result":"loaded"}`, "application/json"},
		{"/v2/repository/models/delay/load", `{"parameters":{"fixed":"3ms"}}`, "", 200,
			`{"name":"delay-0","endpoint":"delay-0","result":"loaded"}`, "application/json"},
		{"/v2/repository/models/delay/load", `{"fixed":"3ms"}`, "", 200,
			`{"name":"delay-0","endpoint":"delay-0","result":"unchanged"}`, "application/json"},
		{"/v2/repository/models/delay/load", `{"fixde":"3ms"}`, "", 400, "fixde", "application/json"},
		{"/v2/repository/models/delay-0/unload", "null", "", 200, `{"name":"delay-0","endpoint":"delay-0"}`,
			"application/json"},
		{"/v2/repository/models/delay/unload", `{"fixed":"3ms"}`, "", 400, "fixed", "application/json"},
	} {
		a := r.ask("POST", c.path, []byte(c.body), isJSON, "Accept: "+c.accept)
		whole := a.StatusCode == 200
		if a.StatusCode != c.status || whole && string(a.body) != c.want ||
			!strings.Contains(string(a.body), c.want) || a.Header.Get("Content-Type") != c.kind {
			t.Errorf("%s %s, Accept %q: %v %s, want %d %s", c.path, c.body, c.accept, a, a.Header.Get("Content-Type"),
				c.status, c.want)
		}
	}
}

func TestHardware(t *testing.T) {
	r := start(t, nil, "pair")
	n := runtime.GOMAXPROCS(0)
	for body, want := range map[string]int{
		`{"name":"cpu"}`: 200, fmt.Sprintf(`{"name":"CPU","num":%d}`, n): 200,
		fmt.Sprintf(`{"name":"cpu","num":%d}`, n+1): 404,
		`{"name":"DPUCADF8H","num":1}`:              404, `{"name":"gpu","num":1000}`: 404, `{"num":1}`: 400,
		`{"name":"cpu","num":0}`: 400, `{"name":"cpu","num":"x"}`: 400, ``: 400,
	} {
		if a := r.ask("POST", "/v2/hardware", []byte(body), isJSON); a.StatusCode != want ||
			want == 200 && string(a.body) != "" {
			t.Errorf("%s: %v, want %d", body, a, want)
		}
	}
}
