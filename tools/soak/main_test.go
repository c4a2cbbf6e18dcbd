package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"
)

// Equal counts are no failure, and each different count is a failure.
func TestCompare(t *testing.T) {
	type ends map[string]uint64
	for name, c := range map[string]struct {
		account *account
		line    Line
		wrong   string // "" = none
	}{
		"equal": {line: Line{Sent: 6, Received: outcome{3, ends{"stale": 2}, ends{"internal": 1}},
			Served: served{outcome{3, ends{"stale": 2}, ends{"internal": 1}}, 6, 0}}},
		"a drop that a request was told as an error": {account: &account{oneShot: true},
			line: Line{Sent: 1, Received: outcome{0, nil, ends{"timeout": 1}},
				Served: served{outcome{0, ends{"stale": 1}, nil}, 1, 0}}},
		"errors without a code": {account: &account{uncoded: true},
			line: Line{Sent: 1, Received: outcome{0, nil, ends{"error": 1}},
				Served: served{outcome{0, nil, ends{"internal": 1}}, 1, 0}}},
		"lost on a broken connection, before the server": {account: &account{cut: true},
			line: Line{Sent: 2, Lost: 1, Received: outcome{1, nil, nil}, Served: served{outcome{1, nil, nil}, 1, 0}}},
		"lost on a broken connection, after the server": {account: &account{cut: true},
			line: Line{Sent: 2, Lost: 1, Received: outcome{1, nil, nil}, Served: served{outcome{2, nil, nil}, 2, 0}}},

		"a frame without an ending": {line: Line{Sent: 2, Received: outcome{1, nil, nil},
			Served: served{outcome{1, nil, nil}, 1, 0}}, wrong: "clients sent 2 frames and have 1 endings"},
		"lost without a cut": {line: Line{Sent: 1, Lost: 1},
			wrong: "1 frames of clients that kept their connections"},
		"a result more at the server": {line: Line{Sent: 1, Received: outcome{1, nil, nil},
			Served: served{outcome{2, nil, nil}, 2, 0}}, wrong: "told 1 results, /metrics has 2"},
		"a result less at the server": {account: &account{cut: true},
			line:  Line{Sent: 3, Lost: 1, Received: outcome{2, nil, nil}, Served: served{outcome{1, nil, nil}, 1, 0}},
			wrong: "told 2 results, /metrics has 1"},
		"another reason": {line: Line{Sent: 1, Received: outcome{0, ends{"stale": 1}, nil},
			Served: served{outcome{0, ends{"rate": 1}, nil}, 1, 0}},
			wrong: "told 1 drops as stale, /metrics has 0"},
		"another code": {line: Line{Sent: 1, Received: outcome{0, nil, ends{"timeout": 1}},
			Served: served{outcome{0, nil, ends{"internal": 1}}, 1, 0}},
			wrong: "told 0 errors internal, /metrics has 1"},
		"a frame that was cut": {account: &account{cut: true, oneShot: true},
			line:  Line{Sent: 1, Lost: 1, Served: served{outcome{0, nil, ends{"invalid_argument": 1}}, 1, 0}},
			wrong: "/metrics has 1 errors invalid_argument"},
		"in flight": {account: &account{cut: true},
			line:  Line{Sent: 1, Lost: 1, Served: served{outcome{}, 1, 1}},
			wrong: "1 accepted frames, 0 endings and 1 in flight"},
		"without an ending": {account: &account{cut: true},
			line:  Line{Sent: 1, Lost: 1, Served: served{outcome{}, 1, 0}},
			wrong: "1 accepted frames, 0 endings and 0 in flight"},
	} {
		if c.account == nil {
			c.account = &account{}
		}
		got := strings.Join(c.account.compare(c.line), "\n")
		if (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: got %q, want %q", name, got, c.wrong)
		}
	}
}

// The counts of a model include all its versions, and no other model.
func TestServed(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `# TYPE millrace_frames_accepted_total counter
millrace_frames_accepted_total{model="m",version="1"} 5
millrace_frames_accepted_total{model="m",version="2"} 4
millrace_frames_accepted_total{model="other",version="1"} 70
# TYPE millrace_frames_total counter
millrace_frames_total{model="m",version="1",outcome="result"} 3
millrace_frames_total{model="m",version="2",outcome="result"} 2
millrace_frames_total{model="m",version="2",outcome="drop"} 1
millrace_frames_total{model="other",version="1",outcome="result"} 70
# TYPE millrace_frame_errors_total counter
millrace_frame_errors_total{model="m",version="1",code="timeout"} 2
# TYPE millrace_dropped_frames_total counter
millrace_dropped_frames_total{model="m",version="2",reason="stale"} 1
# TYPE millrace_frames_in_flight gauge
millrace_frames_in_flight{model="m",version="2"} 1
`)
	}))
	defer srv.Close()
	m, err := scrape(t.Context(), srv.Client(), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := m.served("m")
	if s.Accepted != 9 || s.Result != 5 || s.InFlight != 1 || listing(s.Drops) != "stale 1" ||
		listing(s.Errors) != "timeout 2" {
		t.Errorf("%+v", s)
	}
	s.add(m.served("other"))
	if s.Accepted != 79 {
		t.Errorf("%d accepted frames of both models", s.Accepted)
	}
}

