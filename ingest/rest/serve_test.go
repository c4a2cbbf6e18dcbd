package rest_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/rest"
	"millrace/internal/httpd"
)

func TestHealthAndMetadata(t *testing.T) {
	r := start(t, nil, "pair", "text")
	for path, want := range map[string]string{
		"/v2/health/live":                  `{"live":true}`,
		"/v2/health/ready":                 `{"ready":true}`,
		"/health/startup":                  `{"started":true}`,
		"/health/live":                     `{"live":true}`,
		"/health/ready":                    `{"ready":true}`,
		"/v2/models/pair/ready":            `{"name":"pair","ready":true}`,
		"/v2/models/pair/versions/1/ready": `{"name":"pair","ready":true}`,
		"/v2/models/%70air/ready":          `{"name":"pair","ready":true}`,
		"/v2/models/pair": `{"name":"pair","versions":["1"],"platform":"pair",` +
			`"inputs":[{"name":"a","datatype":"FP32","shape":[-1,3]},{"name":"b","datatype":"FP32","shape":[-1,1]}],` +
			`"outputs":[{"name":"sum","datatype":"FP32","shape":[-1,1]},{"name":"rows","datatype":"FP32",` +
			`"shape":[-1,1]}]}`,
		"/v2/models/text/versions/1": `{"name":"text","versions":["1"],"platform":"text",` +
			`"inputs":[{"name":"text","datatype":"BYTES","shape":[-1,1]}],"outputs":[{"name":"length",` +
			`"datatype":"INT64","shape":[-1,1]}]}`,
	} {
		a := r.ask("GET", path, nil)
		if a.StatusCode != 200 || string(a.body) != want || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v, want %s", path, a, want)
		}
	}
	if a := r.ask("GET", "/v2", nil); a.StatusCode != 200 || a.get("name") != "millrace" ||
		fmt.Sprint(a.get("extensions")) != "[classification model_configuration model_repository "+
			"model_repository(unload_dependents) parameters sequence statistics trace logging system_shared_memory "+
			"binary_tensor_data generate]" {
		t.Error(a)
	}
	if a := r.ask("HEAD", "/v2/health/ready", nil); a.StatusCode != 200 {
		t.Error(a)
	}
	if a := r.ask("GET", "/v2/models/none/ready", nil); a.StatusCode != 404 {
		t.Error(a)
	}
}

func TestRepository(t *testing.T) {
	r := start(t, nil, "pair")
	post := func(path, body string, want int, endpoint string) {
		t.Helper()
		a := r.ask("POST", path, []byte(body), isJSON, "Accept: text/html, application/json;q=0.9")
		if a.StatusCode != want || want == 200 && (a.get("endpoint") != endpoint || a.get("name") != endpoint) {
			t.Errorf("%s %s: %v, want %d %s", path, body, a, want, endpoint)
		}
	}
	names := func(method, body string) string {
		a := r.ask(method, "/v2/repository/index", []byte(body))
		rows, _ := a.get().([]any)
		var out []string
		for _, row := range rows {
			m := row.(map[string]any)
			out = append(out, fmt.Sprint(m["name"], " ", m["state"]))
		}
		return strings.Join(out, ", ")
	}
	post("/v2/repository/models/identity/load", "", 200, "identity")
	post("/v2/repository/models/identity/load", "{}", 200, "identity")
	post("/v2/workers/delay/load", `{"fixed":"1ms"}`, 200, "delay")
	post("/v2/workers/delay/load", `{"parameters":{"fixed":"2ms","batch_size":2}}`, 200, "delay-0")
	if a := r.ask("GET", "/v2/models", nil); a.StatusCode != 200 ||
		fmt.Sprint(a.get("models")) != "[delay delay-0 identity pair]" {
		t.Errorf("the models that are ready: %v", a)
	}
	for _, how := range [][2]string{{"GET", ""}, {"POST", ""}, {"POST", `{"ready":true}`}} {
		got := names(how[0], how[1])
		for _, n := range []string{"pair READY", "identity READY", "delay READY", "delay-0 READY"} {
			if !strings.Contains(got, n) {
				t.Errorf("%v: the index %q lacks %q", how, got, n)
			}
		}
	}
	post("/v2/repository/models/pair/versions/1/unload", "", 200, "pair")
	post("/v2/workers/delay-0/unload", "{}", 200, "delay-0")
	post("/v2/workers/delay-0/unload", "{}", 200, "delay-0")
	post("/v2/repository/models/delay-0/unload", "{}", 404, "")
	if got := names("GET", ""); strings.Contains(got, "pair READY") || strings.Contains(got, "delay-0 READY") {
		t.Errorf("the index after unloading: %q", got)
	}
}

