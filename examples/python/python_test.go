// Package python is the example of a camera in a class in Python.
package python

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/testneeds"
	"millrace/server"
)

// result is a line of a server stream.
type result struct {
	Width, Height float64
	Outputs       []struct {
		Name string
		Data []any
	}
}

func (r *result) numbers(name string) (out []float64) {
	for _, o := range r.Outputs {
		if o.Name == name {
			for _, v := range o.Data {
				out = append(out, v.(float64))
			}
		}
	}
	return out
}

// TestCamera serves the class, and sends a live video with a red and a blue rectangle: each result has the boxes of
// both, in pixels of the video.
func TestCamera(t *testing.T) {
	interpreter, ffmpeg := testneeds.Python(t, "numpy"), testneeds.Program(t, "ffmpeg")
	dir := t.TempDir()
	clip := filepath.Join(dir, "clip.mp4")
	draw := "drawbox=x=64:y=64:w=96:h=128:color=red:t=fill,drawbox=x=400:y=320:w=128:h=64:color=blue:t=fill"
	if out, err := exec.Command(ffmpeg, "-v", "error", "-f", "lavfi", "-i", "color=c=gray:s=640x480:r=20:d=2", "-vf",
		draw, "-pix_fmt", "yuv420p", clip).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file := filepath.Join(dir, "millrace.yaml")
	text := "models:\n  - {name: colours, source: " + absolute(t, "colours.py") + ", python: " + interpreter + "}\n" +
		"streams:\n  - {name: yard, source: " + clip + ", loop: true, model: colours}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP, cfg.GRPC, cfg.Log.Level = "127.0.0.1:0", "off", "error"
	slog.SetDefault(slog.New(slog.DiscardHandler))
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if st := s.Memory().Stats(); st.Leases != 0 || st.Leased != 0 {
			t.Errorf("%d leases of %d bytes are left", st.Leases, st.Leased)
		}
	}()
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}

	call, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(call, http.MethodGet, "http://"+s.Addr("http")+"/v2/streams/yard/results",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		t.Fatalf("%s: %s", res.Status, text)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	seen := 0
	for seen < 10 && lines.Scan() {
		line, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok || !strings.Contains(line, `"boxes"`) {
			continue
		}
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		boxes, classes := r.numbers("boxes"), r.numbers("classes")
		want := []float64{64, 64, 160, 192, 400, 320, 528, 384}
		if len(boxes) != 8 || len(classes) != 2 || classes[0] != 0 || classes[1] != 4 {
			t.Fatalf("got %s", line)
		}
		for i := range want {
			if math.Abs(boxes[i]-want[i]) > 16 { // one cell is 16 pixels of the video
				t.Fatalf("got the boxes %v, want %v", boxes, want)
			}
		}
		seen++
	}
	if seen < 10 {
		t.Errorf("there were %d results: %v", seen, lines.Err())
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
