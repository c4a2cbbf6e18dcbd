package docs

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/batching"
	"millrace/config"
	"millrace/server"
	"millrace/stream"
)

// patience bounds every wait; none should come near it.
const patience = 30 * time.Second

// run runs a server with all that extending.md adds, and its log in a file.
func run(t *testing.T, more ...string) (s *server.Server, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	cfg, err := config.Parse([]byte(`
http: 127.0.0.1:0
grpc: off
udp: {address: "127.0.0.1:0", model: light}
log: {file: `+log+`}
site: attic
models:
  - {name: light, source: brightness, alarm: {above: 100}, batching: {kind: half, patience: 5ms}}
streams:
  - {name: lamp, source: "pattern:", step: 60, model: light, policy: every, sinks: {log: true}}
`+strings.Join(more, "\n")), "extended.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err = server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(patience):
		t.Fatal("the server is not ready")
	}
	return s, log
}

// gray is a picture as PNG.
func gray(t *testing.T, level uint8) []byte {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 32, 32))
	for i := range img.Pix {
		img.Pix[i] = level
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The worker answers with the brightness, and the stage adds whether that is an
// alarm, to the result and to what the model says of itself.
func TestExtendedWorkerAndStage(t *testing.T) {
	s, _ := run(t)
	m, _, err := s.Native().Model("light")
	if err != nil || len(m.Outputs) != 2 || m.Outputs[1].Name != "alarm" {
		t.Fatalf("%+v, %v", m, err)
	}
	for level, alarm := range map[uint8]byte{20: 0, 100: 0, 101: 1, 250: 1} {
		r, err := s.Native().InferBytes(t.Context(), "light", stream.PNG, gray(t, level))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Outputs[0].Float32s(); len(got) != 1 || got[0] != float32(level) {
			t.Errorf("a picture of %d has the brightness %v", level, got)
		}
		if len(r.Outputs) != 2 || !bytes.Equal(r.Outputs[1].Data, []byte{alarm}) {
			t.Errorf("a picture of %d: %+v, want the alarm %d", level, r.Outputs, alarm)
		}
		r.Release()
	}
}

// The batcher waits for half a batch, or as long as its setting says.
func TestExtendedBatcher(t *testing.T) {
	m, err := config.ParseModel("light=brightness,batching.kind=half,batching.patience=40ms")
	if err != nil {
		t.Fatal(err)
	}
	b, err := batching.NewBatcher("half", 8, m.Parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rows   int
		oldest time.Duration
		take   int
		wait   time.Duration
	}{
		{3, 10 * time.Millisecond, 0, 30 * time.Millisecond},
		{3, 40 * time.Millisecond, 3, 0},
		{4, 0, 4, 0},
		{9, 0, 8, 0},
	} {
		if take, wait := b.Decide(batching.View{Rows: c.rows, Idle: 1, Oldest: c.oldest}); take != c.take ||
			wait != c.wait {
			t.Errorf("%d rows, the oldest for %v: %d and %v, want %d and %v", c.rows, c.oldest, take, wait, c.take,
				c.wait)
		}
	}
}

// dial connects to the UDP adapter until the end of the test.
func dial(t *testing.T, s *server.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp", s.Addr("udp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// The adapter shows no credentials of its clients: a server whose clients need credentials refuses them.
func TestExtendedAdapterIsShut(t *testing.T) {
	s, _ := run(t, "api_key: "+strings.Repeat("k", 32))
	conn := dial(t, s)
	if _, err := conn.Write(gray(t, 7)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1<<10)
	n, err := conn.Read(answer)
	if err != nil || !strings.Contains(string(answer[:n]), "the key is missing") {
		t.Errorf("%s, %v", answer[:n], err)
	}
}

// The metric counts results of frames with a deadline.
func TestExtendedMetric(t *testing.T) {
	s, _ := run(t)
	for _, query := range []string{"", "?deadline_ms=30000", "?deadline_ms=30000"} {
		resp, err := http.Post(s.URL("http")+"/v2/models/light/infer"+query, "image/png", bytes.NewReader(gray(t, 7)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	resp, err := http.Get(s.URL("http") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !regexp.MustCompile(`(?m)^millrace_deadline_results_total{model="light",version="[^"]*"} 2$`).Match(
		text) {
		t.Errorf("%v in\n%s", err, text)
	}
}

// The setting of the server is in its log.
func TestExtendedSetting(t *testing.T) {
	_, log := run(t)
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), "site=attic") {
		t.Errorf("%v, %s", err, text)
	}
}

// The adapter is among the listeners, and answers.
func TestExtendedAdapter(t *testing.T) {
	s, _ := run(t)
	if !slices.ContainsFunc(s.Listeners(), func(l server.Listener) bool {
		return l.Name == "udp" && l.URL == "udp://"+l.Addr
	}) {
		t.Fatalf("%+v", s.Listeners())
	}
	conn := dial(t, s)
	for send, want := range map[string]string{
		string(gray(t, 7)): string(stream.AppendFloat32(nil, 7)),
		"no picture":       "not a picture",
	} {
		if _, err := conn.Write([]byte(send)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1<<10)
		n, err := conn.Read(answer)
		if err != nil || !strings.Contains(string(answer[:n]), want) {
			t.Errorf("%q, %v; want %q", answer[:n], err, want)
		}
	}
}

// The source gives frames, each brighter than the one before, and the sink takes
// their results.
func TestExtendedSourceAndSink(t *testing.T) {
	_, log := run(t)
	for limit := time.Now().Add(patience); ; {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "stream=lamp") && strings.Contains(line, "brightness") {
				lines = append(lines, line)
			}
		}
		if len(lines) >= 3 {
			for i, want := range []string{"[0]", "[60]", "[120]"} {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %s, want %s in it", i, lines[i], want)
				}
			}
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d lines of results:\n%s", len(lines), text)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// What the source does not honour is refused by name.
func TestExtendedSourceRefuses(t *testing.T) {
	for more, field := range map[string]string{`"pattern:", loop: true`: "streams[0].loop",
		`"pattern:x"`: "streams[0].source", `"pattern:", step: 0`: "streams[0].step"} {
		_, err := config.Parse([]byte("streams: [{name: lamp, model: light, source: "+more+"}]"), "f")
		var e *stream.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v, want an error of %s", more, err, field)
		}
	}
}

// An adapter's settings are validated with the configuration.
func TestExtendedAdapterRefuses(t *testing.T) {
	_, err := config.Parse([]byte(`udp: {address: "127.0.0.1:0"}`), "f")
	var e *stream.Error
	if !errors.As(err, &e) || e.Field != "udp.model" {
		t.Errorf("%v, want an error of udp.model", err)
	}
}

// Settings are listed wherever settings are.
func TestExtendedSettings(t *testing.T) {
	for path, list := range map[string][]config.Setting{
		"site":              config.Settings(),
		"udp.address":       config.Settings(),
		"udp.model":         config.Settings(),
		"alarm.above":       config.ModelSettings(),
		"batching.patience": config.ModelSettings(),
		"step":              config.StreamSettings(),
		"sinks.log":         config.StreamSettings(),
	} {
		if !slices.ContainsFunc(list, func(s config.Setting) bool { return s.Path == path && s.Doc != "" }) {
			t.Errorf("%s is not listed", path)
		}
	}
}
