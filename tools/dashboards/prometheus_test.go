//go:build !nometrics

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/client/load"
	"millrace/config"
	"millrace/internal/codec"
	"millrace/internal/testneeds"
	"millrace/internal/walkertest"
	"millrace/internal/yamltext"
	"millrace/server"
)

var (
	pictures = flag.String("pictures", "", "the folder for pictures of the dashboards, drawn from the answers of "+
		"Prometheus")
	minutes = flag.Float64("minutes", 0, "how long to run the load before the pictures are drawn")
)

var _ = walkertest.Register() // for the model people

const prometheusYML = "../../deploy/prometheus/prometheus.yml"

// TestFilesAreGenerated compares the files with the output of the code.
func TestFilesAreGenerated(t *testing.T) {
	for path, want := range files() {
		if got, err := os.ReadFile(filepath.Join("../..", path)); err != nil || string(got) != want {
			t.Errorf("%s is not what go generate -C tools ./dashboards writes (%v)", path, err)
		}
	}
}

// TestDashboards runs a server under load and a real Prometheus with the configuration of deploy/prometheus, and
// evaluates every query of every panel, and every rule: each returns data, and the alerts for the present faults
// fire.
func TestDashboards(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Prometheus")
	}
	dir := t.TempDir()
	s := startServer(t, dir)
	p := startPrometheus(t, dir, s.Addr("http"))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	begun := time.Now()
	for _, c := range []load.Config{
		{Model: "echo", Protocol: load.V1Protocol, Streams: 4, Rate: 50},
		{Model: "slow", Protocol: load.V1Protocol, Streams: 6, Rate: 30, Options: map[string]string{"policy": "latest",
			"max_age_ms": "60"}},
		{Model: "find", Protocol: load.WebSocketProtocol, Streams: 1, Rate: 10}, // not pictures: errors
		{Model: "echo", Protocol: load.RESTProtocol, Streams: 1, Rate: 10},
	} {
		wg.Go(func() { // sessions end and begin again
			for ctx.Err() == nil {
				c.URL, c.Duration, c.Size = "http://"+s.Addr("http"), 3*time.Second, 500+rand.IntN(2000)
				if _, err := load.Run(ctx, c); err != nil && ctx.Err() == nil {
					t.Errorf("load on %s: %v", c.Model, err)
					return
				}
			}
		})
	}
	wg.Go(func() { // requests for a model that is not loaded
		for ctx.Err() == nil {
			if resp, err := http.Post("http://"+s.Addr("http")+"/v2/models/missing/infer", "application/json",
				strings.NewReader("{}")); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			time.Sleep(100 * time.Millisecond) // the rate of the requests
		}
	})
	deadline := time.After(50 * time.Second)
	type check struct{ what, expr string }
	var open []check
	for _, d := range dashboards {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					open = append(open, check{d.title + ", " + p.title, q.expr})
				}
			}
		}
	}
	for _, r := range recordings() {
		open = append(open, check{"recording rule", r.name})
	}
	for _, name := range []string{"MillraceDown", "MillraceSourceDown", "MillraceStreamUnanswered",
		"MillraceErrorsFast", "MillraceErrorsSlow"} {
		open = append(open, check{"alert", `ALERTS{alertname="` + name + `",alertstate="firing"}`})
	}
	for len(open) > 0 {
		open = slices.DeleteFunc(open, func(c check) bool {
			found, err := p.hasData(resolve(c.expr))
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			return found
		})
		select {
		case <-deadline:
			for _, c := range open {
				t.Errorf("%s: no data for %s", c.what, resolve(c.expr))
			}
			open = nil
		case <-time.After(300 * time.Millisecond):
		}
	}
	p.checkRules(t)
	p.checkExemplars(t)
	if *pictures != "" {
		time.Sleep(time.Until(begun.Add(time.Duration(*minutes * float64(time.Minute)))))
		for i := range dashboards {
			draw(t, p, &dashboards[i], begun.Add(5*time.Second), time.Now())
		}
	}
}

// resolve replaces the variables of Grafana.
func resolve(expr string) string {
	return strings.NewReplacer("$__rate_interval", "10s", "$model", ".+", "$stream", ".+").Replace(expr)
}

