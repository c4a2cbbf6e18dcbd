package mosec_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// serve runs a server with the program at its root; one request may wait.
func serve(t *testing.T) *servertest.Running {
	t.Cleanup(func() { // of runs that no test waited for
		for len(stuckRuns) > 0 {
			<-stuckRuns
		}
	})
	return start(t, func(c *server.Config) {
		c.Programs.Root = "app"
		m := workers.Config{Name: "app", Source: "program", Instances: 1}
		m.Queue.MaxSize = 1
		c.Models = []workers.Config{m}
	})
}

// TestAnswers: statuses and texts are mosec's.
func TestAnswers(t *testing.T) {
	r := serve(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/", "", 200, "MOSEC service"},
		{"GET", "/openapi/metadata.json", "", 200, `{"openapi":"3.1.0","paths":{},"servers":[{"url":"../"}]}`},
		{"POST", "/echo", "text", 200, "text"},
		{"POST", "/apps/app/echo", "text", 200, "text"},
		{"POST", "/echo", "", 200, "no data provided"},
		{"POST", "/count", "", 200, "no data provided"},
		{"POST", "/echo", strings.Repeat("x", 64), 200, strings.Repeat("x", 64)},
		{"POST", "/echo", strings.Repeat("x", 65), 413, "request body is too large"},
		{"POST", "/refuse", "x", 422, `{"detail":"no"}`},
		{"POST", "/count", "2", 200, "data: {\"n\":0}\n\ndata: {\"n\":1}\n\n"},
		{"POST", "/count", "-1", 200, "event: error\ndata: SSE inference error: 422: Unprocessable Content: " +
			"{\"detail\":\"below 0\"}\n\n"},
		{"POST", "/tensor", "x", 500, "inference internal error: the answer of program app cannot be sent: output x " +
			"is UINT8: want BYTES"},
	} {
		if a := r.Ask(c.method, c.path, c.body); a.StatusCode != c.status || a.Text != c.want {
			t.Errorf("%s %s %.20q: %v, want %d %q", c.method, c.path, c.body, a, c.status, c.want)
		}
	}
	for _, path := range []string{"/openapi/swagger", "/openapi/swagger/"} {
		if a := r.Ask("GET", path, ""); a.StatusCode != 200 || !strings.Contains(a.Text, "<code>/echo</code>") {
			t.Errorf("%s: %v", path, a)
		}
	}
	if a := r.Ask("POST", "/nothing", "x"); a.StatusCode != 404 {
		t.Errorf("a path without a route: %v", a)
	}
	text := r.Ask("GET", "/metrics", "").Text
	for _, line := range []string{
		`mine_throughput_total{code="200",endpoint="/echo"} 4`, `mine_throughput_total{code="413",endpoint="/echo"} 1`,
		`mine_throughput_total{code="200",endpoint="/count"} 3`,
		`mine_process_duration_second_count{stage="total",connection="total"} `, `mine_remaining_task 0`,
		"# TYPE mine_batch_size histogram", "# TYPE mine_batch_duration_second histogram",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	r.NoLeases()
}

// TestTimeout: a request that takes longer than the program's limit has mosec's status and text.
func TestTimeout(t *testing.T) {
	limit.Store(100)
	defer limit.Store(0)
	r := serve(t)
	if a := r.Ask("POST", "/stuck", "x"); a.StatusCode != 408 || a.Text != "inference timeout" {
		t.Error(a)
	}
	if a := r.Ask("POST", "/stuck_events", "x"); a.StatusCode != 200 ||
		a.Text != "event: error\ndata: SSE inference error: 408: Request Timeout: inference timeout\n\n" {
		t.Error(a)
	}
	if text := r.Ask("GET", "/metrics", "").Text; !strings.Contains(text,
		`mine_throughput_total{code="408",endpoint="/stuck"} 1`) {
		t.Errorf("no 408 in\n%s", text)
	}
	r.NoLeases()
}

// TestQueueIsFull: one request runs, one waits, and the next gets 429.
func TestQueueIsFull(t *testing.T) {
	r := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	post := func(ctx context.Context) int {
		req, err := http.NewRequestWithContext(ctx, "POST", r.Base+"/stuck", strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for range 2 {
		go func() { post(ctx); done <- struct{}{} }()
	}
	<-stuckRuns
	status := 0
	for status == 0 { // until the second one waits
		brief, end := context.WithTimeout(ctx, 200*time.Millisecond)
		status = post(brief)
		end()
	}
	if status != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", status)
	}
	if text := r.Ask("GET", "/metrics", "").Text; !strings.Contains(text,
		`mine_throughput_total{code="429",endpoint="/stuck"} `) {
		t.Errorf("no 429 in\n%s", text)
	}
	cancel()
	<-done
	<-done
	r.NoLeases()
}

// TestDrains: as soon as the server ends, while it still runs a request, requests to the program are told so.
func TestDrains(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.Programs.Root, c.Drain = "app", time.Minute
		c.Models = []workers.Config{{Name: "app", Source: "program", Instances: 1},
			{Name: "other", Source: "program", Instances: 1}}
	})
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan struct{})
	go func() {
		defer close(held)
		req, err := http.NewRequestWithContext(ctx, "POST", r.Base+"/stuck", strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-stuckRuns
	ended := make(chan error, 1)
	go func() { ended <- r.Stop() }()
	for r.Ask("GET", "/v2/health/ready", "").StatusCode == 200 {
	}
	for _, path := range []string{"/echo", "/apps/app/echo", "/apps/other/echo", "/count"} {
		if a := r.Ask("POST", path, "x"); a.StatusCode != 503 || a.Text != "gracefully shutting down" {
			t.Errorf("%s: %v, want 503 gracefully shutting down", path, a)
		}
	}
	if a := r.Ask("GET", "/", ""); a.StatusCode != 503 {
		t.Errorf("/: %v", a)
	}
	cancel()
	<-held
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDrainsWhatWaits: a request that waits for a stage is told that the server ends.
func TestDrainsWhatWaits(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.Models = []workers.Config{{Name: "app", Source: "stages", Instances: 1}}
	})
	asked := make(chan *servertest.Reply, 1)
	go func() { asked <- r.Ask("POST", "/apps/app/echo", "x") }()
	for !strings.Contains(r.Ask("GET", "/metrics", "").Text, `apps_await"} 1`) {
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if a := <-asked; a.StatusCode != 503 || a.Text != "gracefully shutting down" {
		t.Errorf("%v, want 503 gracefully shutting down", a)
	}
}
