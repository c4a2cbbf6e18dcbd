package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/setting"
	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/workers"
)

func defaults() *Settings { return setting.Filled(new(Settings)) }

func at(d time.Duration) stream.Instant { return stream.Instant(1).Add(d) }

func TestHealth(t *testing.T) {
	set := defaults()
	set.Watchdog.RequestThreshold, set.RecycleRequests, set.RecycleAfter, set.MemoryLimit = 100*time.Millisecond, 20,
		time.Hour, 100<<20
	h := newHealth(set, at(0))
	for i, took := range []time.Duration{300, 10, 10, 10, 150, 150} { // milliseconds; the mean of three
		why := h.ran(1, took*time.Millisecond)
		if (why != nil) != (i == 2 || i == 5) {
			t.Errorf("batch %d: %+v", i, why)
		}
		if why != nil && (why.cause != "slow" || why.planned ||
			!strings.Contains(why.err.Error(), "watchdog.request_threshold")) {
			t.Errorf("batch %d: %+v", i, why)
		}
	}
	if why := h.ran(13, 0); why != nil {
		t.Errorf("19 requests: %+v", why)
	}
	if why := h.ran(1, 0); why == nil || why.cause != "recycled" || !why.planned {
		t.Errorf("20 requests: %+v", why)
	}
	if h.interval() != 100*time.Millisecond {
		t.Errorf("looks at the memory each %v", h.interval())
	}
	if h.old(at(time.Hour-1)) != nil || h.old(at(time.Hour)) == nil {
		t.Error("recycle_after")
	}
	for _, c := range []struct {
		bytes     int64
		over, now bool
	}{{100 << 20, false, false}, {101 << 20, true, false}, {199 << 20, true, false}, {202 << 20, true, true}} {
		if why, now := h.memory(c.bytes); (why != nil) != c.over || now != c.now {
			t.Errorf("%d bytes: %+v, %v", c.bytes, why, now)
		}
	}
}

// An idle program is asked once in each period, a busy program never.
func TestDue(t *testing.T) {
	h := newHealth(defaults(), at(0))
	var asked []int
	for s := range 30 {
		switch s {
		case 12:
			h.idle = 0
		case 21:
			h.idle = at(21 * time.Second)
		}
		if h.due(at(time.Duration(s) * time.Second)) {
			asked = append(asked, s)
		}
	}
	if !slices.Equal(asked, []int{5, 10, 26}) {
		t.Errorf("asked at %v", asked)
	}
	set := defaults()
	*set.Watchdog.Period = 0
	if newHealth(set, at(0)).due(at(time.Hour)) {
		t.Error("asked although the period is 0")
	}
}

func request(params stream.Params, payload string) *stream.Request {
	return &stream.Request{Frame: stream.Frame{Codec: stream.Opaque, Payload: []byte(payload), Params: params}}
}

// Only input that ended the program is refused for a while.
func TestKillers(t *testing.T) {
	tr := newCrashHistory(time.Minute)
	if tr.refused(request(nil, "a"), at(0)) != nil {
		t.Error("nothing is known")
	}
	tr.remember(request(stream.Params{"n": int64(1)}, "a"), at(0))
	for _, other := range []*stream.Request{request(nil, "a"), request(stream.Params{"n": int64(2)}, "a"),
		request(stream.Params{"n": "1"}, "a"), request(stream.Params{"n": int64(1)}, "b")} {
		if err := tr.refused(other, at(time.Second)); err != nil {
			t.Errorf("%v %s: %v", other.Params, other.Payload, err)
		}
	}
	same := request(stream.Params{"n": int64(1)}, "a")
	if err := tr.refused(same, at(59*time.Second)); stream.CodeOf(err) != stream.InvalidArgument ||
		!strings.Contains(err.Error(), "59s ago, and such input is refused for 1m0s") {
		t.Errorf("%v", err)
	}
	if err := tr.refused(same, at(time.Minute)); err != nil || tr.known.Load() != 0 {
		t.Errorf("after its time: %v", err)
	}
	for i := range maxKillers + 10 {
		tr.remember(request(nil, fmt.Sprint(i)), at(time.Duration(i)))
	}
	if n := tr.known.Load(); n != maxKillers {
		t.Errorf("%d are known", n)
	}
	if tr.refused(request(nil, "0"), at(time.Second)) != nil ||
		tr.refused(request(nil, "1000"), at(time.Second)) == nil {
		t.Error("the oldest are forgotten first")
	}
}

