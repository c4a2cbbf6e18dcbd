package sources_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
)

// A camera with one frame per second is opened and read like other cameras; a camera with 240 loses no frame and
// keeps the times.
func TestRates(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	t.Run("1 a second", func(t *testing.T) {
		c := newCamera(t)
		c.wait.Store(int64(time.Second))
		r := run(t, video.Options{URL: c.URL}, sources.Options{})
		if st := r.frames(3); st.Restarts != 0 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
	const fast = "testsrc2=size=64x48:rate=240:duration=2"
	t.Run("240 a second", func(t *testing.T) {
		r := run(t, video.Options{URL: ffmpeg(t, "fast.mp4", "-f", "lavfi", "-i", fast, "-pix_fmt", "yuv420p")},
			sources.Options{})
		if err := r.wait(); err != nil || len(r.pts) != 480 {
			t.Fatalf("%d frames, %v", len(r.pts), err)
		}
		for i, at := range r.pts {
			if want := int64(i) * 1_000_000 / 240; at < want-2 || at > want+2 {
				t.Fatalf("frame %d has time %d, want %d", i, at, want)
			}
		}
	})
	t.Run("240 a second, live", func(t *testing.T) {
		r := run(t, video.Options{URL: "exec:ffmpeg -nostdin -v error -re -f lavfi -i " + fast +
			" -c:v mpeg2video -f mpegts -"}, sources.Options{Allow: once()})
		_ = r.wait()
		if st := r.Status(); st.Frames != 480 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func once() func(context.Context) error {
	opened := false
	return func(context.Context) error {
		if opened {
			return stream.Errorf(stream.PermissionDenied, "source", "once is enough")
		}
		opened = true
		return nil
	}
}

// part is a piece of video of 10 frames a second; pieces can be joined by appending bytes.
func part(t *testing.T, name, size string, frames int, args ...string) []byte {
	t.Helper()
	args = append([]string{"-f", "lavfi", "-i", "testsrc2=size=" + size + ":rate=10", "-frames:v", fmt.Sprint(frames),
		"-g", "10", "-bf", "0", "-pix_fmt", "yuv420p", "-strict", "-1"}, args...)
	b, err := os.ReadFile(ffmpeg(t, name, args...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBadStreams reads video with a change of size or clock, or with damage in the middle, from a file, a server and
// a program: all undamaged frames are read, in one size, and the times never decrease.
func TestBadStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	at := func(seconds string) []byte {
		return part(t, "a.ts", "160x120", 20, "-output_ts_offset", seconds)
	}
	spoiled := func(b []byte, from, n int) []byte {
		b = slices.Clone(b)
		copy(b[from:], garbage(n))
		return b
	}
	long := part(t, "a.ts", "160x120", 60)
	raw := part(t, "a.h264", "160x120", 60)
	for _, c := range []struct {
		name   string
		bytes  []byte
		frames int // at least
	}{
		{"H.264 of two sizes", slices.Concat(at("0"), part(t, "b.ts", "320x180", 20, "-output_ts_offset", "2"),
			at("4")), 58},
		{"MJPEG of two sizes", slices.Concat(part(t, "a.mjpeg", "160x120", 20), part(t, "b.mjpeg", "320x180", 20)), 40},
		{"a clock that jumps on", slices.Concat(at("0"), at("1000")), 38},
		{"a clock that jumps on a little", slices.Concat(at("0"), at("7")), 38},
		{"a clock that jumps back", slices.Concat(at("1000"), at("0")), 38},
		{"a clock that jumps back a little", slices.Concat(at("7"), at("0")), 38},
		// 33 bits of 90 kHz end at 95443.7
		{"a clock that wraps", part(t, "w.ts", "160x120", 100, "-output_ts_offset", "95437"), 98},
		{"garbage instead of a third", spoiled(long, len(long)/3, len(long)/3), 20},
		{"garbage in between", slices.Concat(at("0"), garbage(100_000), at("2")), 30},
		{"garbage in bare H.264", spoiled(raw, len(raw)/3, 2000), 30},
	} {
		path := filepath.Join(t.TempDir(), "video")
		if err := os.WriteFile(path, c.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		url := served(t, func(w http.ResponseWriter, q *http.Request) {
			http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(c.bytes))
		})
		for form, source := range map[string]string{"file": path, "http": url, "exec": "exec:cat " + path} {
			t.Run(c.name+", "+form, func(t *testing.T) {
				r := run(t, video.Options{URL: source}, sources.Options{Allow: once()})
				_ = r.wait()
				st := r.Status()
				if len(r.pts) < c.frames || len(r.sizes) != 1 || !slices.IsSorted(r.pts) {
					t.Errorf("%d frames, want %d; sizes %v, times %v; %+v", len(r.pts), c.frames, r.sizes, r.pts, st)
				}
				if form == "file" && (st.State != sources.Ended || st.Err != nil) {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// An incomplete file is read once: reading the file again would repeat frames.
func TestFileCutShort(t *testing.T) {
	whole, err := os.ReadFile(ffmpeg(t, "clip.mp4", append(moving("4"), "-movflags", "+faststart")...))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.mp4")
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, video.Options{URL: path}, sources.Options{})
	wantKind(t, r.wait(), video.EndedEarly)
	if st := r.Status(); st.State != sources.Failed || st.Restarts != 0 || st.Frames == 0 || st.Frames >= 40 {
		t.Errorf("%+v", st)
	}
}

// A jump of fifty minutes in the times of a file causes no wait.
func TestPacedOverAJump(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	path := ffmpeg(t, "jump.mkv", append(moving("2"), "-vf", "setpts=PTS+if(gte(N\\,10)\\,3000/TB\\,0)", "-fps_mode",
		"passthrough", "-c:v", "mjpeg")...)
	r := run(t, video.Options{URL: path}, sources.Options{Paced: func() bool { return true }})
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.pts); n != 20 || r.pts[n-1] < 3000_000_000 {
		t.Errorf("times %v", r.pts)
	}
}