// A difference between a stream's count and the stream's metrics is a failure, and so is a difference between the sum
// of all streams and the model's metrics.
func TestCompareStreams(t *testing.T) {
	p := expfmt.NewTextParser(names.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(`# TYPE millrace_stream_read_frames_total counter
millrace_stream_read_frames_total{stream="s"} 9
# TYPE millrace_stream_frames_total counter
millrace_stream_frames_total{stream="s",outcome="result"} 5
millrace_stream_frames_total{stream="s",outcome="drop"} 3
millrace_stream_frames_total{stream="s",outcome="error"} 1
# TYPE millrace_frames_total counter
millrace_frames_total{model="find",outcome="result"} 5
# TYPE millrace_dropped_frames_total counter
millrace_dropped_frames_total{model="find",reason="stale"} 3
# TYPE millrace_frame_errors_total counter
millrace_frame_errors_total{model="find",code="timeout"} 1
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line StreamLine
		want int
	}{
		{StreamLine{Name: "s", Frames: 9, Results: 5, Drops: 3, Errors: 1}, 0},
		{StreamLine{Name: "s", Frames: 8, Results: 5, Drops: 3, Errors: 1}, 1},
		{StreamLine{Name: "s", Frames: 9, Results: 4, Drops: 4, Errors: 1}, 2},
		{StreamLine{Name: "s", Frames: 9, Results: 5, Drops: 3, Errors: 2}, 2},
	} {
		r := &run{options: options{progress: io.Discard}}
		r.compareStreams(families, []StreamLine{c.line})
		if len(r.problems) != c.want {
			t.Errorf("%+v: %q, want %d failures", c.line, r.problems, c.want)
		}
	}
}

// A connection passes bytes, stops passing the server's bytes while held, and is reset by a cut.
func TestProxy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }() // ends with the connection
		}
	}()
	p, err := newProxy(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	c, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func(text string) {
		t.Helper()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	echo("one")
	release := p.hold()
	if _, err := c.Write([]byte("three")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 5)); n > 0 || err == nil {
		t.Errorf("%d bytes came while nothing is read", n)
	}
	_ = c.SetReadDeadline(time.Time{})
	release()
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	if n := p.cut(rng, 0); n != 0 {
		t.Errorf("%d connections were cut, want none", n)
	}
	echo("four")
	reset := func() {
		t.Helper()
		if _, err := io.Copy(io.Discard, c); err == nil {
			t.Error("the connection ended without a reset")
		}
		_ = c.Close()
	}
	var at, within int // immediately, and in the middle of the client's data
	for at == 0 || within == 0 {
		pair := onlyPair(p)
		if n := p.cut(rng, 1); n != 1 {
			t.Fatalf("%d connections were cut, want 1", n)
		}
		if left := pair.left.Load(); left > 0 {
			within++
			_, _ = c.Write(make([]byte, left))
		} else {
			at++
		}
		reset()
		if c, err = net.Dial("tcp", p.addr()); err != nil {
			t.Fatal(err)
		}
		echo("again")
	}
}

// onlyPair returns the connection of a proxy, after the removal of earlier connections.
func onlyPair(p *proxy) *pair {
	for ; ; runtime.Gosched() {
		p.mu.Lock()
		for c := range p.pairs {
			if len(p.pairs) == 1 {
				p.mu.Unlock()
				return c
			}
		}
		p.mu.Unlock()
	}
}

// A repeated post counts once, and a rejected post does not count.
func TestReceiver(t *testing.T) {
	r := newReceiver()
	defer r.Close()
	post := func(name string, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL,
			strings.NewReader(`{"stream":"s","results":[{},{}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Millrace-Delivery", name)
		a, err := r.Client().Do(req)
		if status := 0; err == nil {
			status = a.StatusCode
			_ = a.Body.Close()
			if status != want {
				t.Errorf("status %d, want %d", status, want)
			}
		} else if want != 0 {
			t.Error(err)
		}
	}
	r.down.Store(true)
	post("a-1", http.StatusServiceUnavailable)
	r.heal()
	r.hangs.Store(true)
	post("a-1", 0)
	r.heal()
	post("a-1", http.StatusOK)
	post("a-1", http.StatusOK)
	post("a-2", http.StatusOK)
	if n := r.got("s"); n != 4 || r.repeated != 1 {
		t.Errorf("%d results and %d repeated posts, want 4 and 1", n, r.repeated)
	}
}

// The results in all files of a sink count; a line is an error if cut, of another stream or out of order.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := func(stream, model string, seq int) string {
		return fmt.Sprintf("{\"stream\":%q,\"model\":%q,\"seq\":%d}\n", stream, model, seq)
	}
	write(line("s", "a", 1) + line("s", "b", 1) + line("s", "a", 2))
	if err := rotate(path); err != nil {
		t.Fatal(err)
	}
	write(line("s", "a", 3))
	if n, err := lines(path, "s"); n != 4 || err != nil {
		t.Errorf("%d lines, %v, want 4", n, err)
	}
	for name, text := range map[string]string{
		"cut": strings.TrimSuffix(line("s", "a", 4), "}\n"), "without an end": strings.TrimSuffix(line("s", "a", 4),
			"\n"),
		"of another stream": line("t", "a", 4), "out of order": line("s", "a", 4) + line("s", "a", 4),
		"no result": "{}\n",
	} {
		write(text)
		if n, err := lines(path, "s"); err == nil {
			t.Errorf("%s: %d lines and no error", name, n)
		}
	}
}

// The memory at the end is compared with the memory after two minutes, and a ratio above the limit is a failure.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		late, ratio float64
		fails       bool
	}{{129, 1.3, false}, {131, 1.3, true}, {500, 0, false}} {
		r := &run{options: options{duration: 10 * time.Minute, ratio: c.ratio}}
		for at := time.Duration(0); at < r.duration; at += time.Second {
			bytes := 100.
			if at > 9*time.Minute {
				bytes = c.late
			}
			r.memory = append(r.memory, sample{at, uint64(bytes)})
		}
		var report Report
		if r.measure(&report); report.MemoryRatio != c.late/100 || (len(report.Problems) > 0) != c.fails {
			t.Errorf("%+v: %+v", c, report)
		}
	}
}

