package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// freePort returns an address of this machine without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// upstreamConfig configures a server with the models to forward to.
const upstreamConfig = `
api_key: geheim
models:
- {name: sum, source: identity, delay: 5ms, batching: {max_size: 8}, tensors: {inputs: ["x FP32 -1 2"], outputs: ["y FP32 -1 2"]}}
- {name: lone, source: identity, tensors: {inputs: ["x INT16 3"], outputs: ["y INT16 3"]}}
- {name: text, source: identity, batching: {max_size: 8}, tensors: {inputs: ["s BYTES -1 1"], outputs: ["t BYTES -1 1"]}}
- {name: any, source: identity}
- {name: slow, source: identity, delay: 1m}
`

// TestRemote forwards to a second server over both protocols: tensors with and without a batch axis, strings, and
// models that take anything; deadlines are passed on. After a kill of the second server in the middle, every request
// is answered, the model is not ready meanwhile, and recovers with the second server.
func TestRemote(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "grpc", ""} {
		t.Run("scheme "+scheme, func(t *testing.T) { testRemote(t, scheme) })
	}
}

func testRemote(t *testing.T, scheme string) {
	t.Parallel()
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "up.yaml"), filepath.Join(dir, "token")
	for name, text := range map[string]string{file: upstreamConfig, secret: "geheim\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	httpAddr, grpcAddr := freePort(t), freePort(t)
	startUp := func() *process {
		p, _ := readyServer(t, command(t, "serve", "--config", file, "--http", httpAddr, "--grpc", grpcAddr))
		return p
	}
	up := startUp()
	address := map[string]string{"http": "http://" + httpAddr, "grpc": "grpc://" + grpcAddr, "": grpcAddr}[scheme]
	args := []string{"--http", "127.0.0.1:0"}
	for _, name := range []string{"sum", "lone", "text", "any", "slow"} {
		more := ""
		if name == "slow" {
			more = ",limits.run=500ms"
		}
		args = append(args, "--model", "far-"+name+"="+address+",upstream.model="+name+",upstream.token=file:"+secret+
			",upstream.health=50ms,instances=2"+more)
	}
	_, addr := serve(t, args...)
	infer := func(model, body string) (int, string) {
		resp, err := http.Post("http://"+addr+"/v2/models/"+model+"/infer", "application/json", strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(text)
	}
	for _, c := range []struct{ model, body, want string }{
		{"far-sum", `{"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]}]}`,
			`"name":"y","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]`},
		{"far-lone", `{"inputs":[{"name":"x","datatype":"INT16","shape":[3],"data":[1,-2,3]}]}`,
			`"name":"y","datatype":"INT16","shape":[3],"data":[1,-2,3]`},
		{"far-text", `{"inputs":[{"name":"s","datatype":"BYTES","shape":[2,1],"data":["a","bä"]}]}`,
			`"name":"t","datatype":"BYTES","shape":[2,1],"data":["a","bä"]`},
		{"far-any", `{"inputs":[{"name":"a","datatype":"INT64","shape":[1,1],"data":[7]},{"name":"b",` +
			`"datatype":"BOOL","shape":[2],"data":[true,false]}]}`, `{"name":"a","datatype":"INT64","shape":[1,1],` +
			`"data":[7]},{"name":"b","datatype":"BOOL","shape":[2],"data":[true,false]}`},
		{"far-any", `{"inputs":[{"name":"a","datatype":"FP16","shape":[1],"data":[7]}]}`, `"code":"invalid_argument"`},
		{"far-slow", `{"inputs":[{"name":"a","datatype":"INT8","shape":[1],"data":[7]}]}`, `"code":"timeout"`},
	} {
		if _, text := infer(c.model, c.body); !strings.Contains(text, c.want) {
			t.Errorf("%s: %s\nwant %s", c.model, text, c.want)
		}
	}
	resp, err := http.Get("http://" + addr + "/v2/models/far-sum/config")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(text), "upstream.token") ||
		!strings.Contains(string(text), "upstream.model") {
		t.Errorf("the model's configuration, %v: %s", err, text)
	}
	testKilled(t, addr, httpAddr, infer, up, startUp)
}

