//go:build !notracing

package service_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"millrace/config"
	"millrace/ingest/streams"
	"millrace/internal/jaegertest"
	"millrace/internal/servertest"
	"millrace/internal/wire"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// traced returns a configuration with an echo, a motion and a slow model, and with the tracing settings NAME, VALUE,
// ....
func traced(t *testing.T, settings ...string) server.Config {
	t.Helper()
	slow, err := config.ParseModel("slow=delay,fixed=20ms,batching.max_size=4")
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Models: []workers.Config{{Name: "echo", Kind: "identity"}, {Name: "find", Kind: "motion"}, slow}}
	for i := 0; i < len(settings); i += 2 {
		if err := cfg.Set("tracing."+settings[i], settings[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// newParent returns a client's span in a new trace, as a traceparent.
func newParent() (id, span, traceparent string) {
	id, span = hex.EncodeToString(binary.BigEndian.AppendUint64(nil, rand.Uint64()|1<<63)),
		fmt.Sprintf("%016x", rand.Uint64()|1)
	id += span // Jaeger drops leading zeros of ids, so the first digit is not 0
	return id, span, "00-" + id + "-" + span + "-01"
}

// posted posts a frame to the motion model.
func posted(t *testing.T, s *server.Server, model, kind string, body []byte, traceparent string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.URL("http")+"/v2/models/"+model+"/infer", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s, %v", answer.StatusCode, &text, err)
	}
}

// checkFrame checks the trace of one answered picture: the spans and their parents, each span's times within its
// parent's times, and the links between the frame and its batch. parent is the client's span; "" = none.
func checkFrame(t *testing.T, j *jaegertest.Server, got jaegertest.Trace, parent string, names string) {
	t.Helper()
	byID := map[string]jaegertest.Span{}
	for _, s := range got.Spans {
		byID[s.ID] = s
		for _, w := range s.Warnings {
			if !strings.Contains(w, "invalid parent span") { // the client's spans are not in Jaeger
				t.Errorf("%s: %v", s.Name, w)
			}
		}
	}
	parents := map[string]string{"receive": "root", "wait": "root", "batch": "root", "prepare": "batch",
		"decode": "prepare", "resize": "prepare", "run": "batch", "results": "batch", "write": "root"}
	seen := map[string]bool{}
	var batch jaegertest.Span
	var root jaegertest.Span
	for _, s := range got.Spans {
		above, known := byID[s.Parent]
		want := parents[s.Name]
		switch {
		case want == "": // the root
			if known || s.Parent != parent {
				t.Errorf("the root %s has the parent %q, want %q", s.Name, s.Parent, parent)
			}
			root = s
			continue
		case !known || want != "root" && above.Name != want || want == "root" && parents[above.Name] != "":
			t.Errorf("%s is a child of %q, want %s", s.Name, above.Name, want)
		case s.Start < above.Start || s.End > above.End+1: // Jaeger rounds starts and durations, each down
			t.Errorf("%s, %d to %d, is not inside %s, %d to %d", s.Name, s.Start, s.End, above.Name, above.Start,
				above.End)
		}
		seen[s.Name] = true
		if s.Name == "batch" {
			batch = s
		}
	}
	for _, name := range strings.Fields(names) {
		if !seen[name] {
			t.Errorf("there is no span %s: %v", name, seen)
		}
	}
	if root.Tags["millrace.model"] == nil || root.Tags["millrace.outcome"] != "result" ||
		root.Tags["span.kind"] != "server" {
		t.Errorf("the root has the attributes %v", root.Tags)
	}
	if len(batch.Links) != 1 {
		t.Fatalf("the frame's batch has the links %v", batch.Links)
	}
	run := j.Wait(t, batch.Links[0].TraceID, 1)
	if len(run.Spans) != 1 || run.Spans[0].ID != batch.Links[0].SpanID ||
		!strings.HasPrefix(run.Spans[0].Name, "batch ") {
		t.Fatalf("the batch is %+v, the frame is linked with %v", run, batch.Links)
	}
	for _, l := range run.Spans[0].Links {
		if l == (jaegertest.Link{TraceID: root.TraceID, SpanID: root.ID}) {
			return
		}
	}
	t.Errorf("the batch is linked with %v, not with the frame %s %s", run.Spans[0].Links, root.TraceID, root.ID)
}

// TestFramesInJaeger: frames by every protocol are shown by a real Jaeger, whichever the
// exporter: as children of the client's spans, with all their stages.
func TestFramesInJaeger(t *testing.T) {
	j := jaegertest.Start(t, jaegertest.Options{})
	for kind, endpoint := range map[string]string{"otlp-grpc": j.OTLPGRPC, "otlp-http": j.OTLPHTTP,
		"jaeger-agent": j.Agent, "jaeger-collector": j.Collector} {
		t.Run(kind, func(t *testing.T) {
			clip := filepath.Join(t.TempDir(), "clip.mp4")
			servertest.Film(t, clip)
			cfg := traced(t, "exporter", kind, "endpoint", endpoint, "service_name", kind, "ratio", "1", "max_rate",
				"1000000", "batch_delay", "10ms")
			cfg.Streams = []streams.Config{{Name: "door", Source: clip, Model: "find"}}
			s, end := servertest.RunWith(t, cfg)
			picture := servertest.JPEG(t, 640, 480)
			stages := "receive wait batch prepare decode run write"

			restID, restParent, header := newParent()
			posted(t, s, "find", "image/jpeg", picture, header)

			plainID, plainParent, header := newParent()
			c, _, err := websocket.DefaultDialer.Dial("ws://"+s.Addr("http")+"/v2/models/find/stream?policy=every",
				http.Header{"traceparent": {header}})
			if err != nil {
				t.Fatal(err)
			}
			servertest.Ask(t, c, websocket.BinaryMessage, picture)
			_ = c.Close()

			v1ID, v1Parent, header := newParent()
			c = servertest.V1(t, s, `{"type":"open","sid":1,"model":"find"}`)
			h := wire.Header{Kind: 1, Codec: wire.JPEG, SID: 1, Seq: 1, Width: 640, Height: 480,
				Ext: wire.Ext{Traceparent: []byte(header)}}
			message := make([]byte, h.Size(), h.Size()+len(picture))
			wire.PutHeader(message, &h)
			if err := c.WriteMessage(websocket.BinaryMessage, append(message, picture...)); err != nil {
				t.Fatal(err)
			}
			if e := servertest.EndingOf(t, c); e.Type != "result" {
				t.Errorf("%+v", e)
			}
			_ = c.Close()

			nativeID, nativeParent, _ := newParent()
			traceID, _ := trace.TraceIDFromHex(nativeID)
			span, _ := trace.SpanIDFromHex(nativeParent)
			within := trace.ContextWithSpanContext(t.Context(),
				trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: span,
					TraceFlags: trace.FlagsSampled}))
			r, err := s.Native().InferBytes(within, "find", stream.JPEG, picture)
			if err != nil {
				t.Fatal(err)
			}
			r.Release()
			fromClip := func() (found []jaegertest.Trace) {
				for _, trace := range j.Traces(t, kind) {
					for _, span := range trace.Spans {
						if span.Tags["millrace.stream"] == "door" {
							found = append(found, trace)
						}
					}
				}
				return found
			}
			for len(fromClip()) < 10 { // the clip has ten frames
				time.Sleep(20 * time.Millisecond)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
			checkFrame(t, j, j.Wait(t, restID, 8), restParent, stages)
			stages = strings.TrimPrefix(stages, "receive ") // a WebSocket message arrives whole
			checkFrame(t, j, j.Wait(t, plainID, 7), plainParent, stages)
			checkFrame(t, j, j.Wait(t, v1ID, 7), v1Parent, stages)
			checkFrame(t, j, j.Wait(t, nativeID, 7), nativeParent, stages)
			clips := fromClip()
			if len(clips) != 10 {
				t.Errorf("%d frames of the clip, want 10", len(clips))
			}
			answered := 0
			for _, trace := range clips {
				if _, ok := trace.Span("run"); ok { // the policy dropped the other frames
					answered++
					checkFrame(t, j, trace, "", "wait batch run write")
				}
			}
			if answered == 0 {
				t.Error("no frame of the clip was answered")
			}
		})
	}
}

// TestSampledCounts: the kept frames depend only on trace ids and the ratio, for the server's ratio and for Jaeger's
// file: the server keeps as many frames as the SDK's sampler.
func TestSampledCounts(t *testing.T) {
	j := jaegertest.Start(t, jaegertest.Options{
		Strategies: `{"service_strategies": [{"service": "remote", "type": "probabilistic", "param": 0.25}],
		"default_strategy": {"type": "probabilistic", "param": 1}}`})
	for service, settings := range map[string][]string{
		"ratio": {"sampler", "ratio", "ratio", "0.25"},
		"remote": {"sampler", "jaeger-remote", "ratio", "0", "sampler_endpoint", "http://" + j.Sampling + "/sampling",
			"sampler_refresh", "100ms"},
	} {
		s, end := servertest.RunWith(t, traced(t, append(settings, "exporter", "otlp-grpc", "endpoint", j.OTLPGRPC,
			"service_name", service, "batch_delay", "10ms", "slow", "0", "max_rate", "1000000")...))
		body := []byte(`{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[7]}]}`)
		send := func(half uint64) (id string) {
			id = fmt.Sprintf("%016x%016x", len(service), half)
			posted(t, s, "echo", "application/json", body, "00-"+id+"-0000000000000001-00")
			return id
		}
		// The strategy has been read when a trace with the least id is kept.
		for n := uint64(1); service == "remote"; n++ {
			id := send(n)
			var kept struct{ Traces []json.RawMessage }
			_, text := servertest.Get(t, s, "/v2/traces?limit=1000")
			if err := json.Unmarshal([]byte(text), &kept); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, id) {
				break
			}
		}
		sampler, want, ids := sdktrace.TraceIDRatioBased(0.25), map[string]bool{}, []string{}
		for i := range 200 {
			id := send(uint64(i)<<56 | 0x123456)
			bytes, _ := trace.TraceIDFromHex(id)
			ids = append(ids, id)
			want[id] = sampler.ShouldSample(sdktrace.SamplingParameters{ParentContext: context.Background(),
				TraceID: bytes}).Decision == sdktrace.RecordAndSample
		}
		if err := end(); err != nil { // exports the queue
			t.Error(err)
		}
		n := 0
		for _, id := range ids {
			if want[id] {
				n++
				j.Wait(t, id, 1)
			} else if got, ok := j.Trace(t, id); ok {
				t.Errorf("%s: the trace %s is in Jaeger: %d spans", service, id, len(got.Spans))
			}
		}
		if n != 64 { // of the first bytes 0 to 199, the values below 64
			t.Errorf("%s: %d of 200 were kept", service, n)
		}
	}
}
