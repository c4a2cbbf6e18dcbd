package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"millrace/internal/inferencepb"
	"millrace/internal/testneeds"
)

// ssfExample is an application in the form of Simple Server Framework.
const ssfExample = "../../examples/migrating/ssf/ssf_config.yaml"

// ssfCommandOf prepares a run of millrace ssf with Debian's Python.
func ssfCommandOf(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	interpreter := testneeds.Python(t)
	c := command(t, append([]string{"ssf"}, args...)...)
	c.Env = append(c.Env, "PATH="+filepath.Dir(interpreter)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"MILLRACE_LOG_FORMAT=text")
	return c
}

// copyOf returns the path of the configuration in a copy of its folder.
func copyOf(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(config))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, filepath.Base(config))
}

// ssfApplication writes an application with one method request, and returns the path of the application's
// configuration.
func ssfApplication(t *testing.T, application, endpoints, request string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ssf_config.yaml": "ssf_version: 1.0.0\napplication: {id: app, name: App, desc: an app, version: 1.0, " +
			"module: app.py, " + application + "}\nendpoints:\n" + endpoints,
		"app.py": `
import os, threading, time
from ssf.application_interface.application import SSFApplicationInterface
from ssf.application_interface.results import *

class App(SSFApplicationInterface):
    def build(self): return RESULT_OK
    def startup(self):
        self.calls = 0
        return RESULT_OK
    def shutdown(self): return RESULT_OK
    def request(self, params, meta):
        self.calls += 1
` + request,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "ssf_config.yaml")
}

func serveSSF(t *testing.T, args ...string) *octoaiServer {
	t.Helper()
	p := begin(t, ssfCommandOf(t, args...))
	return &octoaiServer{p, httpAddr.FindString(p.until("millrace is ready: "))}
}

// post sends a call and returns the status and the body.
func (s *octoaiServer) post(path, body string) (int, string) {
	s.t.Helper()
	code, _, text := s.ask("POST", path, "application/json", body)
	return code, text
}

func (s *octoaiServer) want(path, body string, code int, text string) {
	s.t.Helper()
	if c, b := s.post(path, body); c != code || !strings.Contains(b, text) {
		s.t.Errorf("%s %s: %d %s, want %d %s", path, body, c, b, code, text)
	}
}