// More descriptors or goroutines, and other processes or files, exceed the earlier holdings; fewer do not.
func TestHoldings(t *testing.T) {
	before := holdings{descriptors: 5, goroutines: 50, children: map[string]int{"ffmpeg": 2}, temporary: []string{"a"}}
	for name, c := range map[string]struct {
		change func(*holdings)
		want   bool
	}{
		"equal":       {func(*holdings) {}, false},
		"fewer":       {func(h *holdings) { h.descriptors, h.goroutines = 4, 49 }, false},
		"descriptors": {func(h *holdings) { h.descriptors++ }, true},
		"goroutines":  {func(h *holdings) { h.goroutines++ }, true},
		"sessions":    {func(h *holdings) { h.sessions++ }, true},
		"leases":      {func(h *holdings) { h.leases++ }, true},
		"children":    {func(h *holdings) { h.children = map[string]int{"ffmpeg": 3} }, true},
		"files":       {func(h *holdings) { h.temporary = []string{"a", "b"} }, true},
	} {
		now := before
		if c.change(&now); now.exceeds(before) != c.want {
			t.Errorf("%s: exceeds is %v, want %v", name, !c.want, c.want)
		}
	}
}

// Wrong flags are refused with the exit status 2, and a missing program with 1.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"-for", "-1s"}, 2}, {[]string{"-reloads", "3"}, 2}, {[]string{"more"}, 2}, {[]string{"-nothing"}, 2},
		{[]string{"-for", "0", "-reloads", "11", "-server", "/nothing"}, 1},
	} {
		var errs bytes.Buffer
		if got := soak(t.Context(), c.args, io.Discard, &errs); got != c.want || errs.Len() == 0 {
			t.Errorf("%v: exit status %d, want %d: %s", c.args, got, c.want, &errs)
		}
	}
}

// A process below another process is found after the end of the other process, and not after its own end.
func TestProcessesAreLeft(t *testing.T) {
	root := exec.Command("sh", "-c", "sleep 600 & echo; cat")
	out, err := root.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := root.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var had []descendant
	for _, d := range descendants(root.Process.Pid) {
		if d.command != "cat" {
			had = append(had, d)
		}
	}
	if len(had) != 1 {
		t.Fatalf("descendants %v", had)
	}
	_ = root.Process.Kill()
	_ = in.Close()
	_, _ = root.Process.Wait()
	if left := alive(had); !slices.Equal(left, had) {
		t.Errorf("left are %v, want %v", left, had)
	}
	other := had[0]
	other.start += "0" // a later process with the same id
	if left := alive([]descendant{other}); left != nil {
		t.Errorf("left are %v", left)
	}
	if err := syscall.Kill(had[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(10 * time.Second); alive(had) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("left are %v", alive(had))
		}
	}
}