// testKilled sends requests from several clients while the second server is killed and started again.
func testKilled(t *testing.T, addr, httpAddr string, infer func(model, body string) (int, string), up *process,
	startUp func() *process) {
	const body = `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}`
	var mu sync.Mutex
	statuses := map[int]int{}
	last := ""
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				code, text := infer("far-sum", body)
				mu.Lock()
				if statuses[code]++; code != http.StatusOK {
					last = text
				}
				mu.Unlock()
				if code != http.StatusOK {
					time.Sleep(time.Millisecond) // like a client told to retry later
				}
			}
		})
	}
	count := func(code int) int {
		mu.Lock()
		defer mu.Unlock()
		return statuses[code]
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("never: %s: %v, %s", what, statuses, last)
			}
		}
	}
	ready := func() bool {
		resp, err := http.Get("http://" + addr + "/v2/models/far-sum/ready")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	until("40 answers", func() bool { return count(http.StatusOK) >= 40 })
	if rows, requests := upstreamCounts(t, httpAddr); rows <= requests {
		t.Errorf("the second server got %d requests with %d rows: want several rows in some", requests, rows)
	}
	_ = up.cmd.Process.Kill()
	_ = up.end()
	until("an error", func() bool { return count(http.StatusServiceUnavailable) > 8 })
	until("not ready", func() bool { return !ready() })
	startUp()
	until("ready again", ready)
	before := count(http.StatusOK)
	until("answers again", func() bool { return count(http.StatusOK) >= before+20 })
	close(done)
	clients.Wait()
	for code, n := range statuses {
		if code != http.StatusOK && code != http.StatusServiceUnavailable {
			t.Errorf("%d requests ended with status %d: %s", n, code, last)
		}
	}
}

// A second server that returns with changed inputs of a model gets no requests. Requests and the log give advice, the
// log once, and a load of the model here serves the new model.
func TestRemoteChanged(t *testing.T) {
	t.Parallel()
	file, upAddr := filepath.Join(t.TempDir(), "up.yaml"), freePort(t)
	startUp := func(datatype string) *process {
		text := fmt.Sprintf("models: [{name: m, source: identity, tensors: {inputs: [x %s 1], outputs: [y %[1]s 1]}}]",
			datatype)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, _ := readyServer(t, command(t, "serve", "--config", file, "--http", upAddr, "--grpc", "off"))
		return p
	}
	up := startUp("FP32")
	here, addr := serve(t, "--model", "far=http://"+upAddr+",upstream.model=m,upstream.health=20ms")
	post := func(path, body string) string {
		t.Helper()
		resp, err := http.Post("http://"+addr+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, text)
	}
	infer := func(datatype string) string {
		t.Helper()
		return post("/v2/models/far/infer", fmt.Sprintf(
			`{"inputs":[{"name":"x","datatype":%q,"shape":[1],"data":[7]}]}`, datatype))
	}
	until := func(what string) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			text := infer("FP32")
			if strings.Contains(text, what) {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("never %q: %s", what, text)
			}
		}
	}
	until("200 ")
	_ = up.cmd.Process.Kill()
	_ = up.end()
	until("cannot be reached")
	startUp("INT16")
	until("409 ")
	until("load it again")
	for limit := time.Now().Add(time.Minute); !strings.Contains(here.stderr.String(),
		"load it again"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("the log does not say it: %s", &here.stderr)
		}
	}
	if text := infer("FP32"); !strings.Contains(text, "load it again") {
		t.Error(text)
	}
	if text := post("/v2/repository/models/far/load", "{}"); !strings.HasPrefix(text, "200 ") {
		t.Fatal(text)
	}
	if text := infer("INT16"); !strings.HasPrefix(text, "200 ") {
		t.Error(text)
	}
	if n := strings.Count(here.stderr.String(), "load it again"); n != 1 {
		t.Errorf("the log says it %d times: %s", n, &here.stderr)
	}
}

// upstreamCounts returns how many rows and requests the second server has computed for the model sum.
func upstreamCounts(t *testing.T, addr string) (rows, requests int) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+addr+"/v2/models/sum/stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer geheim")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var stats struct {
		Models []struct {
			Rows  int `json:"inference_count"`
			Stats struct {
				Success struct {
					Count int `json:"count"`
				} `json:"success"`
			} `json:"inference_stats"`
		} `json:"model_stats"`
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &stats)
	}
	if err != nil || len(stats.Models) != 1 {
		t.Fatal(fmt.Errorf("%w: %s", err, text))
	}
	return stats.Models[0].Rows, stats.Models[0].Stats.Success.Count
}