// The server continues a client's trace. A malformed trace context is ignored, and the frame begins a new trace.
func TestTraceparent(t *testing.T) {
	r := start(t, nil, "traced")
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	const none = ""
	for h, want := range map[string]string{
		"00-" + trace + "-" + span + "-01":      trace + span + "01",
		"00-" + trace + "-" + span + "-00":      trace + span + "00",
		"01-" + trace + "-" + span + "-01-more": trace + span + "01",
		"00-" + trace + "-" + span + "-01-x":    none,
		"ff-" + trace + "-" + span + "-01":      none,
		"00":                                    none,
		strings.Repeat("-", 55):                 none,
		strings.Repeat("0", 60):                 none,
	} {
		a := r.ask("POST", "/v2/models/traced/infer?outputs=binary", []byte("x"), isBytes, "traceparent: "+h)
		got := hex.EncodeToString(a.data())
		if want == none && strings.HasSuffix(got, strings.Repeat("00", 9)) && !strings.HasPrefix(got, trace) &&
			!strings.HasPrefix(got, strings.Repeat("00", 16)) {
			got = none
		}
		if a.StatusCode != 200 || got != want {
			t.Errorf("%s: %s, trace %s, want %s", h, a.Status, got, want)
		}
	}
}

// Before Serve the routes answer that the server is starting.
func TestBeforeServe(t *testing.T) {
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	rest.New(h, rest.Options{})
	for path, want := range map[string]int{"/v2/health/live": 200, "/v2/health/ready": 503, "/health/startup": 503,
		"/v2/models/x": 503, "/v2/models/x/ready": 503, "/v2/repository/index": 503} {
		req, err := http.NewRequest(fiber.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "localhost"
		resp, err := h.App.Test(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// Requests in flight when the server ends are answered.
func TestDrain(t *testing.T) {
	r := start(t, nil, "stuck")
	replies := make(chan *answer, 1)
	go func() { replies <- r.ask("POST", "/v2/models/stuck/infer", []byte("x"), isBytes) }()
	<-stuckRuns
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	// During the drain the server reports itself as not ready, but live.
	for limit := time.Now().Add(time.Minute); ; {
		a := r.ask("GET", "/v2/health/ready", nil)
		if a.StatusCode == 503 && string(a.body) == `{"ready":false}` {
			break
		}
		if a.StatusCode != 200 || time.Now().After(limit) {
			t.Fatalf("ready while it drains: %v", a)
		}
	}
	if a := r.ask("GET", "/v2/health/live", nil); a.StatusCode != 200 {
		t.Errorf("live while it drains: %v", a)
	}
	stuckGoes <- struct{}{}
	if a := <-replies; a.StatusCode != 200 {
		t.Error(a)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := r.Memory().Stats().Leases; n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// Many concurrent clients each get their own result.
func TestConcurrent(t *testing.T) {
	r := start(t, nil, "pair", "identity")
	var wg sync.WaitGroup
	for client := range 16 {
		wg.Go(func() {
			for i := range 30 {
				v := float32(client*1000 + i)
				body := fmt.Appendf(nil, `{"id":"%v","parameters":{"binary_data_output":true},"inputs":[{"name":"a",`+
					`"datatype":"FP32","shape":[3],"data":[%v,0,0]},{"name":"b","datatype":"FP32","shape":[1],`+
					`"data":[1]}],"outputs":[{"name":"sum"}]}`, v, v)
				a := r.ask("POST", "/v2/models/pair/infer", body, isJSON)
				if a.StatusCode != 200 || a.get("id") != fmt.Sprint(v) || !bytes.Equal(a.data(), floats(v+1)) {
					t.Errorf("client %d, request %d: %v", client, i, a)
				}
				data := bytes.Repeat([]byte{byte(client), byte(i)}, 1+client*977)
				a = r.ask("POST", "/v2/models/identity/infer?outputs=binary", data, isBytes)
				if a.StatusCode != 200 || len(a.data()) != 4+len(data) || !bytes.Equal(a.data()[4:], data) ||
					a.get("id") != nil {
					t.Errorf("client %d, request %d: %s", client, i, a.Status)
				}
			}
		})
	}
	wg.Wait()
	r.NoLeases()
}
