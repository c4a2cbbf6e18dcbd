package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/internal/codec"
	"millrace/internal/recording"
)

// spotters starts a server with the digits' model twice, with different thresholds.
func spotters(t *testing.T) (addr string) {
	t.Helper()
	const model = "%s=%s,input.image.width=320,input.image.height=240,input.image.layout=NCHW,input.image.color=RGB," +
		"input.image.scale=0.00392157," +
		"output.boxes.boxes=boxes,output.boxes.scores=scores,output.boxes.threshold=%s"
	file, err := filepath.Abs("../../examples/spotter/spotter.onnx")
	if err != nil {
		t.Fatal(err)
	}
	c := onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off",
		"--model", fmt.Sprintf(model, "loose", file, "0.3"), "--model", fmt.Sprintf(model, "strict", file, "0.8"))
	m := httpAddr.FindStringSubmatch(begin(t, c).until("millrace is ready: "))
	if m == nil {
		t.Fatal("the line of a ready server has no address")
	}
	return m[1]
}

// reads runs the program, checks the exit status, and decodes the JSON output.
func reads(t *testing.T, into any, want int, args ...string) (stderr string) {
	t.Helper()
	out, stderr, code := millrace(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil || code != want {
		t.Fatalf("%v: exit status %d, %v\n%s%s", args, code, err, out, stderr)
	}
	return stderr
}

func TestRecordReplayCompare(t *testing.T) {
	t.Parallel()
	addr, dir := spotters(t), t.TempDir()
	a, b, c := filepath.Join(dir, "a.mill"), filepath.Join(dir, "b.mill"), filepath.Join(dir, "c.mill")
	clip, err := filepath.Abs("../../examples/spotter/clip.mp4")
	if err != nil {
		t.Fatal(err)
	}
	var r recordSummary
	reads(t, &r, 0, "record", clip, "--model", "loose", "--out", a, "--addr", addr, "--duration", "1s",
		"--realtime=false", "--policy", "every")
	if st, err := os.Stat(a); err != nil || r.Frames != 30 || r.Results != 30 || r.File != a || r.Bytes != st.Size() {
		t.Fatalf("%+v, %v", r, err)
	}
	var p replaySummary
	reads(t, &p, 0, "replay", a, "--model", "loose", "--out", b, "--addr", addr, "--realtime=false")
	if p.Frames != 30 || p.Results != 30 || p.File != b {
		t.Errorf("%+v", p)
	}
	reads(t, &p, 0, "replay", a, "--model", "strict", "--out", c, "--addr", addr, "--realtime=false", "--window", "1")
	if p.Frames != 30 || p.Batch != 1 {
		t.Errorf("one after the other: %+v", p)
	}
	for _, copied := range []string{b, c} {
		if n := sameFrames(t, a, copied); n != 30 {
			t.Errorf("%s has %d frames of %s", copied, n, a)
		}
	}
	var d comparison
	reads(t, &d, 0, "compare", a, b, "--fail-under", "1")
	if d.Frames != 30 || d.Identical != 30 || d.Compared != 30 || d.Agree != 30 || d.Boxes.A < 30 ||
		d.Boxes.Matched != d.Boxes.A || d.Boxes.Differ() != 0 || d.Boxes.MaxDrift > 0.5 || *d.Share != 1 ||
		len(d.Worst) != 0 {
		t.Errorf("the same model: %+v, %+v", d, d.Boxes)
	}
	if d.A.P50 <= 0 || d.A.P99 < d.A.P50 || d.A.RunP50 <= 0 || d.A.P50 < d.A.RunP50 || d.A.Model != "loose" {
		t.Errorf("%+v", d.A)
	}
	d = comparison{}
	whole, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(filepath.Dir(b), "cut.mill")
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if stderr := reads(t, &d, 1, "compare", a, cut, "--fail-under", "0.1"); d.B.Cut == "" ||
		!strings.Contains(stderr, "cut.mill is damaged or was cut short") {
		t.Errorf("a recording that was cut: %+v\n%s", d.B, stderr)
	}
	d = comparison{}
	stderr := reads(t, &d, 1, "compare", a, c, "--fail-under", "0.95")
	if d.Boxes.Matched == 0 || d.Boxes.OnlyA == 0 || d.Boxes.OnlyB != 0 || d.Boxes.Matched != d.Boxes.B ||
		*d.Share >= 0.95 || len(d.Worst) != maxWorst || !strings.Contains(stderr, "is under 0.95") {
		t.Errorf("a higher threshold: %+v, %+v\n%s", d, d.Boxes, stderr)
	}
	out, _, code := millrace(t, "compare", a, c)
	if code != 0 || !strings.Contains(out, "matched share") || !strings.Contains(out, "strict") ||
		!strings.Contains(out, "most differ in") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}

// sameFrames checks that the frames of two files have equal bytes, and returns the number of frames.
func sameFrames(t *testing.T, a, b string) int {
	t.Helper()
	x, y := openMill(t, a), openMill(t, b)
	if x.Frames() != y.Frames() {
		t.Errorf("%d frames and %d", x.Frames(), y.Frames())
	}
	for i := range x.Frames() {
		f, err := x.Frame(x.Seq(i))
		if err != nil {
			t.Fatal(err)
		}
		g, err := y.Frame(x.Seq(i))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Payload, g.Payload) || f.CaptureUS != g.CaptureUS || f.Width != g.Width ||
			f.Codec != g.Codec {
			t.Errorf("frame %d is another one", f.Seq)
		}
		if info, err := codec.Header(f.Payload); err != nil || info.Width != f.Width || f.Codec != "jpeg" {
			t.Errorf("frame %d: %+v, %v; %s %dx%d", f.Seq, info, err, f.Codec, f.Width, f.Height)
		}
	}
	return y.Frames()
}