// A program that writes without end fills the log at a bounded rate.
func TestLogRate(t *testing.T) {
	var b bytes.Buffer
	l := newLogs(slog.New(slog.NewTextHandler(&b, nil)))
	now := time.Unix(1000, 0)
	l.now = func() time.Time { return now }
	for range 10 * logBurst {
		l.line(slog.LevelInfo, "x")
	}
	if n := strings.Count(b.String(), "msg=x"); n != logBurst {
		t.Errorf("%d lines at once", n)
	}
	b.Reset()
	now = now.Add(time.Second)
	for range 10 * logBurst {
		l.line(slog.LevelInfo, "x")
	}
	if n := strings.Count(b.String(), "msg=x"); n != logRate || !strings.Contains(b.String(), "lines=4500") {
		t.Errorf("%d lines in the next second: %.200s", n, b.String())
	}
}

func TestCores(t *testing.T) {
	if got, err := parseCores("0-3,8"); err != nil || !slices.Equal(got, []int{0, 1, 2, 3, 8}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "3-1", "-1", "1-", "2000", "1,,2"} {
		if _, err := parseCores(bad); err == nil || !strings.Contains(err.Error(), "cores") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Meaningless settings are refused by name.
func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		change func(*Settings)
		says   string
	}{
		{func(s *Settings) { s.Env = []string{"A"} }, "env"},
		{func(s *Settings) { s.Env = []string{"MILLRACE_SOCKET=7"} }, "MILLRACE_SOCKET"},
		{func(s *Settings) { s.InstanceEnv = []string{"A=1;B"} }, "instance_env"},
		{func(s *Settings) { s.Cores = []string{"x"} }, "cores"},
	} {
		s := defaults()
		c.change(s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}

// A program's description of the model is checked.
func TestDescriptions(t *testing.T) {
	const x = `"inputs":[{"name":"x","datatype":"FP32","shape":[4]}]`
	for text, says := range map[string]string{
		`{"type":"model"}`: "nobody could use it",
		`{"type":"model","inputs":[{"name":"x","datatype":"FP31","shape":[4]}]}`:                 "FP31",
		`{"type":"model","inputs":[{"name":"x","datatype":"FP32","shape":[0]}]}`:                 "shape [0]",
		`{"type":"model","inputs":[{"name":"x","datatype":"FP32","shape":[99999999,99999999]}]}`: "too large",
		`{"type":"model","inputs":[{"datatype":"FP32","shape":[1]}]}`:                            "no name",
		`{"type":"model","inputs":[{"name":"x","datatype":"FP32","shape":[1]},{"name":"x","datatype":"FP32",` +
			`"shape":[1]}]}`: "another one has",
		`{"type":"model","max_batch":100000,` + x +
			`}`: "max_batch",
		`{"type":"model","image":{"width":5},` + x +
			`}`: "want both sides",
		`{"type":"model","image":{},` + x +
			`}`: "UINT8 with 3",
		`{"type":"model","image":{"scale":[1,2]},` + x +
			`}`: "one or three",
		`{"type":"model","color":"red",` + x +
			`}`: "unknown field",
		`{"type":"model","app":{"routes":[{"method":"BREW","path":"/"}]}}`: "BREW",
		`{"type":"model","app":{"routes":[{"method":"GET","path":"x"}]}}`:  "begins with a slash",
	} {
		d, err := describe([]byte(text))
		if err == nil {
			_, _, err = d.model()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	d, err := describe([]byte(`{"type":"model","batch":true,"max_batch":4,"stateful":true,"app":{"style":"s",` +
		`"routes":[{"method":"POST","path":"/a","endpoint":"a","events":true}],"openapi":{"a":1},"extra":{"n":1,` +
		`"f":1.5,"l":[1]}},"stages":[{"name":"x"}],` + x + `}`))
	if err != nil {
		t.Fatal(err)
	}
	m, whole, err := d.model()
	if err != nil || whole || m.Ragged || m.AcceptsAnyInput || !m.Stateful || !m.Affinity || m.MaxBatch != 4 ||
		m.Axis != stream.FreeAxis || !m.Calls {
		t.Errorf("%+v, %v", m, err)
	}
	a := m.App
	if a.Style != "s" || !a.Routes[0].Events || string(a.OpenAPI) != `{"a":1}` || a.Extra["n"] != int64(1) ||
		a.Extra["f"] != 1.5 || a.Extra["l"] != "[1]" || string(a.Parts) != `{"graphs":[],"stages":[{"name":"x"}]}` {
		t.Errorf("%+v %s", a, a.Parts)
	}
}

// TestColorOfPicture: a picture that keeps its size has the message's color, or RGB, so that graphs and metadata know
// the color.
func TestColorOfPicture(t *testing.T) {
	for text, want := range map[string]string{
		`"image":{}`:               "RGB",
		`"image":{"color":"BGR"}`:  "BGR",
		`"image":{"color":"GRAY"}`: "GRAY",
	} {
		d, err := describe([]byte(`{"type":"model",` + text + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if m, whole, err := d.model(); err != nil || !whole || m.Inputs[0].Color != want {
			t.Errorf("%s: %+v, %v, want %s", text, m, err, want)
		}
	}
}

// FuzzMessage gives texts of a child to the parser, which refuses or reads each text.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"type":"result","id":1,"outputs":[{"name":"y","datatype":"FP32","shape":[2,4],"segment":3,` +
		`"offset":0,"size":32}],"spans":[{"name":"a","start_us":1,"end_us":2}],"memory":5}`))
	f.Add([]byte(`{"id":1,"type":"result","requests":[{"outputs":[],"parameters":{"a":1,"b":-1.5e3,"c":"\u00e4",` +
		`"d":true}},{"error":{"code":"timeout","message":"m","status":418}},{"drop":true},{"reply":{"status":200,` +
		`"content_type":"a","header":{"b":"c"}}}]}`))
	f.Add([]byte(`{"type":"part","id":1,"request":0,"outputs":[{"name":"y","datatype":"BYTES","shape":[1],"at":0,` +
		`"size":4}]}`))
	f.Add([]byte(`{"type":"log","level":"info"}`))
	for _, number := range []string{"03", "00", "0", "-01", "1.", "1.e5", "-", "0.5e-3"} {
		f.Add([]byte(`{"type":"result","id":` + number + `,"requests":[{"outputs":[]}]}`))
		f.Add([]byte(`{"type":"result","id":1,"requests":[{"parameters":{"a":` + number + `}}]}`))
	}
	f.Add([]byte(`{"type":"decode","id":1,"request":0,"width":64,"height":48,"color":"BGR"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, s := message{text: text}, scanner{}
		if err := m.parse(&s); err != nil {
			return
		}
		if !json.Valid(text) && (m.kind == isPart || m.kind == isResult) {
			t.Errorf("not JSON, but accepted: %q", text)
		}
		for _, list := range [][]tensor{m.outputs, m.tensors} {
			for _, o := range list {
				if !o.datatype.Valid() || o.from < 1 || o.to < o.from || o.to > len(m.dims) || o.size < 0 ||
					o.offset < 0 || m.dims[o.from-1] != 1 {
					t.Errorf("%+v of %q", o, text)
				}
			}
		}
		for _, a := range m.answers {
			if a.from < 0 || a.to < a.from || a.to > len(m.tensors) {
				t.Errorf("%+v", a)
			}
		}
		m.reset()
	})
}

// The example of docs/process.md serves.
func TestProgramOfTheDocs(t *testing.T) {
	code, err := os.ReadFile("../../examples/process/doubler.py")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "doubler")
	testneeds.WriteProgram(t, path, string(code))
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint(shared), func(t *testing.T) {
			r := load(t, "", func(c *workers.Config) { c.Source, c.Kind = path, "" }, params("shared_memory", shared))
			s := r.open(stream.Options{})
			for i := range 16 {
				s.submit(numbers(nil, float32(i), 1, 2, 3))
			}
			for i := range 16 {
				got := s.next()
				if got.Outcome != stream.Answered || got.Outputs[0].Float32s()[0] != 2*float32(i) {
					t.Fatalf("%v, %v", got.Outcome, got.Err)
				}
				got.Release()
			}
		})
	}
}

// Reading the result of a batch allocates only kept memory.
func TestParseAllocations(t *testing.T) {
	text := []byte(`{"type":"result","id":1,"outputs":[{"name":"y","datatype":"FP32","shape":[2,4],"segment":3,` +
		`"offset":0,"size":32}],"memory":5}`)
	m, s := message{}, scanner{}
	if n := testing.AllocsPerRun(100, func() {
		m.text = append(m.text, text...)
		if err := m.parse(&s); err != nil {
			t.Fatal(err)
		}
		m.reset()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
