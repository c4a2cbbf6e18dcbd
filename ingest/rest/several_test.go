package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"millrace/workers"
)

// event is a server-sent event.
type event struct{ name, data string }

// readEvents reads events to the end of the reply.
func readEvents(t *testing.T, body io.Reader) (all []event) {
	t.Helper()
	var e event
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "":
			if e != (event{}) {
				all = append(all, e)
			}
			e = event{}
		case strings.HasPrefix(line, "event: "):
			e.name = line[7:]
		case strings.HasPrefix(line, "data: "):
			e.data += line[6:]
		case !strings.HasPrefix(line, ":"):
			t.Errorf("line %q", line)
		}
	}
	return all
}

// events asks for events.
func (r *running) events(path, body string) (*http.Response, []event) {
	r.T.Helper()
	resp, err := http.Post(r.Base+path, "application/json", strings.NewReader(body))
	if err != nil {
		r.T.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == 200 {
		if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream; charset=utf-8" {
			r.T.Errorf("%s: Content-Type %q", path, ct)
		}
		return resp, readEvents(r.T, resp.Body)
	}
	b, _ := io.ReadAll(resp.Body)
	return resp, []event{{"", string(b)}}
}

// Each event is one chunk, so that clients that read in blocks see complete events. HTTP/1.0 has no chunks.
func TestChunksOfEvents(t *testing.T) {
	r := start(t, nil, "repeat")
	ask := func(version string) string {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.Base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		body := `{"IN":[5,6],"DELAY":[0,0],"WAIT":0}`
		fmt.Fprintf(conn, "POST /v2/models/repeat/generate_stream HTTP/%s\r\nHost: localhost\r\nContent-Length: "+
			"%d\r\n\r\n%s", version, len(body), body)
		reply, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(reply), "\r\n\r\n")
		return after
	}
	const one, two = `data: {"model_name":"repeat","model_version":"1","OUT":5,"IDX":0}` + "\n\n",
		`data: {"model_name":"repeat","model_version":"1","OUT":6,"IDX":1}` + "\n\n"
	if got, want := ask("1.1"), fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", len(one), one, len(two),
		two); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := ask("1.0"); got != one+two {
		t.Errorf("%q, want %q", got, one+two)
	}
}

