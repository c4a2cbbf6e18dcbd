package frames_test

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest/frames"
	"millrace/stream"
)

const (
	trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	span  = "00f067aa0ba902b7"
	half  = "a3ce929d0e0e4736" // an id of 64 bits
)

func FuzzTraceparent(f *testing.F) {
	f.Add([]byte("00-" + trace + "-" + span + "-01"))
	f.Add([]byte("01-" + trace + "-" + span + "-00-more"))
	f.Add([]byte("00-00000000000000000000000000000000-" + span + "-01"))
	f.Fuzz(func(t *testing.T, h []byte) {
		var c stream.TraceContext
		ok := frames.Traceparent(&c, h)
		if ok != (c.Trace != stream.TraceID{}) || ok != (c.Parent != stream.SpanID{}) ||
			ok != (c.Decision != stream.Undecided) {
			t.Errorf("%q, %v: half a context, %+v", h, ok, c)
		}
		if ok && hex.EncodeToString(c.Trace[:]) != string(h[3:35]) {
			t.Errorf("%q gave the trace %x", h, c.Trace)
		}
	})
}

// For any headers, a context is complete or empty, and the carried values are limited.
func FuzzTraceHeaders(f *testing.F) {
	f.Add("traceparent", "00-"+trace+"-"+span+"-01", "tracestate", "a=1,b=2")
	f.Add("b3", trace+"-"+span+"-d", "baggage", strings.Repeat("k=v,", 3000))
	f.Add("uber-trace-id", "1:2:0:1", "baggage", strings.Repeat("k", 9000))
	f.Add("x-b3-traceid", half, "x-b3-spanid", span)
	f.Fuzz(func(t *testing.T, name, value, name2, value2 string) {
		var h frames.TraceHeaders
		h.Add([]byte(name), []byte(value))
		h.Add([]byte(name2), []byte(value2))
		c, broken := h.Context()
		if (c.Trace == stream.TraceID{}) != (c.Parent == stream.SpanID{}) {
			t.Errorf("half a context: %+v", c)
		}
		if c.Propagated != nil && (len(c.Propagated.State) > frames.MaxTracestate ||
			len(c.Propagated.Baggage) > frames.MaxBaggage) {
			t.Errorf("carries %d and %d bytes", len(c.Propagated.State), len(c.Propagated.Baggage))
		}
		if broken == "traceparent" && c.Propagated != nil && c.Propagated.State != "" {
			t.Error("the tracestate of a malformed traceparent was taken")
		}
	})
}

func TestTraceparent(t *testing.T) {
	for h, want := range map[string]stream.Decision{ // Undecided: not taken
		"00-" + trace + "-" + span + "-01":                  stream.Sampled,
		"00-" + trace + "-" + span + "-00":                  stream.NotSampled,
		"cc-" + trace + "-" + span + "-03-future":           stream.Sampled,
		"00-" + trace + "-" + span + "-01-x":                stream.Undecided,
		"ff-" + trace + "-" + span + "-01":                  stream.Undecided,
		"00-" + trace + "-0000000000000000-01":              stream.Undecided,
		"00-" + trace + "-" + span:                          stream.Undecided,
		"zz-" + trace + "-" + span + "-01":                  stream.Undecided,
		"00-" + strings.ToUpper(trace) + "-" + span + "-01": stream.Undecided,
	} {
		var c stream.TraceContext
		ok := frames.Traceparent(&c, []byte(h))
		if ok != (want != stream.Undecided) || c.Decision != want {
			t.Errorf("%s: %v %+v", h, ok, c)
		}
		if ok && (hex.EncodeToString(c.Trace[:]) != trace || hex.EncodeToString(c.Parent[:]) != span) {
			t.Errorf("%s: %x %x", h, c.Trace, c.Parent)
		}
	}
}

