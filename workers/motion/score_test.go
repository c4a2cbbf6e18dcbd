package motion

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"millrace/internal/clip"
	"millrace/internal/clip/truth"
	"millrace/internal/testneeds"
	"millrace/internal/video"
)

// some returns only the first value in short mode.
func some[T any](list ...T) []T {
	if testing.Short() {
		return list[:1]
	}
	return list
}

// render draws a clip of moving shapes, as examples/motion/render does.
func render(t testing.TB, seed uint64) (file string, tr *truth.Truth) {
	t.Helper()
	dir := t.TempDir()
	file, err := clip.Write(t.Context(), clip.Settings{Width: 640, Height: 480, Seconds: 10, FPS: 30, Seed: seed},
		testneeds.Program(t, "ffmpeg"), dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	tr, err = truth.Load(filepath.Join(dir, "motion.json"))
	if err != nil {
		t.Fatal(err)
	}
	return file, tr
}

// score passes a clip to a detector with the settings, and compares the boxes from the first second on with the
// truth.
func score(t testing.TB, s Settings, clip string, tr *truth.Truth) (total truth.Score) {
	t.Helper()
	d, err := NewDetector(s)
	if err != nil {
		t.Fatal(err)
	}
	s = d.Settings()
	r, err := video.Open(context.Background(), video.Options{
		URL: clip, Width: s.Width, Height: s.Height, Format: video.Gray, StartTimeout: time.Minute,
		StallTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	sx, sy := float64(tr.Width)/float64(s.Width), float64(tr.Height)/float64(s.Height)
	gray := make([]byte, s.Width*s.Height)
	for {
		f, err := r.Next(gray)
		if errors.Is(err, io.EOF) {
			return total
		}
		if err != nil {
			t.Fatal(err)
		}
		var found []truth.Box
		for _, b := range d.Detect(f.Data) {
			found = append(found, truth.Box{float64(b.X1) * sx, float64(b.Y1) * sy, float64(b.X2) * sx,
				float64(b.Y2) * sy})
		}
		if at := tr.At(f.PTS.Seconds()); at != nil && f.PTS >= time.Second {
			total.Add(at, found)
		}
	}
}

// TestPrecisionAndRecall wants a little less than is reached: precision 0.89, 0.91 and
// 0.94, recall 0.80, 0.78 and 0.83. Most missed objects are hidden behind others.
func TestPrecisionAndRecall(t *testing.T) {
	for _, seed := range some[uint64](1, 2, 3) {
		clip, tr := render(t, seed)
		s := score(t, Settings{}, clip, tr)
		t.Logf("seed %d: precision %.3f, recall %.3f", seed, s.Precision(), s.Recall())
		if s.Precision() < 0.85 || s.Recall() < 0.75 {
			t.Errorf("seed %d: precision %.3f, recall %.3f: want 0.85 and 0.75", seed, s.Precision(), s.Recall())
		}
	}
}

// TestResolution checks the default settings, which are shares, at other sizes.
func TestResolution(t *testing.T) {
	if testing.Short() {
		t.Skip("renders another clip")
	}
	clip, tr := render(t, 1)
	for _, s := range some(Settings{Width: 240, Height: 180}, Settings{Width: 640, Height: 480}) {
		got := score(t, s, clip, tr)
		t.Logf("%dx%d: precision %.3f, recall %.3f", s.Width, s.Height, got.Precision(), got.Recall())
		if got.Precision() < 0.75 || got.Recall() < 0.65 {
			t.Errorf("%dx%d: precision %.3f, recall %.3f: want 0.75 and 0.65", s.Width, s.Height, got.Precision(),
				got.Recall())
		}
	}
}