// startServer starts a server with models that answer, slow models, models that refuse their input, a running stream,
// and a stream with a missing camera.
func startServer(t *testing.T, dir string) *server.Server {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "pictures"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		m := image.NewGray(image.Rect(0, 0, 64, 48))
		for k := range m.Pix {
			m.Pix[k] = byte((k * (i + 1)) % 251)
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, m, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pictures", fmt.Sprintf("%d.jpg", i)), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "walk"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 24 { // seen as a walk to the left and back
		picture, err := codec.EncodeJPEG(nil, bytes.Repeat([]byte{byte(20 + 20*max(11-i, i-12))}, 3*64*48), 64, 48, 90)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "walk", fmt.Sprintf("%d.jpg", i)), picture, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "millrace.yaml")
	text := `
events: {folder: events}
http: 127.0.0.1:0
grpc: off
log: {level: error}
tracing: {exporter: otlp-http, endpoint: "http://127.0.0.1:9", retry_for: 1s, ratio: 0.2}
models:
  - {name: echo, source: identity}
  - {name: slow, source: delay, fixed: 20ms, batching: {max_size: 4}}
  - {name: find, source: motion}
  - {name: people, source: walker, output: {boxes: {boxes: b, scores: s}, track: true}}
streams:
  - {name: door, model: find, source: "folder:pictures", loop: true, fps: 10, sinks: {file: results.jsonl}}
  - name: gate
    model: people
    source: folder:walk
    loop: true
    fps: 30
    policy: every
    rules: {zones: [{name: left, polygon: [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}]}
  - {name: yard, model: find, source: "rtsp://127.0.0.1:9/none"}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sources.AllowPrivate, cfg.Version = true, "test"
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	return s
}

// peer is a Prometheus.
type peer struct{ addr string }

// startPrometheus starts Prometheus with the configuration of deploy/prometheus, with the addresses of the test, an
// additional address without a listener, and shorter times.
func startPrometheus(t *testing.T, dir, millrace string) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{ln.Addr().String()}
	_ = ln.Close()
	text, err := os.ReadFile(prometheusYML)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"millrace:8000"`, `"` + millrace + `", "127.0.0.1:9"`}, {`"localhost:9090"`, `"` + p.addr + `"`},
		{"scrape_interval: 5s", "scrape_interval: 1s"}, {"evaluation_interval: 5s", "evaluation_interval: 1s"},
	} {
		if !bytes.Contains(text, []byte(change[0])) {
			t.Fatalf("%s is not in %s", change[0], prometheusYML)
		}
		text = bytes.ReplaceAll(text, []byte(change[0]), []byte(change[1]))
	}
	quick := slices.Clone(alerts)
	for i := range quick {
		quick[i].hold = "1s"
	}
	for name, text := range map[string]string{"prometheus.yml": string(text), "rules.yml": rulesFile(quick)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	cmd := exec.Command(testneeds.Program(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.addr, "--enable-feature=exemplar-storage,native-histograms", "--log.level=warn")
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (scripts/deps.sh check installs it)", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil {
			t.Errorf("prometheus: %v: %s", err, out.String())
		}
	})
	for {
		if resp, err := http.Get("http://" + p.addr + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p
			}
		}
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("prometheus: %v: %s", err, out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get reads an answer of the API.
func (p *peer) get(path string, query url.Values, into any) error {
	resp, err := http.Get("http://" + p.addr + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Error string
		Data  json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", query.Get("query"), answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// hasData reports whether a query returns a number now.
func (p *peer) hasData(expr string) (bool, error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get("query", url.Values{"query": {expr}}, &data); err != nil {
		return false, err
	}
	for _, r := range data.Result {
		var v float64
		if _, err := fmt.Sscan(fmt.Sprint(r.Value[1]), &v); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			return true, nil
		}
	}
	return false, nil
}

// checkRules checks that each rule is evaluated without an error.
func (p *peer) checkRules(t *testing.T) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get("rules", nil, &data); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			n++
			if r.Health != "ok" {
				t.Errorf("%s: %s, %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if want := len(recordings()) + len(alerts); n != want {
		t.Errorf("%d rules, want %d", n, want)
	}
}

// checkExemplars checks that histograms have exemplars with traces.
func (p *peer) checkExemplars(t *testing.T) {
	t.Helper()
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	err := p.get("query_exemplars", url.Values{
		"query": {resolve(quantile(0.99, "millrace_answered_age_seconds", ofModel))},
		"start": {fmt.Sprint(time.Now().Add(-time.Minute).Unix())}, "end": {fmt.Sprint(time.Now().Unix() + 1)},
	}, &data)
	if err != nil || len(data) == 0 || len(data[0].Exemplars) == 0 ||
		len(data[0].Exemplars[0].Labels["trace_id"]) != 32 {
		t.Errorf("no exemplars with trace ids: %v, %v", data, err)
	}
}

// The files used by compose.yaml exist, and the configurations of the server and of Prometheus are valid.
func TestComposeFiles(t *testing.T) {
	cfg, err := config.Load("../../deploy/millrace.yaml")
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		t.Error(err)
	}
	for _, err := range server.Exposed(t.Context(), cfg) {
		t.Errorf("the server would not start: %v", err)
	}
	if out, err := exec.Command(testneeds.Program(t, "promtool"), "check", "config",
		prometheusYML).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Image   string
			Volumes []string
		}
	}
	if err := yamltext.Decode(text, yamltext.MaxSettings, &compose, false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"millrace", "prometheus", "grafana", "jaeger"} {
		s, ok := compose.Services[name]
		// The image of this repository is loaded, not pulled.
		if !ok || s.Image != "localhost/millrace:latest" &&
			!regexp.MustCompile(`^[a-z/]+:v?[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(s.Image) {
			t.Errorf("%s is missing or its image has no full version: %q", name, s.Image)
		}
		for _, path := range s.Volumes {
			path, _, _ = strings.Cut(path, ":")
			if _, err := os.Stat(filepath.Join("../../deploy", path)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// promtool evaluates each alerting rule: the rule fires for its sample input, and no rule fires for a healthy server.
func TestAlerts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("rules.yml", rulesFile(alerts))
	well := []string{
		`up{job="millrace",instance="a"} 1x120`, `millrace_model_ready{model="m",version="1"} 1x120`,
		`millrace_frames_accepted_total{model="m",version="1"} 0+1000x120`,
		`millrace_frame_errors_total{model="m",version="1",code="internal"} 0x120`,
		`millrace_frames_total{model="m",version="1",outcome="result"} 0+1000x120`,
		`millrace_goodput_frames_total{model="m",version="1"} 0+1000x120`,
		`millrace_queue_oldest_age_seconds{model="m",version="1"} 0.1x120`,
		`millrace_workers{model="m",version="1",state="quarantined"} 0x120`,
		`millrace_worker_restarts_total{model="m",version="1"} 3x120`,
		`millrace_memory_denied_total 7x120`,
		`millrace_dropped_frames_total{model="m",version="1",reason="memory"} 7x120`,
		`millrace_dropped_frames_total{model="m",version="1",reason="superseded"} 0+100x120`,
		`millrace_connections_refused_total{listener="http",reason="total"} 1x120`,
		`millrace_accept_failures_total{listener="http"} 1x120`,
		`millrace_sessions_closed_total{reason="slow_consumer"} 1x120`,
		`millrace_stream_state{instance="a",stream="door",state="running"} 1x120`,
		`millrace_stream_state{instance="a",stream="door",state="waiting"} 0x120`,
		`millrace_stream_paused{instance="a",stream="door"} 0x120`,
		`millrace_stream_last_result_timestamp_seconds{instance="a",stream="door",model="m"} 0+60x120`,
		`millrace_stream_last_result_timestamp_seconds{instance="a",stream="off",model="m"} 0x120`,
		`millrace_stream_paused{instance="a",stream="off"} 1x120`,
		`millrace_stream_delivered_results_total{instance="a",stream="door",model="m"} 0+600x120`,
		`millrace_stream_delivered_results_total{instance="a",stream="off",model="m"} 0x120`,
		`millrace_stream_delivered_results_total{instance="a"} 0x120`,
		`millrace_stream_delivered_results_total{instance="a",stream="empty",model="m"} 0x120`,
		`millrace_stream_state{instance="a",stream="empty",state="ended"} 1x120`,
		`millrace_stream_lost_total{stream="door",at="webhook"} 5x120`,
		`millrace_stream_lost_total{stream="door",at="watchers"} 0+5x120`,
		`millrace_spans_lost_total{reason="full"} 9x120`, `prometheus_build_info{version="2.42.0+ds"} 1x120`,
		`prometheus_build_info{version="3.5.0"} 1x120`,
	}
	var b strings.Builder
	b.WriteString("rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n")
	add := func(name string, series []string, at, alert string, fires bool) {
		fmt.Fprintf(&b, "  - name: %s\n    interval: 1m\n    input_series:\n", name)
		for _, s := range series {
			series, values, _ := strings.Cut(s, "} ")
			if values == "" {
				series, values, _ = strings.Cut(s, " ")
			} else {
				series += "}"
			}
			fmt.Fprintf(&b, "      - {series: %s, values: %s}\n", quote(series), quote(values))
		}
		fmt.Fprintf(&b, "    promql_expr_test:\n      - expr: "+
			"'count(ALERTS{alertname=~\"%s\",alertstate=\"firing\"})'\n        eval_time: %s\n        exp_samples:",
			alert, at)
		if fires {
			b.WriteString("\n          - {labels: '{}', value: 1}\n")
		} else {
			b.WriteString(" []\n")
		}
	}
	for _, a := range alerts {
		add(a.name, a.input, "25m", a.name, true)
	}
	add("well", well, "100m", ".+", false)
	if out, err := exec.Command(testneeds.Program(t, "promtool"), "test", "rules",
		write("tests.yml", b.String())).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPromtoolChecksMetrics: `promtool check metrics` finds nothing to mend.
func TestPromtoolChecksMetrics(t *testing.T) {
	s := startServer(t, t.TempDir())
	if _, err := load.Run(t.Context(), load.Config{URL: "http://" + s.Addr("http"), Model: "echo",
		Protocol: load.RESTProtocol, Frames: 2, Duration: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + s.Addr("http") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	cmd := exec.Command(testneeds.Program(t, "promtool"), "check", "metrics")
	cmd.Stdin = resp.Body
	if out, err := cmd.CombinedOutput(); err != nil || len(out) != 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