// TestSSFExample builds and serves the example: JSON, queries, files, pictures, versions, and the routes besides the
// endpoints.
func TestSSFExample(t *testing.T) {
	config := copyOf(t, ssfExample)
	s := serveSSF(t, "--config", config, "--port", "0", "init", "build", "run")
	s.want("/v1/Statistics", `{"values": [1, 2.5, 4]}`, 200, `{"mean":2.5,"range":[1.0,4.0]}`)
	s.want("/v2/Statistics", `{"values": [1, 2, 9], "limit": "3"}`, 200, `{"mean":1.5,"range":[1.0,2.0],"left_out":1}`)
	s.want("/v2/Statistics", `{"values": [1, "x"]}`, 422, `{"loc":["body","values",1],"msg":"value is not a valid `+
		`float","type":"type_error.float"},{"loc":["body","limit"],"msg":"field required"`)
	s.want("/v3/Statistics", `{}`, 404, `"detail"`)
	code, header, picture := s.ask("POST", "/v1/Draw?width=8&height=4&colour=green", "", "")
	image, err := png.Decode(strings.NewReader(picture))
	if code != 200 || err != nil || header.Get("Content-Type") != "image/png" || header.Get("pixels") != "32" ||
		image.Bounds().Dx() != 8 || image.Bounds().Dy() != 4 {
		t.Fatalf("a picture: %d %v %v", code, header, err)
	}
	for _, name := range []string{"metrics-dispatch-latency", "metrics-request-latency"} {
		if seconds, err := strconv.ParseFloat(header.Get(name), 64); err != nil || seconds < 0 {
			t.Errorf("%s: %q", name, header.Get(name))
		}
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("picture", "a.png")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write([]byte(picture))
	_ = w.Close()
	if code, _, text := s.ask("POST", "/v1/Size", w.FormDataContentType(), form.String()); code != 200 ||
		text != `{"width":8,"height":4}` {
		t.Errorf("a file: %d %s", code, text)
	}
	if code, _, text := s.ask("GET", "/", "", ""); code != 200 || text != `{"message":"OK"}` {
		t.Errorf("/: %d %s", code, text)
	}
	for _, probe := range []string{"startup", "live", "ready"} {
		if code, _, text := s.ask("GET", "/health/"+probe, "", ""); code != 200 {
			t.Errorf("%s: %d %s", probe, code, text)
		}
	}
	var api struct {
		Info  struct{ Title string }
		Paths map[string]any
	}
	_, _, text := s.ask("GET", "/openapi.json", "", "")
	if err := json.Unmarshal([]byte(text), &api); err != nil || api.Info.Title != "Pictures of numbers (unsecure)" ||
		len(api.Paths) != 4 {
		t.Errorf("the document: %v %.300s", err, text)
	}
	if _, code := s.signal(syscall.SIGINT); code != 0 {
		t.Errorf("ended with %d\n%s", code, &s.stderr)
	}
	palette := filepath.Join(filepath.Dir(config), "palette.json")
	if _, err := os.Stat(palette); err != nil {
		t.Error(err)
	}
	if _, stderr, code := finish(t, ssfCommandOf(t, "--config", config, "init")); code != 0 ||
		strings.Contains(stderr, "rror") {
		t.Errorf("init: %d %s", code, stderr)
	}
	if _, err := os.Stat(palette); !os.IsNotExist(err) {
		t.Errorf("init has left what build makes: %v", err)
	}
}

const oneEndpoint = "  - {id: E, version: 1, inputs: [{id: x, type: Integer}], outputs: [{id: x, type: Integer}, " +
	"{id: n, type: Integer}]}\n"

// max_batch_size requests that arrive before the time-out form one batch, with results in the order of the inputs.
func TestSSFBatches(t *testing.T) {
	config := ssfApplication(t, "max_batch_size: 4", oneEndpoint,
		`        return [{"x": p["x"] * 10, "n": len(params)} for p in params]`)
	s := serveSSF(t, "--config", config, "-p", "0", "--batching-timeout", "600", "run")
	var wg sync.WaitGroup
	for x := range 4 {
		wg.Go(func() { s.want("/v1/E", fmt.Sprintf(`{"x": %d}`, x), 200, fmt.Sprintf(`{"x":%d,"n":4}`, 10*x)) })
	}
	wg.Wait()
}

// The product of both options is the number of instances. The instances work in parallel, and each instance knows its
// number.
func TestSSFReplicas(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        open(f"here-{meta['replica']}", "w").close()
        until = time.monotonic() + 60
        while len([f for f in os.listdir(".") if f.startswith("here-")]) < 4 and time.monotonic() < until: time.sleep(0.01)
        return {"x": params["x"], "n": meta["replica"]}`)
	s := serveSSF(t, "--config", config, "-p", "0", "-ra", "2", "-rs", "2", "run")
	var (
		mu       sync.Mutex
		replicas []int
		wg       sync.WaitGroup
	)
	for range 4 {
		wg.Go(func() {
			var out struct{ N int }
			code, text := s.post("/v1/E", `{"x": 1}`)
			if err := json.Unmarshal([]byte(text), &out); err != nil || code != 200 {
				t.Errorf("%d %s", code, text)
			}
			mu.Lock()
			replicas = append(replicas, out.N)
			mu.Unlock()
		})
	}
	wg.Wait()
	if slices.Sort(replicas); !slices.Equal(replicas, []int{0, 1, 2, 3}) {
		t.Errorf("replicas %v", replicas)
	}
	alone := map[string]bool{} // replies of a lone client
	for limit := time.Now().Add(30 * time.Second); len(alone) < 4 && time.Now().Before(limit); {
		_, text := s.post("/v1/E", `{"x": 1}`)
		alone[text] = true
	}
	if len(alone) != 4 {
		t.Errorf("a lone client reached %v", alone)
	}
}

// The requests of a failed batch are answered with 400, and the restarted application answers the next request.
func TestSSFFailure(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {"x": 1 // params["x"], "n": self.calls}`)
	s := serveSSF(t, "--config", config, "-p", "0", "run")
	for i, c := range []struct {
		body string
		code int
		text string
	}{
		{`{"x": 1}`, 200, `{"x":1,"n":1}`}, {`{"x": 1}`, 200, `{"x":1,"n":2}`},
		{`{"x": 0}`, 400, `{"detail":"There was an error processing inputs"}`},
		{`{"x": 1}`, 200, `{"x":1,"n":1}`}, {`{"x": 1}`, 200, `{"x":1,"n":2}`},
		{`{"x": 0}`, 400, `{"detail":"There was an error processing inputs"}`},
		{`{"x": 1}`, 200, `{"x":1,"n":1}`},
	} {
		if code, text := s.post("/v1/E", c.body); code != c.code || text != c.text {
			t.Errorf("request %d, %s: %d %s, want %d %s", i, c.body, code, text, c.code, c.text)
		}
	}
	if _, code := s.signal(syscall.SIGTERM); code != 32 {
		t.Errorf("ended with %d\n%s", code, &s.stderr)
	}
	for _, want := range []string{`msg="request failed: ZeroDivisionError: integer division or modulo by ` +
		`zero\nTraceback`, `error="the program ends after a failure: ZeroDivisionError: integer`} {
		if !strings.Contains(s.stderr.String(), want) {
			t.Errorf("the log has no %s\n%s", want, &s.stderr)
		}
	}
}

