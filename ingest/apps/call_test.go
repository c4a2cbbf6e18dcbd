package apps_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"millrace/server"
)

// TestCall: the program gets the request as it was sent, and its reply is that of the server.
func TestCall(t *testing.T) {
	r := start(t, nil, "svc")
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	a := r.Ask("POST", "/apps/svc/call?a=1&b=%20", "hello", "Content-Type: text/x", "X-Two: 1", "X-Two: 2",
		"Cookie: c=d", "Cookie: e=f",
		"Millrace-Deadline-Ms: 60000", "Traceparent: 00-"+trace+"-00f067aa0ba902b7-01")
	var got struct {
		Endpoint, Method, Path, Query, ContentType, Body, Trace string
		Header                                                  map[string]string
		Deadline                                                bool
	}
	if err := json.Unmarshal([]byte(a.Text), &got); err != nil || a.StatusCode != 200 {
		t.Fatal(a, err)
	}
	for name, is := range map[string][2]string{
		"endpoint": {got.Endpoint, "call"}, "method": {got.Method, "POST"}, "path": {got.Path, "/call"},
		"query":        {got.Query, "a=1&b=%20"},
		"content type": {got.ContentType, "text/x"}, "body": {got.Body, "hello"},
		"header": {got.Header["x-two"], "1, 2"}, "cookie": {got.Header["cookie"], "c=d; e=f"},
		"no length": {got.Header["content-length"], ""}, "trace": {got.Trace, trace},
		"reply's type": {a.Header.Get("Content-Type"), "application/json"}, "reply's header": {a.Header.Get("X-Own"),
			"1"}, "reply's cookie": {a.Header.Get("Set-Cookie"), "app.svc.a=b; Path=/apps/svc/"},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %q, want %q", name, is[0], is[1])
		}
	}
	if !got.Deadline {
		t.Error("the deadline did not reach the program")
	}
	if id := a.Header.Get("Traceresponse"); !strings.Contains(id, trace) {
		t.Errorf("Traceresponse %q", id)
	}
	if timing := a.Header.Get("Server-Timing"); !strings.Contains(timing, "run;dur=") {
		t.Errorf("Server-Timing %q", timing)
	}
	r.NoLeases()
}

// TestAnswers: what the program and the server say has its status, and memory is released.
func TestAnswers(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.MaxBody = 64 << 10 }, "svc", "other")
	big := strings.Repeat("0123456789", 6000)
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf("X-%d: 1", i)
	}
	for _, c := range []struct {
		method, path, body string
		headers            []string
		status             int
		says               string
	}{
		{"POST", "/apps/svc/echo", "hi", nil, 200, "hi"},
		{"POST", "/apps/svc/echo", "", nil, 200, ""},
		{"POST", "/apps/svc/echo", big, nil, 200, big},
		{"POST", "/apps/svc/%65cho", "hi", nil, 200, "hi"},
		{"HEAD", "/apps/svc/call", "", nil, 200, ""},
		{"GET", "/apps/svc/empty", "", nil, 204, ""},
		{"POST", "/apps/svc/refuse", "", nil, 422, `{"detail":"no"}`},
		{"POST", "/apps/svc/fail", "", nil, 503, `{"error":"it failed","code":"overloaded"}`},
		{"POST", "/apps/svc/fail", "418", nil, 418, `{"error":"it failed","code":"overloaded"}`},
		{"POST", "/apps/svc/fail", "200", nil, 503, "it failed"},
		{"POST", "/apps/svc/tensor", "", nil, 500, "cannot be sent: output x is UINT8"},
		{"POST", "/apps/svc/several", "2", nil, 400,
			"has answered POST /several several times, which is not a route of events"},
		{"GET", "/apps/svc/echo", "", nil, 405, `program svc does not serve GET at \"/echo\": use POST`},
		{"PUT", "/apps/svc/echo", "", nil, 405, `program svc does not serve PUT at \"/echo\": use POST`},
		{"PUT", "/apps/svc/call", "x", nil, 200, `"Method":"PUT","Path":"/call"`},
		{"PATCH", "/apps/svc/call", "x", nil, 200, `"Method":"PATCH","Path":"/call"`},
		{"DELETE", "/apps/svc/call", "", nil, 200, `"Method":"DELETE","Path":"/call"`},
		{"OPTIONS", "/apps/svc/call", "", nil, 405, "use GET, HEAD, POST, PUT, DELETE, PATCH"},
		{"POST", "/apps/svc", "x", nil, 200, "x"},
		{"POST", "/apps/svc/nothing", "", nil, 404, "its routes are POST /echo, GET /call, POST /call"},
		{"DELETE", "/apps/svc", "", nil, 405, "use POST"},
		{"POST", "/apps/nobody/echo", "", nil, 404, `there is no program \"nobody\": there are other, svc`},
		{"GET", "/apps/nobody", "", nil, 404, "there are other, svc"},
		{"POST", "/apps/svc/echo", big + big, nil, 413, "limits.max_body"},
		{"POST", "/apps/svc/echo", "", many, 431, "headers: want at most 100"},
		{"POST", "/apps/svc/echo", "", []string{"X-Long: " + strings.Repeat("x", 20000)}, 431,
			"request line and header"},
		{"POST", "/apps/svc/echo", "", []string{"Millrace-Deadline-Ms: soon"}, 400,
			`Millrace-Deadline-Ms: \"soon\" is not a time in milliseconds`},
		{"POST", "/apps/svc/echo", "x", []string{"Content-Encoding: lzw"}, 415, "Content-Encoding"},
		{"POST", "/v2/models/svc/infer", `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1,1],"data":["x"]}]}`,
			[]string{"Content-Type: application/json"}, 200, "no call"},
	} {
		a := r.Ask(c.method, c.path, c.body, c.headers...)
		if a.StatusCode != c.status || !strings.Contains(a.Text, c.says) {
			t.Errorf("%s %s: %.200v, want %d %.100s", c.method, c.path, a, c.status, c.says)
		}
		if a.StatusCode == 405 && a.Header.Get("Allow") == "" {
			t.Errorf("%s %s has no Allow", c.method, c.path)
		}
	}
	r.NoLeases()
}

