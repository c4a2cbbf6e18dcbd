package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/client"
	"millrace/client/play"
	"millrace/examples/spotter"
	"millrace/internal/clip/truth"
	"millrace/stream"
)

// onnxRun prepares a run of the program where ONNX Runtime's library is found.
func onnxRun(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if found, _ := filepath.Glob(filepath.Join(cache, "millrace", "onnxruntime-*",
		"libonnxruntime.so*")); len(found) == 0 {
		t.Fatal("ONNX Runtime's library is not in the cache folder: make onnxruntime")
	}
	c := command(t, args...)
	c.Env = append(c.Env, "XDG_CACHE_HOME="+cache)
	return c
}

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("plays the whole clip in real time")
	}
	dir := t.TempDir()
	out, stderr, code := finish(t, onnxRun(t, "demo", "--out", dir, "--json"))
	var j demoSummary
	if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 {
		t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	if j.Frames < 300 || j.Frames != j.Results+j.Dropped() || j.Results < j.Frames/2 || j.Judged != j.Results ||
		j.Hits == 0 || j.Precision < 0.9 || j.Recall < 0.9 {
		t.Errorf("%+v", j)
	}
	if n := framesOf(t, j.Overlay); n != j.Frames || j.Overlay != filepath.Join(dir, "overlay.mp4") {
		t.Errorf("%d frames in %s", n, j.Overlay)
	}
	whole(t, filepath.Join(dir, "overlay.png"))
}

func TestDemoServes(t *testing.T) {
	if testing.Short() {
		t.Skip("plays the whole clip in real time")
	}
	c := onnxRun(t, "demo", "--serve")
	p := begin(t, c)
	p.until("millrace is ready: http://127.0.0.1:")
	p.until("precision, recall")
	line := p.until("The console is at")
	addr, _, _ := strings.Cut(httpAddr.FindStringSubmatch(line)[1], "/")
	out, stderr, code := millrace(t, "models", "--addr", addr)
	if code != 0 || !strings.Contains(out, "spotter") || !strings.Contains(out, "motion") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	whole(t, filepath.Join(c.Dir, "out", "demo", "overlay.png"))
	loops(t, addr)
	if _, code := p.signal(syscall.SIGINT); code != 0 {
		t.Errorf("Ctrl-C: exit status %d\n%s", code, &p.stderr)
	}
}

// loops reads the results of the server stream until the clip has started again.
func loops(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v2/streams/digits/results", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/x-ndjson")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var first *int
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		var line struct {
			Seq     *int
			Outputs []any
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Seq == nil || len(line.Outputs) == 0 {
			t.Fatalf("%s %v", lines.Bytes(), err)
		}
		if first == nil {
			first = line.Seq
		}
		if *line.Seq > *first+330 { // frames of the clip
			return
		}
	}
	t.Fatalf("%s: the results ended before the clip began again", answer.Status)
}

// The error names the missing library.
func TestDemoWithoutLibrary(t *testing.T) {
	c := command(t, "demo")
	c.Env = append(c.Env, "MILLRACE_ONNX_LIBRARY=/nowhere/libonnxruntime.so.1")
	out, stderr, code := finish(t, c)
	if code != 1 || !strings.Contains(stderr, "/nowhere/libonnxruntime.so.1: no such file") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
}

// Results equal to the ground truth are right, and wrong digits are wrong.
func TestEvaluation(t *testing.T) {
	tr, err := truth.Read(bytes.NewReader(spotter.Truth))
	if err != nil {
		t.Fatal(err)
	}
	at := tr.Frames[0]
	for wrong, want := range []float64{1, 0} {
		var (
			boxes  []float32
			labels stream.Tensor
			n      = len(at.Objects)
		)
		labels = stream.Tensor{Name: "classes", Datatype: stream.Int64, Shape: []int{1, n}}
		for _, o := range at.Objects {
			for _, v := range o.Box {
				boxes = append(boxes, float32(v)/2) // sent at half the size
			}
			labels.Data = append(labels.Data, byte((*o.Class+wrong)%10), 0, 0, 0, 0, 0, 0, 0)
		}
		e := evaluation{truth: tr}
		e.reply(play.Reply{Reply: client.Reply{Width: tr.Width / 2, Height: tr.Height / 2, Outputs: []stream.Tensor{
			{Name: "boxes", Datatype: stream.Float32, Shape: []int{1, n, 4},
				Data: stream.AppendFloat32(nil, boxes...)}, labels,
		}}})
		if e.frames != 1 || e.score.Precision() != want || e.score.Recall() != want ||
			len(strings.Fields(e.digits())) != n {
			t.Errorf("%+v, digits %s", e.score, e.digits())
		}
	}
}

func TestCached(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file, err := cached("x", []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := cached("x", []byte("one"))
	if got, _ := os.ReadFile(file); err != nil || again != file || string(got) != "one" {
		t.Errorf("%s, %q, %v", again, got, err)
	}
	if other, err := cached("x", []byte("two")); err != nil || other == file {
		t.Errorf("%s, %v", other, err)
	}
}