func repeatRequest(in, delay string, more string) string {
	n := len(strings.Split(in, ","))
	return fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"INT32","shape":[%d],"data":[%s]},{"name":"DELAY",`+
		`"datatype":"UINT32","shape":[%d],"data":[%s]},{"name":"WAIT","datatype":"UINT32","shape":[1],"data":[0]}]%s}`,
		n, in, n, delay, more)
}

func TestInferStream(t *testing.T) {
	r := start(t, nil, "repeat", "pair", "identity")
	_, got := r.events("/v2/models/repeat/infer_stream",
		repeatRequest("7,8", "0,0", `,"id":"q","outputs":[{"name":"OUT"}]`))
	one := func(n string) event {
		return event{"", `{"model_name":"repeat","model_version":"1","id":"q","outputs":[{"name":"OUT",` +
			`"datatype":"INT32","shape":[1],"data":[` + n + `]}]}`}
	}
	if want := []event{one("7"), one("8"), {"end", "{}"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// A model with one answer.
	const pair = `{"inputs":[{"name":"a","datatype":"FP32","shape":[3],"data":[1,2,3]},{"name":"b",` +
		`"datatype":"FP32","shape":[1],"data":[4]}],"outputs":[{"name":"sum"}]}`
	_, got = r.events("/v2/models/pair/versions/1/infer_stream", pair)
	if len(got) != 2 || !strings.Contains(got[0].data, `"data":[10]`) || got[1].name != "end" {
		t.Errorf("%q", got)
	}
	// Errors before the first event have their status.
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v2/models/nobody/infer_stream", pair, 404, "nobody"},
		{"/v2/models/pair/infer_stream", `{"inputs":[]}`, 400, "inputs"},
		{"/v2/models/pair/infer_stream", strings.Replace(pair, "[3]", "[2]", 1), 400, "inputs[0]"},
		{"/v2/models/pair/infer_stream", strings.Replace(pair, `"sum"`, `"sum","parameters":{"binary_data":true}`, 1),
			400, "binary_data"},
		{"/v2/models/pair/infer_stream", `{"parameters":{"binary_data_output":true},` + pair[1:], 400,
			"binary_data_output"},
		{"/v2/models/repeat/infer_stream", repeatRequest("1,2", "0,0,0", ""), 400, "inputs[1].data"},
		{"/v2/models/repeat/infer", repeatRequest("1,2", "0,0", ""), 400, "infer_stream"},
	} {
		resp, got := r.events(c.path, c.body)
		if resp.StatusCode != c.status || !strings.Contains(got[0].data, c.says) {
			t.Errorf("%s: %s %q, want %d with %s", c.path, resp.Status, got, c.status, c.says)
		}
	}
	// Numbers that are not finite, whatever the earlier requests asked for.
	infinite := strings.Replace(pair, "[1,2,3]", "[1,2,Infinity]", 1)
	for range 3 {
		if a := r.ask("POST", "/v2/models/identity/infer", []byte("x"), isBytes); a.StatusCode != 200 {
			t.Error(a)
		}
		if _, got := r.events("/v2/models/pair/infer_stream", infinite); len(got) != 2 ||
			!strings.Contains(got[0].data, `"data":[Infinity]`) {
			t.Errorf("%q", got)
		}
	}
	r.NoLeases()
}

// An answer that JSON cannot hold is refused, with the calls that can answer.
func TestEventsWithoutJSON(t *testing.T) {
	r := start(t, nil, "identity", "repeat")
	message := `{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}}]}`
	a := r.ask("POST", "/v2/models/identity/infer_stream", []byte(message+"\x02\x00\x00\x00\xff\xd8"),
		fmt.Sprint("Inference-Header-Content-Length: ", len(message)))
	for _, want := range []string{"outputs[0].data[0]", "is not UTF-8, which JSON cannot carry. This call answers " +
		"JSON only: use a WebSocket at /v2/models/identity/stream with outputs=binary", "infer with outputs=binary",
		"ModelStreamInfer of gRPC"} {
		if a.StatusCode != 400 || !strings.Contains(a.String(), want) {
			t.Errorf("%v lacks %q", a, want)
		}
	}
	r.NoLeases()
}

// An error after the first answer is an event, the last event.
func TestLateErrors(t *testing.T) {
	r := start(t, nil, "failing")
	const text = "emitted 1 and failed"
	_, got := r.events("/v2/models/failing/infer_stream",
		`{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[7]}]}`)
	if len(got) != 2 || got[0].name != "" || !strings.Contains(got[0].data, `"data":[7]`) || got[1].name != "error" ||
		!strings.Contains(got[1].data, text) || !json.Valid([]byte(got[1].data)) {
		t.Errorf("%q", got)
	}
	_, got = r.events("/v2/models/failing/generate_stream", `{"x":7}`)
	if len(got) != 2 || got[0].name != "" || !strings.Contains(got[0].data, `"x":7`) || got[1].name != "" ||
		!strings.HasPrefix(got[1].data, `{"error":`) || !strings.Contains(got[1].data, text) {
		t.Errorf("%q", got)
	}
	r.NoLeases()
}

func TestGenerate(t *testing.T) {
	r := start(t, nil, "repeat", "pair", "text", "identity")
	for _, c := range []struct {
		model, body, want string
	}{
		{"text", `{"text":"héllo"}`, `{"model_name":"text","model_version":"1","length":6}`},
		{"text", `{"id":"7","text":["abc"],"parameters":{"temperature":0.5},"top":1}`,
			`{"model_name":"text","model_version":"1","id":"7","length":3}`},
		{"pair", `{"a":[1,2,3],"b":4}`, `{"model_name":"pair","model_version":"1","sum":10,"rows":1}`},
		{"pair", `{"a":[[1,2,3],[4,5,6]],"b":[[0.5],[-1]]}`,
			`{"model_name":"pair","model_version":"1","sum":[6.5,14],"rows":[1,1]}`},
		{"repeat", `{"IN":5,"DELAY":0,"WAIT":0}`, `{"model_name":"repeat","model_version":"1","OUT":5,"IDX":0}`},
	} {
		if a := r.ask("POST", "/v2/models/"+c.model+"/generate", []byte(c.body), isJSON); a.StatusCode != 200 ||
			string(a.body) != c.want {
			t.Errorf("%s: %v, want %s", c.body, a, c.want)
		}
	}
	_, got := r.events("/v2/models/repeat/generate_stream", `{"IN":[5,6],"DELAY":[0,0],"WAIT":0}`)
	want := []event{{"", `{"model_name":"repeat","model_version":"1","OUT":5,"IDX":0}`},
		{"", `{"model_name":"repeat","model_version":"1","OUT":6,"IDX":1}`}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	if _, got = r.events("/v2/models/repeat/generate_stream", `{"IN":[],"DELAY":[],"WAIT":0}`); len(got) != 0 {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		model, body string
		status      int
		says        string
	}{
		{"text", ``, 400, "empty"},
		{"text", `[1]`, 400, "not a JSON object"},
		{"text", `{"text":"a"`, 400, "JSON"},
		{"text", `{"text":"a"} 1`, 400, "more bytes"},
		{"text", `{"text":"a","text":"b"}`, 400, "text: input 'text' already exists in request"},
		{"text", `{"text":"a","x":1,"x":1}`, 400, "x: is given twice"},
		{"text", `{"text":null}`, 400, "text: is not a value"},
		{"text", `{"text":{}}`, 400, "text: is not a value"},
		{"text", `{"text":1}`, 400, "text[0]: "},
		{"text", `{"words":"a"}`, 400, "expected 1 inputs but got 0 inputs for model 'text'"},
		{"text", `{"text":"a","parameters":1}`, 400, "parameters: Expected JSON object for keyword: 'parameters'"},
		{"text", `{"text":"a","parameters":{"x":1,"nested":{"y":1}}}`, 400,
			"parameters.nested: Converting keyword: 'parameters': parameter 'nested' has invalid type."},
		{"text", `{"text":"a","options":{}}`, 400, "options: parameter 'options' has invalid type"},
		{"text", `{"text":"a","priority":1,"parameters":{"priority":2}}`, 400, "parameters.priority"},
		{"pair", `{"a":[1,2,3]}`, 400, "missing required input(s) ['b']"},
		{"pair", `{"a":[1,2],"b":1}`, 400, "a.shape"},
		{"pair", `{"a":[[1,2,3],[1,2]],"b":1}`, 400, "a"},
		{"text", `{"text":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, 400, ""},
		{"text", `{"text":` + strings.Repeat("[", 70) + "1" + strings.Repeat("]", 70) + `}`, 400, "dimensions"},
		{"repeat", `{"IN":[5,6],"DELAY":[0,0],"WAIT":0}`, 400, "generate expects model to produce exactly 1 response"},
		{"repeat", `{"IN":[],"DELAY":[],"WAIT":0}`, 400, "generate expects model to produce exactly 1 response"},
		{"nobody", `{"text":"a"}`, 404, "nobody"},
	} {
		for _, route := range []string{"generate", "generate_stream"} {
			if c.model == "repeat" && route == "generate_stream" {
				continue
			}
			a := r.ask("POST", "/v2/models/"+c.model+"/"+route, []byte(c.body), isJSON)
			if a.StatusCode != c.status || !strings.Contains(a.String(), c.says) || !json.Valid(a.body) {
				t.Errorf("%.100s: %v, want %d with %s", c.body, a, c.status, c.says)
			}
		}
	}
	for _, option := range []string{"codec=jpeg", "width=3", "height=3", "roi=0,0,1,1", "datatype=FP32", "shape=1",
		"outputs=json", "outputs=binary"} {
		name, _, _ := strings.Cut(option, "=")
		for _, route := range []string{"generate", "generate_stream"} {
			a := r.ask("POST", "/v2/models/text/"+route+"?"+option, []byte(`{"text":"a"}`), isJSON)
			if a.StatusCode != 400 || !strings.Contains(a.String(), name+": is not an option of generate") {
				t.Errorf("%s?%s: %v", route, option, a)
			}
		}
	}
	if a := r.ask("POST", "/v2/models/text/generate?deadline_ms=60000&outputs=none", []byte(`{"text":"a"}`),
		isJSON); a.StatusCode != 200 || string(a.body) != `{"model_name":"text","model_version":"1"}` {
		t.Error(a)
	}
	for path, body := range map[string]string{
		"/v2/models/text/infer_stream?outputs=binary": `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],` +
			`"data":["a"]}]}`, "/v2/models/text/infer_stream?outputs=binary&codec=opaque": "a"} {
		if a := r.ask("POST", path, []byte(body), isJSON); a.StatusCode != 400 ||
			!strings.Contains(a.String(), "outputs: events carry JSON") {
			t.Errorf("%s: %v", path, a)
		}
	}
	r.NoLeases()
}

