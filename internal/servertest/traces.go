//go:build !notracing

package servertest

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"millrace/server"
	"millrace/tracing/spans"
	"millrace/workers"
)

// TracedServer runs a server with the settings for keeping traces.
func TracedServer(t *testing.T, c spans.Config, models ...workers.Config) *server.Server {
	t.Helper()
	s, end := RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Models: models, Parts: []any{&c}})
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// KeepAll returns settings to keep every trace.
func KeepAll() spans.Config { return spans.Config{Sampler: "ratio", Ratio: new(1.0)} }

// Kept waits until a frame is listed, and returns the frame: the reply is sent before the spans are built.
func Kept(t *testing.T, s *server.Server, query string, ok func(*spans.KeptFrame) bool) *spans.KeptFrame {
	t.Helper()
	until := time.Now().Add(20 * time.Second)
	n := 0
	for time.Now().Before(until) {
		var list struct{ Traces []*spans.KeptFrame } // a new value: decoding keeps omitted fields
		r, err := http.Get("http://" + s.Addr("http") + "/v2/traces" + query)
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(r.Body).Decode(&list)
		r.Body.Close()
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: %v", r.Status, err)
		}
		if i := slices.IndexFunc(list.Traces, ok); i >= 0 {
			return list.Traces[i]
		}
		n = len(list.Traces)
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no such frame is kept; %d others are", n)
	return nil
}

// CheckTree checks that every span but the root has a parent before and within the times of the parent.
func CheckTree(t *testing.T, k *spans.KeptFrame) (names []string) {
	t.Helper()
	by := map[string]spans.KeptSpan{}
	for i, s := range k.Spans {
		names = append(names, s.Name)
		p, ok := by[s.ParentID]
		// two numbers are rounded
		if i > 0 && (!ok || s.StartUS < p.StartUS || s.StartUS+s.DurationUS > p.StartUS+p.DurationUS+1) {
			t.Errorf("%s, %d us from %d us, is not within its parent %s, %d us from %d us", s.Name, s.DurationUS,
				s.StartUS, p.Name, p.DurationUS, p.StartUS)
		}
		by[s.SpanID] = s
	}
	if k.Spans[0].SpanID != k.SpanID || k.Spans[0].DurationUS != k.DurationUS {
		t.Errorf("the root is %+v of %+v", k.Spans[0], k)
	}
	return names
}

// SpanID is the id of a span of a client.
const SpanID = "00f067aa0ba902b7"
