package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"millrace/client"
)

// The output forms other than a screen, and a missing server.
func TestTopOnce(t *testing.T) {
	p, addr := serve(t, "--model", "echo=identity")
	out, stderr, code := millrace(t, "top", "--once", "--interval", "100ms", "--addr", addr)
	if code != 0 || !strings.Contains(out, "MODEL") || !strings.Contains(out, "echo") || strings.Contains(out, "\x1b") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	var v topView
	out, stderr, code = millrace(t, "top", "--once", "--json", "--interval", "100ms", "--addr", addr)
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || v.Seconds < 0.05 || len(v.Models) != 1 ||
		v.Models[0].Workers != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	for _, args := range [][]string{{"--interval", "1ms"}, {"now"}} {
		if _, stderr, code := millrace(t, append([]string{"top", "--addr", addr}, args...)...); code != 2 ||
			!strings.Contains(stderr, args[0]) {
			t.Errorf("%v: exit status %d\n%s", args, code, stderr)
		}
	}
	p.signal(os.Interrupt)
	if _, stderr, code := millrace(t, "top", "--once", "--addr", addr); code != 1 ||
		!strings.Contains(stderr, "start a server") {
		t.Errorf("without a server: exit status %d\n%s", code, stderr)
	}
}

// TestTopView compares rates with their counters.
func TestTopView(t *testing.T) {
	began := time.Now()
	at := func(seconds float64, m client.ModelStatus, s client.ServerStream) topSample {
		m.Name, m.State, s.Name, s.State = "m", "READY", "cam", "running"
		st := client.Status{Started: began, Time: began.Add(time.Duration(seconds * float64(time.Second))),
			State: "ready", Version: "v"}
		st.Process.CPUSeconds = seconds / 2
		st.Models = []client.ModelStatus{m}
		return topSample{st, []client.ServerStream{s}}
	}
	total := client.Histogram{Bounds: []uint64{1000, 2000}, Counts: []uint64{10, 0}}
	later := client.Histogram{Bounds: []uint64{1000, 2000}, Counts: []uint64{10, 4}, Sum: 7000}
	last := began.Add(9 * time.Second)
	before := at(10, client.ModelStatus{Accepted: 10, Results: 5, Drops: map[string]uint64{"stale": 1},
		StagesUS: client.StageHistograms{Total: total}}, client.ServerStream{Frames: 7})
	now := at(12, client.ModelStatus{Accepted: 30, Results: 9, Drops: map[string]uint64{"stale": 2, "memory": 5},
		Errors: map[string]uint64{"internal": 1}, StagesUS: client.StageHistograms{Total: later}},
		client.ServerStream{Frames: 27, Last: &last})
	v := newTopView("a", before, now)
	m, s := v.Models[0], v.Streams[0]
	if v.Seconds != 2 || v.CPU != 0.5 || m.In != 10 || m.Results != 2 || m.Drops != 3 || m.Errors != 0.5 ||
		m.P50 != 1.5 || s.FPS != 10 || s.AgeSeconds != 3 {
		t.Errorf("%+v", v)
	}
	v = newTopView("a", now, before) // counters that fell, as after a reload
	if m := v.Models[0]; m.In < 0 || m.Results < 0 {
		t.Errorf("%+v", m)
	}
	other := at(13, client.ModelStatus{Accepted: 1000}, client.ServerStream{})
	other.status.Started = began.Add(time.Hour)
	if v := newTopView("a", now, other); v.Models[0].In != 0 || v.Seconds != 0 {
		t.Errorf("of another server: %+v", v.Models[0])
	}
	for width := range 130 {
		for height := 1; height < 12; height++ {
			fits(t, v.lines(width, height, false), width, height)
		}
	}
}

func TestNumbersOfTop(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.04: "0.0", 9.96: "10.0", 99.94: "99.9", 99.96: "100",
		12345.6: "12346", 99999.6: "100k", 1234567: "1.2M"} {
		if got := number(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
	if got := cut("a\x1b[31mb\nc", 8); got != "a [31mb…" {
		t.Errorf("%q", got)
	}
}

// fits checks that a view has at most height lines of at most width characters.
func fits(t *testing.T, lines []string, width, height int) {
	t.Helper()
	if len(lines) > height {
		t.Errorf("%d lines in a terminal of %d:\n%s", len(lines), height, strings.Join(lines, "\n"))
	}
	for _, l := range lines {
		if n := len([]rune(l)); n > width {
			t.Errorf("%d characters in a terminal of %d: %q", n, width, l)
		}
	}
}
