package tracing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// blockable is a writer that blocks while mu is held.
type blockable struct {
	mu  sync.Mutex
	out bytes.Buffer
}

type drain struct{}

func (drain) Push(r *stream.Result)   { r.Release() }
func (drain) Done(stream.CloseReason) {}

func (b *blockable) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

// newTestDebugLog returns a DebugLog at level debug, and its output as JSON.
func newTestDebugLog(rate int) (*DebugLog, *slog.LevelVar, *blockable) {
	out, level := &blockable{}, new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
	return NewDebugLog(DebugOptions{Log: log, Level: level, Rate: rate, Link: func(id stream.TraceID) string {
		return fmt.Sprintf("http://j/%x", id)
	}}), level, out
}

// records returns the lines as objects.
func (b *blockable) records(t *testing.T) (list []map[string]any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := json.NewDecoder(&b.out); ; {
		r := map[string]any{}
		if err := d.Decode(&r); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		delete(r, "time")
		list = append(list, r)
	}
}

// TestDebugLogOfRequests compares the attributes of requests.
func TestDebugLogOfRequests(t *testing.T) {
	d, _, out := newTestDebugLog(100)
	d.Request(Request{
		Protocol: "http", Method: "POST", Route: "/v2/models/:model/infer", Path: "/v2/models/m/infer", Status: 200,
		Duration: 1500 * time.Microsecond, In: 7, Out: -1, Trace: stream.TraceID{15: 9},
	})
	d.Request(Request{Protocol: "http", Method: "GET", Route: "/x", Path: "/" + strings.Repeat("y", 1000), Status: 404,
		Out: 3, In: -1})
	d.Close()
	kept := d.traced(nil, stream.TraceID{15: 9}, true)
	id := strings.Repeat("0", 31) + "9"
	want := []map[string]any{
		{
			"level": "DEBUG", "msg": "request", "protocol": "http", "method": "POST",
			"route": "/v2/models/:model/infer", "path": "/v2/models/m/infer",
			"status": 200.0, "ms": 1.5, "bytes_in": 7.0, "trace": id,
		},
		{
			"level": "DEBUG", "msg": "request", "protocol": "http", "method": "GET", "route": "/x",
			"path":   "/" + strings.Repeat("y", maxPath-1),
			"status": 404.0, "ms": 0.0, "bytes_out": 3.0,
		},
	}
	if got := fmt.Sprint(kept...); got != "trace="+id+" trace_url=http://j/"+id {
		t.Errorf("of a trace that is kept: %s", got)
	}
	if got := out.records(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// group loads a model with logged frames.
func (d *DebugLog) group(t *testing.T, name string) *workers.Group {
	t.Helper()
	m := workers.NewManager(workers.ManagerOptions{Memory: buf.NewPool(0), Hooks: func(m *stream.Model) workers.Hooks {
		return workers.Hooks{Ended: d.Frames(m)}
	}})
	t.Cleanup(func() { _ = m.Close(t.Context()) })
	if _, err := m.LoadConfig(t.Context(), workers.Config{Name: name, Kind: "identity"}, true); err != nil {
		t.Fatal(err)
	}
	g, err := m.Group(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// send sends frames one after the other.
func send(t *testing.T, g *workers.Group, n int) {
	t.Helper()
	s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}, Protocol: "test"}, drain{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := s.Submit(stream.Frame{Seq: uint64(i), Codec: stream.Opaque, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	s.Close(stream.ByClient)
	<-s.Finished()
}

// The rate of lines is bounded for each model, omitted lines are counted, and other models are not affected.
func TestDebugLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, level, out := newTestDebugLog(3)
		busy, calm := d.group(t, "busy"), d.group(t, "calm")
		send(t, busy, 50)
		send(t, calm, 1)
		level.Set(slog.LevelInfo)
		send(t, calm, 5)
		synctest.Wait()
		level.Set(slog.LevelDebug)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		d.Close()
		counts := map[any]int{}
		for _, r := range out.records(t) {
			counts[r["model"]]++
			if n, ok := r["suppressed"].(float64); ok {
				counts[r["model"]] += int(n)
				if r["seq"] != 49.0 || n != 46 {
					t.Errorf("the last suppressed one is %v", r)
				}
			}
			if r["outcome"] != "result" || r["protocol"] != "test" || r["trace"] == nil || r["batch_rows"] != 1.0 {
				t.Errorf("%v", r)
			}
		}
		if len(counts) != 2 || counts["busy"] != 50 || counts["calm"] != 1 {
			t.Errorf("%v lines and suppressed ones, want 50 and 1", counts)
		}
	})
}

// A blocked log delays nobody, and discarded lines are counted.
func TestSlowDebugLog(t *testing.T) {
	d, _, out := newTestDebugLog(1 << 20)
	out.mu.Lock()
	const n = 3 * debugQueue
	for range n {
		d.Request(Request{Protocol: "grpc", Route: "/x"})
	}
	out.mu.Unlock()
	d.Close()
	lines, discarded := 0, 0
	for _, r := range out.records(t) {
		if lost, ok := r["suppressed"].(float64); ok {
			discarded += int(lost)
			continue
		}
		lines++
	}
	if lines+discarded != n || discarded < n-debugQueue-1 {
		t.Errorf("%d lines and %d discarded ones of %d", lines, discarded, n)
	}
}

// At level info, frames cost no allocation and are not logged.
func TestDebugLogAtInfo(t *testing.T) {
	d, level, out := newTestDebugLog(1)
	defer d.Close()
	level.Set(slog.LevelInfo)
	ended := d.Frames(&stream.Model{Name: "m"})
	r := &stream.Request{}
	if n := testing.AllocsPerRun(100, func() { ended(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if list := out.records(t); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

func TestLimiterWithSeveralRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newTestLimiter()
		l.Max = 2
		for n := range 6 {
			l.Log(slog.LevelWarn, "a", "a", "n", n)
		}
		time.Sleep(1100 * time.Millisecond) // the last suppressed line begins the next interval
		l.Log(slog.LevelWarn, "a", "a", "n", 6)
		l.Log(slog.LevelWarn, "a", "a", "n", 7)
		l.Close()
		if got := strings.Join(lines(t, out), ", "); got != "a 0/0, a 1/0, a 5/3, a 6/0, a 7/0" {
			t.Error(got)
		}
	})
}

func TestLevels(t *testing.T) {
	for _, name := range Levels {
		if l, err := ParseLevel(name); err != nil || LevelName(l) != name {
			t.Errorf("%s: %v, %v", name, l, err)
		}
	}
	if l, err := ParseLevel(""); l != slog.LevelInfo || err != nil {
		t.Errorf("%v, %v", l, err)
	}
	for _, name := range []string{"DEBUG", "info+2", "loud"} {
		if _, err := ParseLevel(name); err == nil {
			t.Errorf("%q is a level", name)
		}
	}
}

// hooked is the queue of a stream without workers.
type hooked struct{ ended func(*stream.Request) }

func (hooked) Enqueue(*stream.Stream, any) {}
func (hooked) Admit(bool) error            { return nil }
func (hooked) AddWaiting(int)              {}
func (q hooked) Ended(r *stream.Request)   { q.ended(r) }
func (hooked) Detach(*stream.Stream)       {}

// The line of a frame that ends while its batch is prepared contains nothing of the batch's writes to the request.
func TestDebugLogOfAbandonedFrame(t *testing.T) {
	d, _, out := newTestDebugLog(100)
	m := &stream.Model{Name: "m", AcceptsAnyInput: true, Ragged: true, MaxBatch: 8}
	s := stream.New(m, hooked{d.Frames(m)}, drain{}, stream.Options{Policy: stream.Policy{Mode: stream.Every}})
	if err := s.Submit(stream.Frame{Seq: 3}); err != nil {
		t.Fatal(err)
	}
	r, _ := s.Take(stream.Now(), 8, nil, 0)
	r.BatchSize = 1 // as Batch.Prepare does, at any moment
	s.Abandon(stream.Errorf(stream.Canceled, "", "gone"))
	r.Unbind()
	d.Close()
	if list := out.records(t); len(list) != 1 || list[0]["code"] != "canceled" || list[0]["batch_rows"] != nil {
		t.Errorf("%v", list)
	}
}
