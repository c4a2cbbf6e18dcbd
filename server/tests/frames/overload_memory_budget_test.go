package frames_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// asked sends a repository request, and returns status and reply.
func asked(t *testing.T, s *server.Server, path, body string) (int, string) {
	t.Helper()
	r, err := http.Post("http://"+s.Addr("http")+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return r.StatusCode, string(b)
}

// A row of the model takes 64 KiB and its answer takes 64 KiB, a worker has two batches: 192 KiB a row, and 8 MiB for
// all models together.
func TestBatchesAreOfTheMemoryBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wide.onnx")
	if err := os.WriteFile(path, onnxfile.Identity(onnxfile.Float32, "N", 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	wide, err := config.ParseModel("wide=" + path + ",batching.max_size=1")
	if err != nil {
		t.Fatal(err)
	}
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Memory: config.Memory{Budget: 16 << 20},
		Models: []workers.Config{wide}})
	for i, x := range []struct {
		path, params string
		code         int
		want         string
		reserved     int64 // KiB
	}{
		{"wide/load", `"max_size": 4096`, 413, `batching.max_size: 4096 rows in each of 2 batches, with 1 workers, ` +
			`would take 768.0MiB of memory, but 7.8MiB are left for the batches of model wide-0: all models ` +
			`together, and in a swap both of them, may take half of memory.budget: batches of 41 rows fit`, 192},
		{"wide/load", `"max_size": 26`, 200, `"wide-0"`, 27 * 192},
		{"wide/load", `"max_size": 25`, 413, `batches of 15 rows fit`, 27 * 192},
		{"wide/load", `"max_size": 26`, 200, `"wide-0"`, 27 * 192}, // shared
		{"wide/load", `"max_size": 26, "swap": true`, 413, `in a swap both`, 27 * 192},
		{"wide/load", `"share": false`, 200, `"wide"`, 27*192 + 128}, // a batch and the answers of one more worker
		{"wide/load", `"max_size": 26, "share": false`, 413, `with 2 workers`, 27*192 + 128},
		{"wide/unload", ``, 200, `"wide"`, 27 * 192},
		{"wide-0/unload", ``, 200, `"wide-0"`, 192},
		{"wide/load", `"max_size": 25`, 200, `"wide-0"`, 26 * 192},
		{"wide-0/unload", ``, 200, `"wide-0"`, 192},
		{"wide/load", `"max_size": 4, "instances": 60`, 413, `or take fewer instances`, 192},
		{"wide/load", `"max_size": 26, "swap": true`, 200, `"wide"`, 26 * 192},
		{"wide/unload", ``, 200, `"wide"`, 0},
	} {
		code, body := asked(t, s, "/v2/repository/models/"+x.path, `{"parameters": {`+x.params+`}}`)
		if code != x.code || !strings.Contains(body, x.want) {
			t.Errorf("%d: %s %s: %d %s\nwant %d %s", i, x.path, x.params, code, body, x.code, x.want)
		}
		if n := s.Memory().Stats().Reserved; n != x.reserved<<10 {
			t.Errorf("%d: %s %s: %d KiB are reserved, want %d", i, x.path, x.params, n>>10, x.reserved)
		}
	}
	if _, body := servertest.Get(t, s, "/metrics"); !strings.Contains(body, "\nmillrace_memory_reserved_bytes 0\n") {
		t.Error("no metric says what is reserved")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if m := s.Memory().Stats(); m.Reserved != 0 || m.Leases != 0 {
		t.Errorf("%+v", m)
	}
}

// Concurrent loads share the available memory, and none takes the memory of another.
func TestLoadsAtOnceShareTheBudget(t *testing.T) {
	const models = 6
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Memory: config.Memory{Budget: 16 << 20}}
	path := filepath.Join(t.TempDir(), "wide.onnx")
	if err := os.WriteFile(path, onnxfile.Identity(onnxfile.Float32, "N", 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range models {
		m, err := config.ParseModel(fmt.Sprintf("m%d=%s,batching.max_size=1", i, path))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Models = append(cfg.Models, m)
	}
	s, end := servertest.RunWith(t, cfg)
	replies := make(chan int, models)
	for i := range models {
		go func() {
			code, _ := asked(t, s, fmt.Sprintf("/v2/repository/models/m%d/load", i), `{"parameters": {"max_size": 16}}`)
			replies <- code
		}()
	}
	good := 0
	for range models {
		if <-replies == 200 {
			good++
		}
	}
	if n := s.Memory().Stats().Reserved; good != 2 || n != (models+2*16)*192<<10 {
		t.Errorf("%d loads passed, %d KiB are reserved", good, n>>10)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if m := s.Memory().Stats(); m.Reserved != 0 {
		t.Errorf("%+v", m)
	}
}

// A request may use at most the limit of the model's configuration, or else the general limit of requests.
func TestRequestsAreBounded(t *testing.T) {
	long, err := config.ParseModel("long=identity,limits.run=1h,batching.kind=soft,batching.max_delay=2m")
	if err != nil {
		t.Fatal(err)
	}
	s, end := servertest.Run(t, long, workers.Config{Name: "plain", Source: "identity"})
	for _, x := range []struct {
		model, params string
		code          int
		want          string
	}{
		{"plain", `"limits.run": "11m"`, 400, "limits.run: 11m is more than the 10m that a request may ask for"},
		{"plain", `"limits.run": "10m"`, 200, "plain-0"},
		{"plain", `"max_delay": "61s"`, 400, "max_delay: 1m1s is more than the 1m that"},
		{"plain", `"instances": 65`, 400, "instances: 65 is more than the 64"},
		{"plain", `"max_size": 4097`, 400, "batching.max_size: 4097 is not between 1 and 4096"},
		{"plain", `"batching.buffers": 1000`, 400, "batching.buffers: can only be set in the server's configuration"},
		{"plain", `"limits.start": "1h"`, 400, "limits.start: can only be set in the server's configuration"},
		{"plain", `"max_batch_size": 4`, 400,
			"max_batch_size: is not a parameter of identity (did you mean batching.max_size?)"},
		{"plain", `"batching.size": 4`, 400, "batching.size: is not a parameter of identity (did you mean " +
			"batching.max_size?)"},
		{"plain", `"zzz": 4`, 400, "zzz: is not a parameter of identity: it has delay, load_delay, stateful; every " +
			"model has batching.kind, batching.max_delay, batching.max_size, "},
		{"plain", `"max_flows": 1`, 400, "max_flows: can only be set in the server's configuration"},
		{"long", `"limits.run": "1h"`, 200, `"long"`},
		{"long", `"limits.run": "61m"`, 400, "more than the 1h that"},
		{"long", `"batching.max_delay": "90s"`, 200, "long-0"},
	} {
		code, body := asked(t, s, "/v2/repository/models/"+x.model+"/load", `{"parameters": {`+x.params+`}}`)
		if code != x.code || !strings.Contains(body, x.want) {
			t.Errorf("%s %s: %d %s\nwant %d %s", x.model, x.params, code, body, x.code, x.want)
		}
	}
	for n := 2; n <= 65; n++ {
		if code, body := asked(t, s, "/v2/repository/models/plain/load",
			`{"parameters": {"share": false}}`); (code == 200) != (n <= 64) {
			t.Fatalf("worker %d: %d %s", n, code, body)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
