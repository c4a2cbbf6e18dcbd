package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/clip/truth"
	"millrace/internal/video"
)

// The whole program: its files, and the clip decoded again.
func TestProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-o", dir, "-seconds", "2", "-fps", "15", "-size", "320x240"}, &stdout,
		&stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	if strings.TrimSpace(stdout.String()) != filepath.Join(dir, "motion.mp4") ||
		!strings.Contains(stderr.String(), "30 of 30 frames") {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left in the folder: %v", left)
	}
	tr, err := truth.Load(filepath.Join(dir, "motion.json"))
	if err != nil || len(tr.Frames) != 30 || tr.FPS != 15 {
		t.Fatalf("truth of %d frames, %v", len(tr.Frames), err)
	}
	r, err := video.Open(t.Context(), video.Options{URL: filepath.Join(dir, "motion.mp4"), StartTimeout: time.Minute,
		StallTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if i := r.Info(); i.Width != 320 || i.Height != 240 || i.FPS != 15 || i.Codec != "h264" {
		t.Errorf("Info = %+v", i)
	}
	dst, n := make([]byte, r.FrameSize()), 0
	for ; ; n++ {
		f, err := r.Next(dst)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if at := tr.At(f.PTS.Seconds()); at == nil || at.Index != f.Index || math.Abs(at.T-f.PTS.Seconds()) > 1e-4 {
			t.Fatalf("frame %d at %v has the truth %+v", f.Index, f.PTS, at)
		}
	}
	if n != 30 {
		t.Errorf("%d frames; want 30", n)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--help", 0, "Examples:"},
		{"", 2, "-o DIR is missing"},
		{"-o x -size 640", 2, "-size is \"640\""},
		{"-o x -size 640x480x3", 2, "-size is"},
		{"-o x -size 641x480", 2, "even"},
		{"-o x -size 8x8", 2, "64 to 4096"},
		{"-o x -fps 0", 2, "fps is 0"},
		{"-o x -seconds -1", 2, "seconds is -1"},
		{"-o x -seconds NaN", 2, "seconds is NaN"},
		{"-o x -bad", 2, "bad"},
		{"-o x y", 2, "unexpected argument \"y\""},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr)
		if code != c.code || !strings.Contains(stdout.String()+stderr.String(), c.want) {
			t.Errorf("%q: status %d, %q%q; want %d, %q", c.args, code, &stdout, &stderr, c.code, c.want)
		}
	}
}

func TestFailuresLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-o", dir, "-ffmpeg", "millrace-no-ffmpeg"}, io.Discard,
		&stderr); code != 1 || !strings.Contains(stderr.String(), "apt-get install ffmpeg") {
		t.Errorf("status %d, %s", code, &stderr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"-o", dir}, io.Discard, io.Discard); code != 1 {
		t.Errorf("cancelled: status %d", code)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