func openMill(t *testing.T, name string) *recording.Reader {
	t.Helper()
	r, err := recording.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// TestLiveRecording: a recording has the drops of the server and the intervals between frames, and is readable after
// the program was killed.
func TestLiveRecording(t *testing.T) {
	if testing.Short() {
		t.Skip("records in real time")
	}
	_, addr := serve(t, "--model", "eyes=motion", "--model", "slow=delay,fixed=150ms,per_item=0ms,batching.max_size=1")
	dir, clip := t.TempDir(), clipFile(t)
	a, b, c := filepath.Join(dir, "a.mill"), filepath.Join(dir, "b.mill"), filepath.Join(dir, "c.mill")
	var r recordSummary
	reads(t, &r, 0, "record", clip, "--model", "slow", "--out", a, "--addr", addr)
	var p replaySummary
	reads(t, &p, 0, "replay", a, "--model", "eyes", "--out", b, "--addr", addr)
	if r.Frames != 30 || r.Drops["superseded"] == 0 || p.Frames != 30 || p.Results != 30 || p.Seconds < 1.5 {
		t.Errorf("%+v\n%+v", r, p)
	}
	var d comparison
	reads(t, &d, 0, "compare", a, b)
	if d.A.Drops["superseded"] != r.Drops["superseded"] || d.Compared != r.Results || d.Identical != 30 ||
		d.B.Results != 30 {
		t.Errorf("%+v", d)
	}
	x := openMill(t, a)
	if h := x.Header(); h.Model != "slow" || h.Source != clip || h.Started.IsZero() || x.Cut() != nil {
		t.Errorf("%+v, %v", h, x.Cut())
	}

	k := begin(t, command(t, "record", clip, "--loop", "--model", "eyes", "--out", c, "--addr", addr))
	k.until("results")
	k.until("results") // frames counted in the line are in the file
	_, _ = k.signal(syscall.SIGKILL)
	stderr := reads(t, &p, 0, "replay", c, "--model", "eyes", "--addr", addr, "--realtime=false")
	if p.Frames < 10 || p.Results != p.Frames || !strings.Contains(stderr, "c.mill") {
		t.Errorf("after a kill: %+v\n%s", p, stderr)
	}

	// Ctrl-C leaves a complete file.
	one := begin(t, command(t, "record", clip, "--loop", "--model", "eyes", "--out", filepath.Join(dir, "d.mill"),
		"--addr", addr))
	one.until("results")
	if rest, code := one.signal(syscall.SIGINT); code != 0 || !strings.Contains(rest, "d.mill: ") {
		t.Errorf("Ctrl-C: exit status %d\n%s%s", code, rest, &one.stderr)
	}
	if r := openMill(t, filepath.Join(dir, "d.mill")); r.Cut() != nil || r.Frames() < 10 {
		t.Errorf("%d frames, %v", r.Frames(), r.Cut())
	}
}

// Frames without a recognisable format are sent with the codec in the recording.
func TestRawReplay(t *testing.T) {
	_, addr := serve(t, "--model", "eyes=motion")
	file := filepath.Join(t.TempDir(), "raw.mill")
	w, err := recording.Create(file, recording.Header{Codec: "rgb24"})
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{7, 9} { // numbers need not begin at 0
		if err := w.Frame(&recording.Frame{Seq: seq, Codec: "rgb24", Width: 32, Height: 24,
			Payload: make([]byte, 32*24*3)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var p replaySummary
	reads(t, &p, 0, "replay", file, "--model", "eyes", "--addr", addr, "--out", file+"2")
	r := openMill(t, file+"2")
	e, err := r.Endings(9)
	if p.Results != 2 || err != nil || len(e) != 1 || e[0].Outcome != recording.Result || e[0].Width != 32 {
		t.Errorf("%+v, %+v, %v", p, e, err)
	}
}

func TestRecordingsRefused(t *testing.T) {
	_, addr := serve(t, "--model", "eyes=motion")
	dir := t.TempDir()
	there, empty, none := filepath.Join(dir, "there.mill"), filepath.Join(dir, "empty.mill"),
		filepath.Join(dir, "none.mill")
	if err := os.WriteFile(there, []byte("precious, and no recording"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := recording.Create(empty, recording.Header{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	clip := picture(t)
	for _, c := range []struct {
		want string
		code int
		args []string
	}{
		{"exists", 1, []string{"record", clip, "--model", "eyes", "--out", there, "--addr", addr}},
		{"nothing", 1, []string{"record", clip, "--model", "nothing", "--out", none, "--addr", addr}},
		{"--out is missing", 2, []string{"record", clip, "--model", "eyes"}},
		{"--model is missing", 2, []string{"record", clip, "--out", none}},
		{"begin with its signature", 1, []string{"replay", there, "--model", "eyes", "--addr", addr}},
		{"no frames", 1, []string{"replay", empty, "--model", "eyes", "--addr", addr}},
		{"none.mill", 1, []string{"replay", none, "--model", "eyes", "--addr", addr}},
		{"--window", 2, []string{"replay", empty, "--model", "eyes", "--window", "0"}},
		{"newest", 2, []string{"replay", empty, "--model", "eyes", "--policy", "newest"}},
		{"takes A.mill B.mill", 2, []string{"compare", empty}},
		{"--iou", 2, []string{"compare", empty, empty, "--iou", "0"}},
		{"--fail-under", 2, []string{"compare", empty, empty, "--fail-under", "95"}},
		{"--tolerance", 2, []string{"compare", empty, empty, "--tolerance", "-1"}},
		{"nothing can be compared", 1, []string{"compare", empty, empty, "--json", "--fail-under", "0.5"}},
		{there, 1, []string{"compare", empty, there}},
	} {
		_, stderr, code := millrace(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d\n%s", c.args, code, stderr)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a file without a frame was left")
	}
	for _, name := range []string{"record", "replay", "compare"} {
		if help, _, code := millrace(t, name, "--help"); code != 0 ||
			!strings.Contains(help, "Examples:\n  millrace "+name) {
			t.Errorf("%s --help: exit status %d\n%s", name, code, help)
		}
	}
}