// A leaving client frees the worker at once.
func TestEventsEndWithTheirClient(t *testing.T) {
	r := start(t, nil, "repeat")
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", r.Base+"/v2/models/repeat/infer_stream",
		strings.NewReader(repeatRequest("1,2", "0,4000000", "")))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 10)
	if _, err := io.ReadFull(resp.Body, first); err != nil || !bytes.HasPrefix(first, []byte("data: ")) {
		t.Fatalf("%q, %v", first, err)
	}
	cancel()
	resp.Body.Close()
	// The second request needs the only worker; without the disconnect, the first request would hold the worker for
	// an hour.
	if _, got := r.events("/v2/models/repeat/infer_stream", repeatRequest("3", "0", "")); len(got) != 2 {
		t.Errorf("%q", got)
	}
	r.NoLeases()
}

// A connection may fail before the events take over the connection, because the reply to the previous request cannot
// be written. No memory stays leased then, and the end of the server waits for nothing.
func TestEventsOfLostConnections(t *testing.T) {
	r := start(t, nil, "repeat")
	body := repeatRequest("1", "0", "")
	both := fmt.Sprintf("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"+
		"POST /v2/models/repeat/infer_stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for range 30 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.Base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, both); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // closed with a reset
		conn.Close()
	}
	r.NoLeases()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// A client that leaves while its request waits frees its place, even while the worker is in a run.
func TestEventsThatWaitEndWithTheirClient(t *testing.T) {
	r := start(t, nil)
	if _, err := r.Models().LoadConfig(t.Context(), workers.Config{Name: "few", Kind: "stuck", MaxFlows: 2},
		true); err != nil {
		t.Fatal(err)
	}
	replies := make(chan *answer, 1)
	go func() { replies <- r.ask("POST", "/v2/models/few/infer", []byte("x"), isBytes) }()
	<-stuckRuns
	waits := func(n int) {
		t.Helper()
		for limit := time.Now().Add(20 * time.Second); r.Models().Snapshot()[0].Waiting != n; time.Sleep(
			time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%+v", r.Models().Snapshot()[0])
			}
		}
	}
	for _, route := range []string{"infer_stream", "infer", "infer_stream"} {
		const body = `{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[1]}]}`
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			for {
				req, _ := http.NewRequestWithContext(ctx, "POST", r.Base+"/v2/models/few/"+route,
					strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return
				}
				resp.Body.Close()
				// the place is freed a moment after the frame has left the queue
				if resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s: %s", route, resp.Status)
					return
				}
			}
		}()
		waits(1)
		cancel()
		<-left
		waits(0)
	}
	stuckGoes <- struct{}{}
	if a := <-replies; a.StatusCode != 200 {
		t.Error(a)
	}
	r.NoLeases()
}

// TestEventsWhileTheServerDrains: requests in flight get all their answers.
func TestEventsWhileTheServerDrains(t *testing.T) {
	r := start(t, nil, "repeat")
	resp, err := http.Post(r.Base+"/v2/models/repeat/infer_stream", "application/json",
		strings.NewReader(repeatRequest("1,2", "0,300", "")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if got := readEvents(t, resp.Body); len(got) != 3 || got[2].name != "end" {
		t.Errorf("%q", got)
	}
}
