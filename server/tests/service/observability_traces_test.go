//go:build !notracing

package service_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.opentelemetry.io/otel/trace"

	"millrace/client"
	"millrace/ingest/native"
	"millrace/ingest/streams"
	"millrace/internal/servertest"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/stream"
	"millrace/tracing/spans"
	"millrace/workers"
)

func ofTrace(id string) func(*spans.KeptFrame) bool {
	return func(k *spans.KeptFrame) bool { return k.TraceID == id }
}

const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"

// Trace context is read from REST headers in every form, and the reply names the trace.
func TestTracesOverREST(t *testing.T) {
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "echo", Source: "identity"})
	for i, c := range []struct{ name, value string }{
		{"traceparent", "00-%s-" + servertest.SpanID + "-01"},
		{"b3", "%s-" + servertest.SpanID + "-1"},
		{"uber-trace-id", "%s:" + servertest.SpanID + ":0:1"},
	} {
		id := fmt.Sprintf("%02x%s", i+1, traceID[2:])
		req, err := http.NewRequest(http.MethodPost, "http://"+s.Addr("http")+"/v2/models/echo/infer",
			strings.NewReader(`{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[7]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(c.name, fmt.Sprintf(c.value, id))
		req.Header.Set("baggage", "tenant=blue")
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		k := servertest.Kept(t, s, "", ofTrace(id))
		if want := "00-" + id + "-" + k.SpanID + "-01"; r.Header.Get("Traceresponse") != want {
			t.Errorf("%s: traceresponse %q, want %s", c.name, r.Header.Get("Traceresponse"), want)
		}
		if k.ParentID != servertest.SpanID || k.Protocol != "rest" || k.Model != "echo" || k.Outcome != "result" ||
			!slices.Equal(k.Kept, []string{"sampled"}) {
			t.Errorf("%s: %+v", c.name, k)
		}
		if a := k.Spans[0].Attributes; a["baggage.tenant"] != "blue" || a["network.protocol.name"] != "http" ||
			a["millrace.frame.bytes"] != 4.0 {
			t.Errorf("%s: attributes %v", c.name, a)
		}
		if names := servertest.CheckTree(t, k); !slices.Equal(names, []string{"rest echo", "receive", "wait", "batch",
			"run",
			"write"}) {
			t.Errorf("%s: spans %v", c.name, names)
		}
	}
}

// The upgrade's headers are the context of a connection's frames, and replies say the trace when asked.
func TestTracesOverPlainWebSocket(t *testing.T) {
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "echo", Source: "identity"})
	for _, c := range []struct {
		query  string
		header http.Header
	}{
		{"?trace=true&outputs=none", http.Header{"Traceparent": {"00-" + traceID + "-" + servertest.SpanID + "-01"}}},
		{"?trace=true&outputs=none&traceparent=00-" + traceID + "-" + servertest.SpanID + "-01", nil},
	} {
		ws, _, err := websocket.DefaultDialer.Dial("ws://"+s.Addr("http")+"/v2/models/echo/stream"+c.query, c.header)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte("frame")); err != nil {
			t.Fatal(err)
		}
		var reply struct{ Traceresponse string }
		if err := ws.ReadJSON(&reply); err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(reply.Traceresponse, "-")
		if len(parts) != 4 || parts[1] != traceID || parts[3] != "01" {
			t.Fatalf("%s: traceresponse %q", c.query, reply.Traceresponse)
		}
		k := servertest.Kept(t, s, "", func(k *spans.KeptFrame) bool { return k.SpanID == parts[2] })
		if k.ParentID != servertest.SpanID || k.Protocol != "ws" {
			t.Errorf("%s: %+v", c.query, k)
		}
		if names := servertest.CheckTree(t, k); names[0] != "ws echo" || !slices.Contains(names, "receive") ||
			!slices.Contains(names, "write") {
			t.Errorf("spans %v", names)
		}
	}
}

// Each frame of millrace.v1 can have its own context; a malformed context begins a new trace, and no frame is lost.
func TestTracesOverV1(t *testing.T) {
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "echo", Source: "identity"})
	c := clientOf(t, s)
	in, err := c.Stream(t.Context(), "echo", client.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close(context.Background())
	for _, traceparent := range []string{"00-" + traceID + "-" + servertest.SpanID + "-01", "00-" + strings.Repeat("z",
		32) +
		"-" + servertest.SpanID + "-01"} {
		if _, err := in.Send(t.Context(), client.Frame{Data: []byte("x"), Codec: "opaque",
			Trace: traceparent}); err != nil {
			t.Fatal(err)
		}
		if e := <-in.Replies(); e.Err != nil {
			t.Fatal(e.Err)
		}
	}
	first := servertest.Kept(t, s, "", ofTrace(traceID))
	second := servertest.Kept(t, s, "", func(k *spans.KeptFrame) bool { return k.Seq == first.Seq+1 })
	if first.ParentID != servertest.SpanID || first.Protocol != "millrace.v1" || first.Stream == "" {
		t.Errorf("%+v", first)
	}
	if second.ParentID != "" || second.TraceID == traceID || second.Stream != first.Stream {
		t.Errorf("%+v", second)
	}
	servertest.CheckTree(t, first)
}

// A call of the Go API belongs to the span in its context.
func TestTracesOfNativeCalls(t *testing.T) {
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "echo", Source: "identity"})
	var id trace.TraceID
	if _, err := hex.Decode(id[:], []byte(traceID)); err != nil {
		t.Fatal(err)
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1, 2},
		TraceFlags: trace.FlagsSampled})
	r, err := s.Native().InferBytes(trace.ContextWithSpanContext(context.Background(), sc), "echo", stream.Opaque,
		[]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
	if k := servertest.Kept(t, s, "", ofTrace(traceID)); k.ParentID != "0102000000000000" || k.Protocol != "native" {
		t.Errorf("%+v", k)
	}
	open, err := s.Native().Stream("echo", stream.Options{}, func(*stream.Result) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close(stream.ByClient)
	if err := open.Send(77, stream.Opaque, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if k := servertest.Kept(t, s, "", func(k *spans.KeptFrame) bool { return k.Seq == 77 }); k.Protocol != "native" {
		t.Errorf("a stream: %+v", k)
	}
}

// A server stream's traces begin at its source, and show decoding and the stages.
func TestTracesOfServerStreams(t *testing.T) {
	clip := filepath.Join(t.TempDir(), "clip.mjpeg")
	if out, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-f", "lavfi", "-i",
		"testsrc2=size=64x48:rate=10:duration=1", clip).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := servertest.KeepAll()
	s, end := servertest.RunWith(t, server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Parts: []any{&c},
		Models:  []workers.Config{{Name: "find", Source: "motion"}},
		Streams: []streams.Config{{Name: "door", Source: clip, Model: "find"}},
	})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	k := servertest.Kept(t, s, "?model=find", func(k *spans.KeptFrame) bool {
		return k.Stream == "door" &&
			k.Outcome == "result"
	})
	if k.ParentID != "" || k.Protocol != "streams" {
		t.Errorf("%+v", k)
	}
	names := servertest.CheckTree(t, k)
	for _, want := range []string{"receive", "wait", "batch", "prepare", "decode", "resize", "run", "write"} {
		if !slices.Contains(names, want) {
			t.Errorf("no span %s: %v", want, names)
		}
	}
}

// The tail rules keep traces that the sampler does not; a frame refused before a stream accepts the frame has a trace
// too.
func TestTailRules(t *testing.T) {
	s := servertest.TracedServer(t, spans.Config{Sampler: "ratio", Ratio: new(0.0), Slow: new(500 * time.Millisecond)},
		workers.Config{Name: "slow", Source: "delay", Params: stream.Params{"fixed": "510ms"}},
		workers.Config{Name: "echo", Source: "identity"})
	infer := func(model, body string) string {
		r, err := http.Post("http://"+s.Addr("http")+"/v2/models/"+model+"/infer", "application/json",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		parts := strings.Split(r.Header.Get("Traceresponse"), "-")
		if len(parts) != 4 {
			t.Fatalf("traceresponse %q", r.Header.Get("Traceresponse"))
		}
		if parts[3] == "00" {
			return ""
		}
		return parts[1]
	}
	good := `{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[7]}]}`
	if id := infer("echo", good); id != "" {
		t.Errorf("a frame that nothing keeps is kept: %s", id)
	}
	if k := servertest.Kept(t, s, "?reason=slow", ofTrace(infer("slow", good))); !slices.Equal(k.Kept,
		[]string{"slow"}) {
		t.Errorf("%+v", k)
	}
	k := servertest.Kept(t, s, "?reason=failed", ofTrace(infer("echo", `{"inputs":3}`)))
	if k.Outcome != "error" || k.Code != "invalid_argument" || len(k.Spans) != 1 ||
		k.Spans[0].Attributes["error.type"] != "invalid_argument" {
		t.Errorf("%+v", k)
	}
	in, err := s.Native().Stream("slow", stream.Options{Policy: stream.Policy{Mode: stream.Latest}},
		func(*stream.Result) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := in.Send(uint64(i), stream.Opaque, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if k := servertest.Kept(t, s, "?reason=superseded", func(*spans.KeptFrame) bool {
		return true
	}); k.Outcome != "drop" || k.Reason != "superseded" || !slices.Equal(k.Kept, []string{"dropped"}) {
		t.Errorf("%+v", k)
	}
	in.Close(stream.ByClient)
	<-in.Finished()
}

// Frames of one batch name each other.
func TestTracesOfABatch(t *testing.T) {
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "slow", Source: "delay",
		Params: stream.Params{"fixed": "30ms"}, Batching: workers.Batching{Kind: "hard", MaxSize: 2}})
	in := []stream.Tensor{{Name: "x", Datatype: stream.Int32, Shape: []int{1}, Data: []byte{1, 2, 3, 4}}}
	calls := []*native.Future{s.Native().Go(t.Context(), "slow", in), s.Native().Go(t.Context(), "slow", in)}
	for _, call := range calls {
		r, err := call.Wait()
		if err != nil {
			t.Fatal(err)
		}
		r.Release() // replies to a call of the Go API
	}
	k := servertest.Kept(t, s, "", func(k *spans.KeptFrame) bool { return len(k.Batch) == 1 })
	other := servertest.Kept(t, s, "", ofTrace(k.Batch[0].TraceID))
	if len(other.Batch) != 1 || other.Batch[0].SpanID != k.SpanID || k.BatchRows != 2 || other.BatchRows != 2 {
		t.Errorf("%+v and %+v", k, other)
	}
}

// The trace of a frame with a hung run is listed during the run, and reports the hang.
func TestTracesOfAHungRun(t *testing.T) {
	s := servertest.TracedServer(t, spans.Config{Sampler: "ratio", Ratio: new(0.0)},
		workers.Config{Name: "hangs", Source: "delay", Params: stream.Params{"fixed": "60s"},
			Limits: workers.Limits{Run: 30 * time.Millisecond}})
	_, err := s.Native().InferBytes(t.Context(), "hangs", stream.Opaque, []byte("x"))
	if stream.CodeOf(err) != stream.Timeout {
		t.Fatal(err)
	}
	k := servertest.Kept(t, s, "?reason=failed", func(*spans.KeptFrame) bool { return true })
	names := servertest.CheckTree(t, k)
	if k.Code != "timeout" || k.BatchRows != 1 || k.Spans[0].Attributes["error.type"] != "timeout" ||
		names[len(names)-2] != "run" || k.Spans[len(k.Spans)-2].DurationUS < 30_000 {
		t.Errorf("%+v", k)
	}
}

// Options are checked, and single traces can be read.
func TestTracesAPI(t *testing.T) {
	s := servertest.TracedServer(t, spans.Config{Sampler: "ratio", Ratio: new(1.0), UIURL: "http://jaeger.test"},
		workers.Config{Name: "echo", Source: "identity"})
	r, err := s.Native().InferBytes(t.Context(), "echo", stream.Opaque, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
	k := servertest.Kept(t, s, "?model=echo&limit=1", func(*spans.KeptFrame) bool { return true })
	if k.URL != "http://jaeger.test/trace/"+k.TraceID {
		t.Errorf("url %s", k.URL)
	}
	for path, want := range map[string]int{
		"/" + k.TraceID: 200, "/" + traceID: 404, "?limit=0": 400, "?limit=x": 400, "?other=1": 400, "?model=none": 200,
	} {
		r, err := http.Get("http://" + s.Addr("http") + "/v2/traces" + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, r.Status, want)
		}
	}
}
