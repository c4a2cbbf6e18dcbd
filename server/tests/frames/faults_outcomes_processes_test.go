//go:build !nometrics

package frames_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// TestToldOfProcesses: the endings seen by clients of a model in child processes, some ended by requests, equal the
// counts of /metrics, and the processes' ends are counted too.
func TestToldOfProcesses(t *testing.T) {
	child, err := filepath.Abs("../../../workers/process/testdata/child.py")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Log: config.Log{Level: "error", File: filepath.Join(t.TempDir(), "log")},
		Models: []workers.Config{{Name: "child", Source: child, Kind: "process", Instances: 2,
			Limits: workers.Limits{Restarts: 1000}, Batching: workers.Batching{MaxSize: 4},
			Params: stream.Params{"env": `["MODE="]`}}}})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	told, mu := map[int]int{}, sync.Mutex{}
	var clients sync.WaitGroup
	const each, callers, more = 30, 6, 2
	send := func(k int, do string) {
		body, _ := json.Marshal(map[string]any{"parameters": map[string]any{"do": do},
			"inputs": []any{map[string]any{"name": "x", "datatype": "FP32", "shape": []int{1, 4},
				"data": []int{k, 0, 0, 0}}}})
		resp, err := http.Post(fmt.Sprintf("http://%s/v2/models/child/infer", s.Addr("http")), "application/json",
			bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close()
		mu.Lock()
		told[resp.StatusCode]++
		mu.Unlock()
	}
	for k := range callers {
		clients.Go(func() {
			for i := range each {
				do := ""
				switch {
				case k == 0 && i%10 == 5:
					do = "kill"
				case k == 1 && i%10 == 5:
					do = "size"
				case k == 2 && i%10 == 5:
					do = "segfault" // refused after ending a process alone in a batch
				}
				send(k, do)
			}
		})
	}
	clients.Wait()
	for range more { // alone in its batch: refused at the latest at the second time
		send(2, "segfault")
	}
	if n := told[200] + told[400] + told[500]; n != each*callers+more || told[400] == 0 || told[500] < 6 ||
		told[500]+told[400] > 3*3*4+more {
		t.Errorf("told %v", told)
	}
	var all map[string]float64
	processes := `millrace_model_processes{model="child",version="1"}`
	// one process may be starting
	for end := time.Now().Add(time.Minute); all[processes] != 2 &&
		time.Now().Before(end); time.Sleep(time.Millisecond) {
		all = map[string]float64{}
		_, text := servertest.Get(t, s, "/metrics")
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
				all[name], _ = strconv.ParseFloat(value, 64)
			}
		}
	}
	label := func(name, more string) float64 {
		return all[name+`{`+more+`model="child",version="1"}`]
	}
	if label("millrace_frames_accepted_total", "") != each*callers+more ||
		all[`millrace_frames_total{model="child",outcome="result",version="1"}`] != float64(told[200]) ||
		all[`millrace_frames_total{model="child",outcome="error",version="1"}`] != float64(told[400]+told[500]) ||
		all[`millrace_frame_errors_total{code="internal",model="child",version="1"}`] != float64(told[500]) ||
		all[`millrace_frame_errors_total{code="invalid_argument",model="child",version="1"}`] != float64(told[400]) {
		t.Errorf("told %v, counted %v results and %v errors", told,
			all[`millrace_frames_total{model="child",outcome="result",version="1"}`],
			all[`millrace_frames_total{model="child",outcome="error",version="1"}`])
	}
	for _, cause := range []string{"killed", "protocol", "signal"} {
		if all[`millrace_model_process_ends_total{cause="`+cause+`",model="child",version="1"}`] == 0 {
			t.Errorf("no end by %s is counted", cause)
		}
	}
	if all[processes] != 2 || label("millrace_model_process_starts_total", "") < 5 {
		t.Errorf("%v processes, %v starts", all[processes], label("millrace_model_process_starts_total", ""))
	}
}