// Every form of header gives the ids and the decision of its sender. A malformed header is named, and the next form
// is read.
func TestTraceHeaders(t *testing.T) {
	long, short := "0000000000000000"+half, "00f067aa0ba902b7"
	for name, c := range map[string]struct {
		headers  [][2]string
		trace    string // "" = none
		decision stream.Decision
		broken   string
	}{
		"none": {[][2]string{{"accept", "*/*"}, {"user-agents", "x"}}, "", stream.Undecided, ""},
		"w3c": {[][2]string{{"Traceparent", "00-" + trace + "-" + span + "-01"}}, trace,
			stream.Sampled, ""},
		"w3c, twice": {[][2]string{{"traceparent", "00-" + trace + "-" + span + "-01"},
			{"traceparent", "00-" + trace + "-" + short + "-00"}}, "", stream.Undecided, "traceparent"},
		"w3c, malformed": {[][2]string{{"traceparent", "00-" + trace + "-01"}}, "", stream.Undecided,
			"traceparent"},
		"w3c and b3": {[][2]string{{"b3", half + "-" + span + "-0"},
			{"traceparent", "00-" + trace + "-" + span + "-01"}}, trace, stream.Sampled, ""},
		"malformed w3c and b3": {[][2]string{{"traceparent", "x"}, {"b3", half + "-" + span + "-1"}}, long,
			stream.Sampled, "traceparent"},
		"b3":                     {[][2]string{{"b3", trace + "-" + span + "-1-" + span}}, trace, stream.Sampled, ""},
		"b3, 64 bits, undecided": {[][2]string{{"B3", half + "-" + span}}, long, stream.Undecided, ""},
		"b3, debug":              {[][2]string{{"b3", trace + "-" + span + "-d"}}, trace, stream.Debug, ""},
		"b3, a decision alone":   {[][2]string{{"b3", "0"}}, "", stream.NotSampled, ""},
		"b3, malformed":          {[][2]string{{"b3", trace + "-" + span + "-2"}}, "", stream.Undecided, "b3"},
		"b3 headers": {[][2]string{{"X-B3-TraceId", trace}, {"X-B3-SpanId", span}, {"X-B3-Sampled", "1"}},
			trace, stream.Sampled, ""},
		"b3 headers, debug": {[][2]string{{"X-B3-TraceId", half}, {"X-B3-SpanId", span}, {"X-B3-Flags", "1"}},
			long, stream.Debug, ""},
		"b3 headers, not sampled": {[][2]string{{"X-B3-Sampled", "0"}}, "", stream.NotSampled, ""},
		"b3 headers, one missing": {[][2]string{{"X-B3-TraceId", trace}}, "", stream.Undecided, "x-b3-traceid"},
		"uber": {[][2]string{{"uber-trace-id", trace + ":" + span + ":0:1"}}, trace, stream.Sampled,
			""},
		"uber, short, escaped": {[][2]string{{"Uber-Trace-Id", "a3ce929d0e0e4736%3Af067aa0ba902b7%3a0%3A0"}}, long,
			stream.NotSampled, ""},
		"uber, debug": {[][2]string{{"uber-trace-id", trace + ":" + span + ":0:3"}}, trace, stream.Debug,
			""},
		"uber, malformed": {[][2]string{{"uber-trace-id", trace + ":" + span + ":1"}}, "", stream.Undecided,
			"uber-trace-id"},
		"uber, zero": {[][2]string{{"uber-trace-id", "0:" + span + ":0:1"}}, "", stream.Undecided,
			"uber-trace-id"},
	} {
		var h frames.TraceHeaders
		for _, kv := range c.headers {
			h.Add([]byte(kv[0]), []byte(kv[1]))
		}
		got, broken := h.Context()
		id := ""
		if got.Trace != (stream.TraceID{}) {
			id = hex.EncodeToString(got.Trace[:])
			if hex.EncodeToString(got.Parent[:]) != span {
				t.Errorf("%s: parent %x", name, got.Parent)
			}
		}
		if id != c.trace || got.Decision != c.decision || broken != c.broken {
			t.Errorf("%s: trace %q, decision %v, broken %q", name, id, got.Decision, broken)
		}
	}
}

// tracestate and baggage are bounded by whole members.
func TestCarried(t *testing.T) {
	parent := [2]string{"traceparent", "00-" + trace + "-" + span + "-01"}
	for name, c := range map[string]struct {
		headers        [][2]string
		state, baggage string
		cut            bool
	}{
		"both": {[][2]string{parent, {"tracestate", "a=1"}, {"baggage", "k=v"}}, "a=1", "k=v",
			false},
		"in parts": {[][2]string{parent, {"tracestate", "a=1"}, {"tracestate", "b=2"}}, "a=1,b=2", "",
			false},
		"baggage alone":            {[][2]string{{"baggage", "k=v"}}, "", "k=v", false},
		"tracestate without trace": {[][2]string{{"tracestate", "a=1"}, {"baggage", "k=v"}}, "", "k=v", false},
		"long tracestate": {[][2]string{parent,
			{"tracestate", "a=" + strings.Repeat("1", 500) + ",b=" + strings.Repeat("2", 20)}},
			"a=" + strings.Repeat("1", 500), "", true},
		"many members": {[][2]string{parent, {"baggage", strings.Repeat("k=v,", 100) + "z=z"}}, "",
			strings.TrimSuffix(strings.Repeat("k=v,", 64), ","), true},
		"one member too long": {[][2]string{parent, {"baggage", "k=" + strings.Repeat("v", 9000)}}, "", "", true},
	} {
		var h frames.TraceHeaders
		for _, kv := range c.headers {
			h.Add([]byte(kv[0]), []byte(kv[1]))
		}
		got, _ := h.Context()
		if got.Propagated == nil || got.Propagated.State != c.state || got.Propagated.Baggage != c.baggage ||
			got.Propagated.Truncated != c.cut {
			t.Errorf("%s: %+v", name, got.Propagated)
		}
	}
}

// Reading the headers of a request allocates nothing, with a traceparent or without.
func TestTraceHeadersDoNotAllocate(t *testing.T) {
	var contexts frames.Contexts
	name, value := []byte("Traceparent"), []byte("00-"+trace+"-"+span+"-01")
	other, text := []byte("Content-Type"), []byte("application/octet-stream")
	if n := testing.AllocsPerRun(100, func() {
		var h frames.TraceHeaders
		h.Add(other, text)
		h.Add(name, value)
		if c := contexts.Request(&h); c.Trace == (stream.TraceID{}) {
			t.Fatal("not read")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTraceresponse(t *testing.T) {
	r := stream.Result{Kept: true}
	for i := range r.Trace {
		r.Trace[i] = byte(i)
	}
	r.Span[7] = 0xab
	if got := string(frames.AppendTraceresponse(nil,
		&r)); got != "00-000102030405060708090a0b0c0d0e0f-00000000000000ab-01" {
		t.Error(got)
	}
}

// Malformed contexts are counted. At level debug, one malformed context a second is logged.
func TestMalformedContextsAreLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		x := frames.Contexts{Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		send := func(n int) {
			for range n {
				var f stream.Frame
				x.Frame(&f, []byte("00"))
				if f.Trace == (stream.TraceID{}) {
					t.Fatal("the frame has no trace")
				}
			}
		}
		send(50)
		time.Sleep(1100 * time.Millisecond)
		send(50)
		got := out.String()
		if strings.Count(got, "header=ext.traceparent") != 2 || !strings.Contains(got, "total=1\n") ||
			!strings.Contains(got, "total=51\n") || x.Broken() != 100 {
			t.Errorf("%d malformed ones:\n%s", x.Broken(), got)
		}
	})
}