// Requests without the key are refused, except for health and the root. The key may be a header, a query option or
// the cookie of /login.
func TestSSFKey(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {"x": params["x"], "n": 0}`)
	s := serveSSF(t, "--config", config, "-p", "0", "--key", "secret", "run")
	ask := func(method, path string, headers ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequest(method, s.base+path, strings.NewReader(`{"x": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for _, path := range []string{"/v1/E", "/v1/E?api_key=wrong", "/apps/app/v1/E", "/v2/models/app/infer",
		"/v2/models", "/login", "/v2"} {
		method := "POST"
		if !strings.Contains(path, "E") && !strings.Contains(path, "infer") {
			method = "GET"
		}
		if r := ask(method, path); r.StatusCode != 403 {
			t.Errorf("%s without a key: %s", path, r.Status)
		}
	}
	s.want("/v1/E", `{"x": 1}`, 403, `"detail":"Invalid credentials`)
	for _, path := range []string{"/", "/health/ready", "/openapi.json", "/logout"} {
		if r := ask("GET", path); r.StatusCode >= 400 {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	in := ask("GET", "/login?api_key=secret")
	cookies := in.Cookies()
	if in.StatusCode != 307 || in.Header.Get("Location") != "./" || len(cookies) != 1 ||
		cookies[0].Name != "session_key" || cookies[0].Value == "secret" || !cookies[0].HttpOnly {
		t.Fatalf("login: %v", in)
	}
	for _, h := range []string{"api_key: secret", "Cookie: session_key=" + cookies[0].Value, "Cookie: api_key=secret"} {
		if r := ask("POST", "/v1/E", h); r.StatusCode != 200 {
			t.Errorf("%s: %s", h, r.Status)
		}
	}
	if r := ask("POST", "/v1/E?api_key=secret"); r.StatusCode != 200 {
		t.Errorf("the key in the query: %s", r.Status)
	}
	if out := ask("GET", "/logout").Cookies(); len(out) != 1 || out[0].Value != "" {
		t.Errorf("logout: %v", out)
	}
}

// Users named by a module log in, the application sees their ids, and requests without a session are refused.
func TestSSFSession(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint,
		`        return {"x": params["x"], "n": int(meta.get("user_id") == "uid-test")}`)
	module := filepath.Join(t.TempDir(), "users.py")
	if err := os.WriteFile(module, []byte("def authenticate_user(username, password):\n    return 'uid-' + username "+
		"if password == '123456' else None\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveSSF(t, "--config", config, "-p", "0", "--enable-session-authentication",
		"--session-authentication-module-file", module, "--session-authentication-timeout", "60", "run")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	ask := func(method, path, password string, status int, body string) {
		t.Helper()
		req, err := http.NewRequest(method, s.base+path, strings.NewReader(`{"x": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("test", password)
		}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != status || !strings.Contains(string(text), body) {
			t.Errorf("%s %s: %s %s %v, want %d %s", method, path, r.Status, text, err, status, body)
		}
	}
	ask("POST", "/v1/E", "", 403, "Invalid session (Login first with /session_login)")
	ask("GET", "/session_status", "", 403, "Invalid session")
	ask("GET", "/session_login", "wrong", 401, "Invalid credentials")
	ask("GET", "/session_login", "123456", 200, "")
	ask("POST", "/v1/E", "", 200, `"n":1`)
	ask("GET", "/session_status", "", 200, `"user_id":"uid-test"`)
	ask("GET", "/session_logout", "", 200, "")
	ask("POST", "/v1/E", "", 403, "Invalid session")
}

// twoPorts returns a free port followed by another free port.
func twoPorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000) // outside of the system's range for clients
		a, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		_ = a.Close()
		if err == nil {
			_ = b.Close()
			return port
		}
	}
	t.Fatal("there are no two free ports in a row")
	return 0
}

// ssfGRPC serves an application over gRPC, with a key.
func ssfGRPC(t *testing.T, port int) (*process, inferencepb.GRPCInferenceServiceClient, context.Context) {
	t.Helper()
	config := ssfApplication(t, "ipus: 0", `  - id: E
    version: 1
    inputs: [{id: s, type: String}, {id: i, type: ListInteger}, {id: f, type: Float}, {id: b, type: Boolean}, {id: file, type: TempFile}]
    outputs: [{id: s, type: ListString, desc: words}, {id: i, type: Integer}, {id: f, type: Float}, {id: b, type: Boolean}, {id: png, type: PngImageBytes}]
  - {id: E, version: 2, inputs: [{id: i, type: Integer}], outputs: [{id: i, type: Integer}]}
`, `        if meta["endpoint_version"] == "2": return {"i": 10 // params["i"]}
        with open(params["file"], "rb") as f: data = f.read()
        return {"s": [params["s"], os.path.splitext(params["file"])[1]], "i": sum(params["i"]), "f": params["f"] / 2, "b": not params["b"], "png": data}`)
	p := begin(t, ssfCommandOf(t, "--config", config, "--api", "grpc", "--port", strconv.Itoa(port), "--key", "secret",
		"run"))
	p.until("millrace is ready: grpc://")
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return p, inferencepb.NewGRPCInferenceServiceClient(conn), metadata.AppendToOutgoingContext(t.Context(),
		"rpc-auth-header", "secret")
}

func ssfText(s string) *inferencepb.InferParameter {
	return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: s}}
}

// ssfRequest returns a request without names of datatypes, like requests of Simple Server Framework's clients.
func ssfRequest(version string) *inferencepb.ModelInferRequest {
	input := func(name string,
		contents *inferencepb.InferTensorContents) *inferencepb.ModelInferRequest_InferInputTensor {
		return &inferencepb.ModelInferRequest_InferInputTensor{Name: name, Shape: []int64{1}, Contents: contents}
	}
	file := input("file", &inferencepb.InferTensorContents{BytesContents: [][]byte{{0, 255, 7}}})
	file.Parameters = map[string]*inferencepb.InferParameter{"file_name": ssfText("a.bin")}
	r := &inferencepb.ModelInferRequest{Parameters: map[string]*inferencepb.InferParameter{"endpoint": ssfText("E"),
		"version": ssfText(version)}}
	if version == "2" {
		r.Inputs = append(r.Inputs, input("i", &inferencepb.InferTensorContents{IntContents: []int32{2}}))
		return r
	}
	r.Inputs = append(r.Inputs, input("s", &inferencepb.InferTensorContents{BytesContents: [][]byte{[]byte("é")}}),
		input("i", &inferencepb.InferTensorContents{IntContents: []int32{1, -2, 5}}),
		input("f", &inferencepb.InferTensorContents{Fp64Contents: []float64{3}}),
		input("b", &inferencepb.InferTensorContents{BoolContents: []bool{true}}), file)
	return r
}

// Parameters of requests name the endpoint and its version.
func TestSSFOverGRPC(t *testing.T) {
	p, client, ctx := ssfGRPC(t, twoPorts(t))
	r, err := client.ModelInfer(ctx, ssfRequest("1"))
	if err != nil {
		t.Fatalf("%v\n%s", err, &p.stderr)
	}
	if r.ModelName != "app" || len(r.Outputs) != 5 ||
		r.Parameters["metrics-dispatch-latency"].GetStringParam() == "" ||
		r.Parameters["metrics-request-latency"].GetStringParam() == "" {
		t.Fatalf("%v", r)
	}
	for i, want := range []string{
		`s BYTE_STRING [2] bytes_contents:"é" bytes_contents:".bin" words`,
		`i INT32 [1] int_contents:4 Endpoint outputs 1`, `f FP64 [1] fp64_contents:1.5 Endpoint outputs 2`,
		`b BOOL [1] bool_contents:false Endpoint outputs 3`,
		`png BYTES [1] bytes_contents:"\x00\xff\x07" Endpoint outputs 4`,
	} {
		o := r.Outputs[i]
		got := fmt.Sprintf("%s %s %v %v %s", o.Name, o.Datatype, o.Shape, o.Contents,
			o.Parameters["description"].GetStringParam())
		if strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("output %d: %s, want %s", i, got, want)
		}
	}
	for name, c := range map[string]struct {
		change func(*inferencepb.ModelInferRequest)
		want   string
	}{
		"no endpoint there": {func(r *inferencepb.ModelInferRequest) {
			r.Parameters["endpoint"] = ssfText("X")
		}, "Endpoint 'X' not found"},
		"no version": {func(r *inferencepb.ModelInferRequest) {
			delete(r.Parameters, "version")
		}, "Specify endpoint version"},
		"no such version": {func(r *inferencepb.ModelInferRequest) {
			r.Parameters["version"] = ssfText("9")
		}, "version '9'"},
		"an input less": {func(r *inferencepb.ModelInferRequest) { r.Inputs = r.Inputs[1:] }, "Input name = 's'"},
		"no inputs":     {func(r *inferencepb.ModelInferRequest) { r.Inputs = nil }, "Inputs not set"},
		"an input twice": {func(r *inferencepb.ModelInferRequest) {
			r.Inputs = append(r.Inputs, r.Inputs[0])
		}, "twice"},
		"of another type": {func(r *inferencepb.ModelInferRequest) {
			r.Inputs[1].Contents = r.Inputs[2].Contents
		}, "int_contents not set"},
		"without contents": {func(r *inferencepb.ModelInferRequest) { r.Inputs[1].Contents = nil }, "contents"},
		"raw contents": {func(r *inferencepb.ModelInferRequest) {
			r.RawInputContents = [][]byte{{1}}
		}, "raw_input_contents"},
		"a file of no name": {func(r *inferencepb.ModelInferRequest) { r.Inputs[4].Parameters = nil }, "file_name"},
		"text that is not": {func(r *inferencepb.ModelInferRequest) {
			r.Inputs[0].Contents.BytesContents = [][]byte{{0xff}}
		}, "not of the type"},
	} {
		r := ssfRequest("1")
		c.change(r)
		if _, err := client.ModelInfer(ctx, r); grpcstatus.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	// Other models of the server are called by their names.
	if _, err := client.RepositoryModelLoad(ctx,
		&inferencepb.RepositoryModelLoadRequest{ModelName: "identity"}); err != nil {
		t.Fatal(err)
	}
	of := func(model string) *inferencepb.ModelInferRequest {
		return &inferencepb.ModelInferRequest{ModelName: model,
			Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{
				{Name: "x", Datatype: "INT32", Shape: []int64{1, 2},
					Contents: &inferencepb.InferTensorContents{IntContents: []int32{3, 4}}},
			}}
	}
	if r, err := client.ModelInfer(ctx, of("identity")); err != nil || r.ModelName != "identity" ||
		len(r.RawOutputContents) != 1 || string(r.RawOutputContents[0]) != "\x03\x00\x00\x00\x04\x00\x00\x00" {
		t.Errorf("another model: %v %v", r, err)
	}
	if _, err := client.ModelInfer(ctx, of("other")); grpcstatus.Code(err) != codes.NotFound ||
		!strings.Contains(err.Error(), "other") {
		t.Errorf("a model that is not there: %v", err)
	}
	named := ssfRequest("2")
	named.ModelName = "app"
	if r, err := client.ModelInfer(ctx, named); err != nil || r.Outputs[0].Contents.IntContents[0] != 5 {
		t.Errorf("the application by its name: %v %v", r, err)
	}
	if _, err := client.ModelInfer(t.Context(), ssfRequest("1")); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("without the key: %v", err)
	}
	if live, err := client.ServerLive(t.Context(), &inferencepb.ServerLiveRequest{}); err != nil || !live.Live {
		t.Errorf("a probe without the key: %v", err)
	}
	if ready, err := client.ModelReady(ctx, &inferencepb.ModelReadyRequest{}); err != nil || !ready.Ready {
		t.Errorf("ready: %v %v", ready, err)
	}
}

// The exit status is the result code of the failed step.
// TestSSFLiveOverGRPC: the server answers ServerLive also when the application has not started.
func TestSSFLiveOverGRPC(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, "        return {}\n    def startup(self): raise ValueError\n")
	port := twoPorts(t)
	p := begin(t, ssfCommandOf(t, "--config", config, "--api", "grpc", "--port", strconv.Itoa(port), "run"))
	p.until("millrace is ready: grpc://")
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := inferencepb.NewGRPCInferenceServiceClient(conn)
	live, err := client.ServerLive(t.Context(), &inferencepb.ServerLiveRequest{})
	if err != nil || !live.Live {
		t.Errorf("live: %v, %v", live, err)
	}
	ready, err := client.ServerReady(t.Context(), &inferencepb.ServerReadyRequest{})
	if err != nil || ready.Ready {
		t.Errorf("ready: %v, %v", ready, err)
	}
}

func TestSSFBuildFails(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {}
    def build(self): return int(os.environ.get("BUILD", RESULT_OK))
`)
	for build, want := range map[string]int{"": 0, "13": 13, "raises": 32} {
		c := ssfCommandOf(t, "--config", config, "init", "build")
		if build != "" {
			c.Env = append(c.Env, "BUILD="+build)
		}
		if _, stderr, code := finish(t, c); code != want || want != 0 && !strings.Contains(stderr, "result code") {
			t.Errorf("%q: exit status %d, want %d: %s", build, code, want, stderr)
		}
	}
}

// The exit status of run is the result code of the failed step, at the start and later.
func TestSSFRunFails(t *testing.T) {
	for _, c := range []struct {
		method string // in place of startup
		want   int
	}{
		{"raise ValueError('no')", 32},
		{"return RESULT_APPLICATION_ERROR", 32},
		{"return RESULT_UNMET_REQUIREMENT", 32},
		{"raise SSFExceptionUnmetRequirement('no device')", 255},
		{"raise SSFExceptionApplicationModuleError('no')", 32},
		{"os._exit(7)", 32},
		{"os._exit(255)", 255},
	} {
		config := ssfApplication(t, "ipus: 0", oneEndpoint, "        return {}\n    def startup(self): "+c.method+"\n")
		if _, stderr, code := finish(t, ssfCommandOf(t, "--config", config, "--port", "0", "--stop-on-error",
			"run")); code != c.want {
			t.Errorf("%s: exit status %d, want %d: %s", c.method, code, c.want, stderr)
		}
	}
	config := ssfApplication(t, "ipus: 0", oneEndpoint, "        return {}\n")
	if err := os.WriteFile(config, []byte("application: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := finish(t, ssfCommandOf(t, "--config", config, "--port", "0", "run")); code != 34 {
		t.Errorf("no YAML: exit status %d: %s", code, stderr)
	}
}

// failsAt0 is the body of an application's request: the process ends when x is 0, and request fails when x is
// negative.
const failsAt0 = `        if params["x"] < 0: raise ValueError("no")
        if params["x"] == 0: os._exit(7)
        return {"x": params["x"], "n": self.calls}`

// The server ends at the first failure of either of two instances, for any kind of failure, with the status of an
// application error.
func TestSSFStopOnError(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, failsAt0)
	for _, x := range []string{"0", "-1"} {
		s := serveSSF(t, "--config", config, "-p", "0", "-ra", "2", "--stop-on-error", "run")
		s.want("/v1/E", `{"x": 1}`, 200, `{"x":1`)
		s.post("/v1/E", `{"x": `+x+`}`)
		if code := status(t, s.end()); code != 32 || !strings.Contains(s.stderr.String(), "exit_on_worker_failure") {
			t.Errorf("x=%s: exit status %d, want 32: %s", x, code, &s.stderr)
		}
	}
}

// Without --stop-on-error the server goes on after a failure, and the exit status reports the failure.
func TestSSFFailuresSurvived(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, failsAt0)
	s := serveSSF(t, "--config", config, "-p", "0", "run")
	s.want("/v1/E", `{"x": 1}`, 200, `{"x":1`)
	s.want("/v1/E", `{"x": -1}`, 400, "There was an error processing inputs")
	s.want("/v1/E", `{"x": 1}`, 200, `"n":1`) // by another process
	if _, code := s.signal(syscall.SIGINT); code != 32 ||
		!strings.Contains(s.stderr.String(), "the application has failed while it was served") {
		t.Errorf("exit status %d, want 32: %s", code, &s.stderr)
	}
}

// TestSSFMaxAllowedRestarts: an instance is not restarted after as many failures in a row.
func TestSSFMaxAllowedRestarts(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, failsAt0)
	for option, failures := range map[string]int{"0": 1, "1": 1, "2": 2, "": 2, "3": 3} {
		args := []string{"--config", config, "-p", "0", "run"}
		if option != "" {
			args = append(args, "--max-allowed-restarts", option)
		}
		s := serveSSF(t, args...)
		for n := range failures {
			if code, _, text := s.ask("GET", "/health/live", "", ""); code != 200 {
				t.Errorf("%q: not live after %d failures: %d %s", option, n, code, text)
			}
			s.want("/v1/E", fmt.Sprintf(`{"x": %d}`, -1-n), 400, "There was an error processing inputs")
		}
		s.want("/v1/E", `{"x": 1}`, 503, "") // once the failure is counted
		if code, _, text := s.ask("GET", "/health/live", "", ""); code == 200 {
			t.Errorf("%q: live after %d failures: %s", option, failures, text)
		}
		if _, code := s.signal(syscall.SIGTERM); code != 32 {
			t.Errorf("%q: exit status %d, want 32: %s", option, code, &s.stderr)
		}
	}
}

// Options unknown to gc-ssf belong to the application.
func TestSSFUnknownOptions(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint,
		`        return {"x": len(self.config.unknown_args), "n": self.config.unknown_args == ["--model", "--depth=3"] and self.config.args.commands == ["small", "run"]}
    def __init__(self, ssf_config): self.config = ssf_config
`)
	s := serveSSF(t, "--config", config, "--model", "small", "-p", "0", "run", "--depth=3")
	s.want("/v1/E", `{"x": 1}`, 200, `{"x":2,"n":1}`)
	if _, code := s.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("ended with %d\n%s", code, &s.stderr)
	}
}

// Unsupported options are refused by name, before anything runs.
func TestSSFRefused(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {}`)
	for args, want := range map[string]string{
		"": "has no command", "deploy --deploy-platform Paperspace": "--deploy-platform",
		"run --enable-session-authentication": "--session-authentication-module-file", "run --port x": "--port",
		"run --prot 1":                  "--prot",
		"run --replicate-application 0": "--replicate-application", "run --enable-cors-middleware": "MILLRACE_ORIGINS",
		"fly": `"fly"`, "run --config git@h:a/b|../c": "--config",
	} {
		_, stderr, code := finish(t, ssfCommandOf(t, append([]string{"--config", config}, strings.Fields(args)...)...))
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d %s", args, code, stderr)
		}
	}
	for change, want := range map[string]struct {
		code int
		text string
	}{
		"application.module=nowhere.py": {34, "nowhere.py"}, "endpoints[0].inputs[0].type=Complex": {34,
			"endpoints[0].inputs[0].type"}, "application.id=a b": {exitFailure, `"a b" is not a name`},
		"x": {34, "--modify-config"},
	} {
		_, stderr, code := finish(t, ssfCommandOf(t, "--config", config, "--port", "0", "--modify-config", change,
			"run"))
		if code != want.code || !strings.Contains(stderr, want.text) {
			t.Errorf("%q: %d, want %d: %s", change, code, want.code, stderr)
		}
	}
	if stdout, _, code := finish(t, ssfCommandOf(t, "--help")); code != 0 ||
		!strings.Contains(stdout, "--batching-timeout") || strings.Contains(stdout, "--container-server") {
		t.Errorf("help: %d %s", code, stdout)
	}
}