// TestCompressed: a large answer is compressed for a client that asks for it.
func TestCompressed(t *testing.T) {
	r := start(t, nil, "svc")
	big := strings.Repeat("0123456789", 6000)
	req, err := http.NewRequest("POST", r.Base+"/apps/svc/echo", strings.NewReader(big))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req) // asks for gzip by itself
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := make([]byte, len(big)+1)
	n := 0
	for err == nil {
		var m int
		m, err = resp.Body.Read(got[n:])
		n += m
	}
	if string(got[:n]) != big || !resp.Uncompressed {
		t.Errorf("%d bytes, compressed: %v", n, resp.Uncompressed)
	}
	r.NoLeases()
}

// TestList: the list has the programs and their routes, and each its document.
func TestList(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Programs.Root = "a" }, "b", "a")
	var rows []struct {
		Name, Style, OpenAPI string
		Ready, Root          bool
		Routes               []struct{ Method, Path string }
	}
	a := r.Ask("GET", "/apps", "")
	if err := json.Unmarshal([]byte(a.Text), &rows); err != nil || len(rows) != 2 {
		t.Fatal(a, err)
	}
	if rows[0].Name != "a" || rows[1].Name != "b" || !rows[0].Root || rows[1].Root || !rows[0].Ready ||
		rows[0].Routes[0].Path != "/apps/a/echo" {
		t.Errorf("%+v", rows)
	}
	var doc struct {
		Paths map[string]map[string]any
	}
	a = r.Ask("GET", rows[1].OpenAPI, "")
	if err := json.Unmarshal([]byte(a.Text), &doc); err != nil {
		t.Fatal(a, err)
	}
	if doc.Paths["/echo"]["post"] == nil || doc.Paths["/call"]["get"] == nil {
		t.Error(a)
	}
	if a = r.Ask("GET", "/apps/b", ""); !strings.Contains(a.Text, `"name":"b"`) {
		t.Error(a)
	}
}

// TestRoot: a program at the root does not hide the routes of the server.
func TestRoot(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Programs.Root = "svc" }, "svc", "b")
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/echo", "hi", 200, "hi"},
		{"POST", "/apps/svc/echo", "hi", 200, "hi"},
		{"POST", "/apps/b/echo", "hi", 200, "hi"},
		{"GET", "/v2", "", 200, `"extensions"`},
		{"GET", "/", "", 302, ""},
		{"GET", "/echo", "", 405, "use POST"},
		{"POST", "/nothing", "", 404, "its routes are POST /echo"},
		{"GET", "/v2/models/nobody", "", 404, "nobody"},
		{"POST", "/v2", "", 405, "use GET"},
		{"POST", "/", "hi", 200, "hi"},
		{"POST", "/console/run", "hi", 200, "hi"},
		{"PUT", "/console/run", "hi", 405, "use GET"},
		{"GET", "/docs/run", "", 200, `"Path":"/docs/run"`},
		{"DELETE", "/call", "", 200, `"Method":"DELETE"`},
	} {
		if a := r.Ask(c.method, c.path, c.body); a.StatusCode != c.status || !strings.Contains(a.Text, c.says) {
			t.Errorf("%s %s: %.200v, want %d %s", c.method, c.path, a, c.status, c.says)
		}
	}
}

// TestClientLeaves: the program is told that nobody waits for the result.
func TestClientLeaves(t *testing.T) {
	r := start(t, nil, "svc")
	for _, path := range []string{"/apps/svc/stuck", "/apps/svc/stuck_events"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.Base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab", path)
		<-stuckRuns
		conn.Close()
		if <-stuckEnds {
			t.Errorf("%s: the result is still wanted", path)
		}
	}
	r.NoLeases()
}

// TestKey: the routes of a program at the root need the key also where a page of the server's
// needs none.
func TestKey(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.Programs.Root, c.APIKey = "svc", "secret"
	}, "svc")
	for _, c := range []struct {
		method, path string
		status       int // without the key
	}{
		{"POST", "/", 401},
		{"POST", "/echo", 401},
		{"GET", "/docs/run", 401},
		{"PUT", "/call", 401},
		{"DELETE", "/apps/svc/call", 401},
		{"GET", "/", 302},
		{"GET", "/v2/health/ready", 200},
		{"GET", "/docs", 302},
	} {
		if a := r.Ask(c.method, c.path, "x"); a.StatusCode != c.status {
			t.Errorf("%s %s: %v, want %d", c.method, c.path, a, c.status)
		}
		if a := r.Ask(c.method, c.path, "x", "api_key: secret"); a.StatusCode >= 400 {
			t.Errorf("%s %s with the key: %v", c.method, c.path, a)
		}
	}
}
