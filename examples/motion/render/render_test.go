package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/examples/motion/truth"
	"millrace/internal/video"
)

func small() settings { return settings{Width: 160, Height: 120, Seconds: 4, FPS: 10, Seed: 1} }

func digest(t *testing.T, s settings) [32]byte {
	t.Helper()
	h := sha256.New()
	if _, err := render(t.Context(), s, h, io.Discard); err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

func TestSameSeedSamePictures(t *testing.T) {
	s := small()
	first := digest(t, s)
	if digest(t, s) != first {
		t.Error("the same settings gave other pictures")
	}
	s.Seed = 2
	if digest(t, s) == first {
		t.Error("another seed gave the same pictures")
	}
}

// Without noise, the pixels that differ from the lit background are exactly those that shapes cover: none may lie outside
// the boxes, and each box of a shape in front must be filled to its edges.
func TestBoxesHoldTheShapes(t *testing.T) {
	for seed := range uint64(3) {
		s := settings{Width: 320, Height: 240, Seconds: 4, FPS: 6, Seed: seed, quiet: true}
		p := newPainter(s)
		for i := range s.frames() {
			pixels, f := p.frame(i), describe(s, p.shapes, i)
			changed := func(x, y int) bool {
				for c := range 3 {
					j := (y*s.Width+x)*3 + c
					if want := math.Round(float64(p.background[j]) * light(f.T)); math.Abs(float64(pixels[j])-want) > 12 {
						return true
					}
				}
				return false
			}
			for y := range s.Height {
				for x := range s.Width {
					if changed(x, y) && !covered(f.Objects, float64(x)+0.5, float64(y)+0.5) {
						t.Fatalf("seed %d, frame %d: a shape at %d, %d lies in no box", seed, i, x, y)
					}
				}
			}
			front := f.Objects[len(f.Objects)-1] // nothing hides the last
			seen := truth.Box{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
			for y := int(front.Box[1]); y < int(math.Ceil(front.Box[3])); y++ {
				for x := int(front.Box[0]); x < int(math.Ceil(front.Box[2])); x++ {
					if changed(x, y) {
						seen = truth.Box{min(seen[0], float64(x)), min(seen[1], float64(y)), max(seen[2], float64(x+1)), max(seen[3], float64(y+1))}
					}
				}
			}
			for e := range seen {
				if math.Abs(seen[e]-front.Box[e]) > 4 {
					t.Fatalf("seed %d, frame %d: object %d is seen in %v; its box is %v", seed, i, front.ID, seen, front.Box)
				}
			}
		}
	}
}

func covered(objects []truth.Object, x, y float64) bool {
	for _, o := range objects {
		if x > o.Box[0]-1 && x < o.Box[2]+1 && y > o.Box[1]-1 && y < o.Box[3]+1 {
			return true
		}
	}
	return false
}

// The clip must contain what it is for, whatever the seed.
func TestTheSceneHasItsParts(t *testing.T) {
	for seed := range uint64(20) {
		s := settings{Width: 640, Height: 480, Seconds: 10, FPS: 30, Seed: seed}
		shapes := scene(s)
		stops, crossings, first, last := map[int]int{}, 0, map[int]int{}, map[int]int{}
		was := map[int]bool{}
		for i := range s.frames() {
			f := describe(s, shapes, i)
			for k, a := range f.Objects {
				if _, ok := first[a.ID]; !ok {
					first[a.ID] = i
				}
				last[a.ID] = i
				if was[a.ID] && !a.Moving {
					stops[a.ID]++
				}
				was[a.ID] = a.Moving
				for _, b := range f.Objects[k+1:] {
					if truth.IoU(a.Box, b.Box) > 0.05 {
						crossings++
					}
				}
			}
		}
		if stops[3] < 2 || stops[4] < 2 || len(stops) != 2 {
			t.Errorf("seed %d: stops %v; want shapes 3 and 4 to stop, twice at least, and no other", seed, stops)
		}
		if crossings == 0 {
			t.Errorf("seed %d: no two shapes meet", seed)
		}
		if first[7] < 60 || last[7] > 255 || first[1] != 0 || last[1] != 299 {
			t.Errorf("seed %d: the visitor is there from frame %d to %d", seed, first[7], last[7])
		}
	}
}

// The whole way: the program, its files, and the clip decoded again.
func TestProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-o", dir, "-seconds", "2", "-fps", "15", "-size", "320x240"}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	if strings.TrimSpace(stdout.String()) != filepath.Join(dir, "motion.mp4") || !strings.Contains(stderr.String(), "30 of 30 frames") {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left in the folder: %v", left)
	}
	tr, err := truth.Load(filepath.Join(dir, "motion.json"))
	if err != nil || len(tr.Frames) != 30 || tr.FPS != 15 {
		t.Fatalf("truth of %d frames, %v", len(tr.Frames), err)
	}
	r, err := video.Open(t.Context(), video.Options{URL: filepath.Join(dir, "motion.mp4"), StartTimeout: time.Minute, StallTimeout: time.Minute})
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
		{"-o x -fps 0", 2, "-fps is 0"},
		{"-o x -seconds -1", 2, "-seconds is -1"},
		{"-o x -seconds NaN", 2, "-seconds is NaN"},
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
	if code := run(t.Context(), []string{"-o", dir, "-ffmpeg", "millrace-no-ffmpeg"}, io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), "apt-get install ffmpeg") {
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
