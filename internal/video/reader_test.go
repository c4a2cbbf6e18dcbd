package video

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
)

// all reads to the end.
func all(t testing.TB, r *Reader) (frames []Frame) {
	t.Helper()
	for {
		f, err := r.Next(make([]byte, r.FrameSize()))
		if err == io.EOF {
			return frames
		}
		if err != nil {
			t.Fatalf("frame %d: %v", len(frames), err)
		}
		if f.Index != len(frames) {
			t.Fatalf("frame %d has index %d", len(frames), f.Index)
		}
		frames = append(frames, f)
	}
}

// Pixels against ffmpeg's own raw output, times against ffprobe: both independent of our reading.
func TestFramesAndTimesAreExact(t *testing.T) {
	path := sample(t)
	want := times(t, path)
	formats := []Format{RGB24, Gray, NV12}
	if testing.Short() {
		formats = formats[:1]
	}
	for _, format := range formats {
		for _, served := range []bool{false, true} {
			url := path
			if served {
				s := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
				defer s.Close()
				url = s.URL + "/" + filepath.Base(path)
			}
			r := open(t, Options{URL: url, Format: format})
			raw := ffmpeg(t, "-i", path, "-f", "rawvideo", "-pix_fmt", string(format), "pipe:1")
			frames := all(t, r)
			if len(frames) != 60 || len(want) != 60 {
				t.Fatalf("%s: %d frames, ffprobe counts %d; want 60", format, len(frames), len(want))
			}
			for i, f := range frames {
				if d := f.PTS - want[i]; d < -time.Microsecond || d > time.Microsecond {
					t.Fatalf("%s: frame %d at %v; ffprobe says %v", format, i, f.PTS, want[i])
				}
				if !bytes.Equal(f.Data, raw[i*r.FrameSize():(i+1)*r.FrameSize()]) {
					t.Fatalf("%s: frame %d differs from ffmpeg's raw output", format, i)
				}
			}
			info := r.Info()
			if info.Width != 320 || info.Height != 240 || !info.HasVideo {
				t.Errorf("Info = %+v", info)
			}
			if info.FPS != 30 || info.Codec != "h264" || info.SourceWidth != 320 || info.SourceHeight != 240 ||
				info.Duration != 2*time.Second {
				t.Errorf("Info = %+v", info)
			}
			if _, err := r.Next(make([]byte, r.FrameSize())); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
		}
	}
}

func TestVariableRateKeepsItsTimes(t *testing.T) {
	path := clip(t, "vfr.mkv", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30:duration=2",
		"-vf", "select='not(mod(n,3))+lt(n,10)'", "-vsync", "vfr", "-c:v", "libx264", "-pix_fmt", "yuv420p")
	want := times(t, path)
	frames := all(t, open(t, Options{URL: path}))
	if len(frames) != len(want) || len(want) < 20 {
		t.Fatalf("%d frames; ffprobe counts %d", len(frames), len(want))
	}
	for i, f := range frames {
		if d := f.PTS - want[i]; d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("frame %d at %v; want %v", i, f.PTS, want[i])
		}
	}
}

func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("starts FFmpeg many times")
	}
	path := sample(t)
	for _, c := range []struct{ w, h, gotW, gotH int }{{128, 96, 128, 96}, {160, 0, 160, 120}, {0, 60, 80, 60},
		{33, 17, 33, 17}} {
		for _, format := range []Format{RGB24, Gray, NV12} {
			r := open(t, Options{URL: path, Width: c.w, Height: c.h, Format: format})
			if i := r.Info(); i.Width != c.gotW || i.Height != c.gotH || i.SourceWidth != 320 || i.SourceHeight != 240 {
				t.Errorf("%dx%d: Info = %+v", c.w, c.h, i)
			}
			if n := len(all(t, r)); n != 60 {
				t.Errorf("%dx%d %s: %d frames; want 60", c.w, c.h, format, n)
			}
		}
	}
}

func TestRateCapDropsAndNeverRepeats(t *testing.T) {
	path := sample(t)
	for _, c := range []struct {
		fps  float64
		want int
	}{{10, 20}, {15, 30}, {20, 40}, {30, 60}, {60, 60}, {1, 2}} {
		r := open(t, Options{URL: path, FPS: c.fps, Width: 32, Height: 24})
		frames := all(t, r)
		if len(frames) != c.want {
			t.Errorf("at most %g a second: %d frames; want %d", c.fps, len(frames), c.want)
		}
		for i := 1; i < len(frames); i++ {
			if frames[i].PTS <= frames[i-1].PTS {
				t.Errorf("at most %g a second: frame %d at %v after %v", c.fps, i, frames[i].PTS, frames[i-1].PTS)
			}
		}
		if got := r.Info().FPS; got != min(c.fps, 30) {
			t.Errorf("Info().FPS = %v with a cap of %v", got, c.fps)
		}
	}
}

func TestLoopGoesOnWithRisingTimes(t *testing.T) {
	r := open(t, Options{URL: sample(t), Loop: true, Width: 32, Height: 24})
	dst := make([]byte, r.FrameSize())
	last := time.Duration(-1)
	for i := range 150 {
		f, err := r.Next(dst)
		if err != nil || f.PTS <= last {
			t.Fatalf("frame %d: %v after %v, %v", i, f.PTS, last, err)
		}
		last = f.PTS
	}
}

func TestRotationIsApplied(t *testing.T) {
	turned := clip(t, "turned.mp4", "-i", sample(t), "-c", "copy", "-metadata:s:v", "rotate=90")
	r := open(t, Options{URL: turned})
	if i := r.Info(); i.Width != 240 || i.Height != 320 || i.SourceWidth != 240 || i.SourceHeight != 320 {
		t.Errorf("Info = %+v; want 240 x 320", i)
	}
	if n := len(all(t, r)); n != 60 {
		t.Errorf("%d frames; want 60", n)
	}
}

func TestSizeChangeInMidStreamIsScaled(t *testing.T) {
	small := clip(t, "s.ts", "-f", "lavfi", "-i", "testsrc2=size=160x120:rate=30:duration=1", "-c:v", "mpeg2video")
	large := clip(t, "l.ts", "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=30:duration=1", "-output_ts_offset", "1",
		"-c:v", "mpeg2video")
	a, err1 := os.ReadFile(small)
	b, err2 := os.ReadFile(large)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	path := filepath.Join(t.TempDir(), "both.ts")
	if err := os.WriteFile(path, append(a, b...), 0o600); err != nil {
		t.Fatal(err)
	}
	frames := all(t, open(t, Options{URL: path}))
	if len(frames) < 58 || len(frames[len(frames)-1].Data) != 160*120*3 {
		t.Errorf("%d frames, the last of %d bytes", len(frames), len(frames[len(frames)-1].Data))
	}
}

func TestJPEGFrames(t *testing.T) {
	sizes := map[int]int{}
	for _, quality := range []int{20, 95} {
		r := open(t, Options{URL: sample(t), Encoded: MJPEG, Quality: quality, Width: 160, Height: 120})
		if r.FrameSize() != 0 {
			t.Errorf("FrameSize = %d; want 0, JPEG varies", r.FrameSize())
		}
		var dst []byte
		n := 0
		for {
			f, err := r.Next(dst)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			img, err := jpeg.Decode(bytes.NewReader(f.Data))
			if err != nil || img.Bounds() != image.Rect(0, 0, 160, 120) {
				t.Fatalf("frame %d: %v", n, err)
			}
			sizes[quality] += len(f.Data)
			dst = f.Data
			n++
		}
		if n != 60 {
			t.Errorf("%d pictures; want 60", n)
		}
	}
	if sizes[95] < 2*sizes[20] {
		t.Errorf("quality 20 takes %d bytes, quality 95 %d", sizes[20], sizes[95])
	}
}

// The colours must survive the way through JPEG: a wrong range shows as a shift of some 16 levels.
func TestJPEGRangeIsRight(t *testing.T) {
	path := clip(t, "flat.mp4", "-f", "lavfi", "-i", "color=c=0x404040:size=64x64:rate=10:duration=1", "-c:v",
		"libx264", "-pix_fmt", "yuv420p")
	f, err := open(t, Options{URL: path, Encoded: MJPEG, Quality: 95}).Next(nil)
	if err != nil {
		t.Fatal(err)
	}
	img, err := jpeg.Decode(bytes.NewReader(f.Data))
	if err != nil {
		t.Fatal(err)
	}
	r, g, b, _ := img.At(32, 32).RGBA()
	for _, v := range []uint32{r >> 8, g >> 8, b >> 8} {
		if v < 0x3c || v > 0x44 {
			t.Errorf("grey 0x40 became %02x %02x %02x", r>>8, g>>8, b>>8)
			break
		}
	}
}

func TestJPEGBound(t *testing.T) {
	r := open(t, Options{URL: sample(t), Encoded: MJPEG, MaxFrameBytes: 1000})
	if _, err := r.Next(nil); KindOf(err) != Unsupported ||
		!strings.Contains(err.Error(), "MaxFrameBytes allows 1000") {
		t.Errorf("got %v", err)
	}
}

func TestShortBufferConsumesNoFrame(t *testing.T) {
	r := open(t, Options{URL: sample(t), Width: 32, Height: 24})
	if _, err := r.Next(make([]byte, 10)); err == nil || !strings.Contains(err.Error(), "needs 2304") {
		t.Errorf("got %v", err)
	}
	if frames := all(t, r); len(frames) != 60 {
		t.Errorf("%d frames after the refused one; want 60", len(frames))
	}
}

// A name must never be read as an option, a protocol, or a pattern.
func TestAwkwardFileNames(t *testing.T) {
	if testing.Short() {
		t.Skip("starts FFmpeg for every name")
	}
	data, err := os.ReadFile(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"-i.mp4", "-version", "12:30.mp4", "a b'c\"d.mp4", "%d.mp4", "ü,;=[x].mp4", "pipe:0",
		"concat:x|y.mp4"} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		urls := []string{"file:" + name, "./" + name}
		if !strings.HasPrefix(name, "pipe:") && !strings.HasPrefix(name, "concat:") {
			urls = append(urls, name)
		}
		for _, u := range urls {
			r, err := Open(t.Context(), Options{URL: u, Width: 32, Height: 24})
			if err != nil {
				t.Errorf("%q: %v", u, err)
				continue
			}
			if _, err := r.Next(make([]byte, r.FrameSize())); err != nil {
				t.Errorf("%q: %v", u, err)
			}
			_ = r.Close()
		}
	}
}

func TestExecSource(t *testing.T) {
	r := open(t, Options{URL: "exec:ffmpeg -nostdin -loglevel error -i '" + sample(t) + "' -c copy -f mpegts -",
		Width: 32, Height: 24})
	if n := len(all(t, r)); n != 60 {
		t.Errorf("%d frames; want 60", n)
	}
	_ = r.Close()

	// The program is stopped with the reader.
	r = open(t, Options{URL: "exec:ffmpeg -nostdin -loglevel error -stream_loop -1 -i '" + longSample(t) +
		"' -c copy -f mpegts -"})
	if _, err := r.Next(make([]byte, r.FrameSize())); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if child.LiveChildren() != 0 {
		t.Errorf("%d children left", child.LiveChildren())
	}

	_, err := Open(t.Context(), Options{URL: "exec:sh -c 'echo no camera >&2; exit 4'", StartTimeout: time.Minute})
	if KindOf(err) != EndedEarly || !strings.HasSuffix(err.Error(), "exit status 4)") || OutputOf(err) != "no camera" {
		t.Errorf("a program that fails: %v", err)
	}
	if _, err := Open(t.Context(), Options{URL: "exec:millrace-no-such-program --key x"}); KindOf(err) != NotFound {
		t.Errorf("missing program: %v", err)
	}
}

func TestCloseEndsABlockedNext(t *testing.T) {
	// The pipe to a program that sends a frame and then waits.
	path := sample(t)
	r := open(t, Options{URL: path, Realtime: true, Loop: true, Width: 32, Height: 24})
	blocked := make(chan error)
	go func() {
		dst := make([]byte, r.FrameSize())
		for {
			if _, err := r.Next(dst); err != nil {
				blocked <- err
				return
			}
		}
	}()
	_ = r.Close()
	if err := <-blocked; !errors.Is(err, ErrClosed) {
		t.Errorf("Next = %v; want ErrClosed", err)
	}
	if _, err := r.Next(make([]byte, r.FrameSize())); !errors.Is(err, ErrClosed) {
		t.Errorf("Next after Close = %v", err)
	}
	_ = r.Close()
}

func TestContextEndsTheReader(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := Open(ctx, Options{URL: longSample(t), StartTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	why := errors.New("the user left")
	cancel(why)
	dst := make([]byte, r.FrameSize())
	for err == nil {
		_, err = r.Next(dst)
	}
	if !errors.Is(err, why) {
		t.Errorf("Next = %v; want the context's cause", err)
	}
	if _, err := Open(ctx, Options{URL: longSample(t)}); !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Errorf("Open with an ended context = %v", err)
	}
}

func TestFiftyReadersLeakNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts fifty readers")
	}
	path, long := sample(t), longSample(t)
	cycle := func(i int) {
		o := Options{URL: path, Width: 32, Height: 24, StartTimeout: time.Minute}
		if i%2 == 1 {
			o.URL = long
		}
		if i%5 == 4 {
			o.Encoded = MJPEG
		}
		r, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		for range i % 3 {
			if _, err := r.Next(make([]byte, r.FrameSize())); err != nil {
				t.Fatal(err)
			}
		}
		_ = r.Close()
	}
	cycle(1)
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for i := range 50 {
		cycle(i)
		if child.LiveChildren() != 0 {
			t.Fatalf("cycle %d: %d children left", i, child.LiveChildren())
		}
	}
	if now := openFiles(t); now != files {
		t.Errorf("%d descriptors before, %d after", files, now)
	}
	// A goroutine about to end may still be counted; goleak checks again after all tests.
	for runtime.NumGoroutine() > goroutines && t.Context().Err() == nil {
		runtime.Gosched()
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	r := open(t, Options{URL: sample(t), Loop: true, Width: 32, Height: 24})
	dst := make([]byte, r.FrameSize())
	n := 1.0
	for try := 0; n != 0 && try < 5; try++ { // allocations of other goroutines count, too
		n = testing.AllocsPerRun(200, func() {
			if _, err := r.Next(dst); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n != 0 {
		t.Errorf("%v allocations a frame; want 0", n)
	}
}

func BenchmarkNext(b *testing.B) {
	path := longSample(b)
	for name, o := range map[string]Options{
		"rgb24 640x480": {URL: path, Loop: true},
		"rgb24 128x128": {URL: path, Loop: true, Width: 128, Height: 128},
		"mjpeg 640x480": {URL: path, Loop: true, Encoded: MJPEG},
	} {
		b.Run(name, func(b *testing.B) {
			r := open(b, o)
			dst := make([]byte, max(r.FrameSize(), 1<<20))
			for b.Loop() {
				if _, err := r.Next(dst); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

// grows is a program that writes 25 pictures of 160 x 120 pixels and then 25 of 320 x 240.
func grows(t *testing.T) string {
	var parts []string
	for i, size := range []string{"160x120", "320x240"} {
		parts = append(parts, clip(t, fmt.Sprintf("grows%d.ts", i), "-f", "lavfi", "-i",
			"testsrc2=rate=25:duration=1:size="+size, "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p",
			"-bf", "0",
			"-output_ts_offset", fmt.Sprint(i), "-f", "mpegts"))
	}
	return "exec:ffmpeg -nostdin -v error -i concat:" + strings.Join(parts, "|") + " -c copy -copyts -f mpegts -"
}

// Frames larger than the first frames have memory of their own, until the size of Info returns.
func TestTheSourceGrows(t *testing.T) {
	r := open(t, Options{URL: grows(t), Format: NV12, InputArgs: []string{"-analyzeduration", "200000"}})
	dst := make([]byte, r.FrameSize())
	n := map[string]int{}
	for {
		f, err := r.Next(dst)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Data) != NV12.size(f.Width, f.Height) {
			t.Errorf("%d bytes for %d x %d", len(f.Data), f.Width, f.Height)
		}
		n[fmt.Sprintf("%dx%d", f.Width, f.Height)]++
	}
	if r.index != 50 || n["320x240"] == 0 {
		t.Errorf("%d frames: %v", r.index, n)
	}
}

// A source is ended when its pictures grow beyond the limit, even if ffmpeg does not refuse the pictures.
func TestTheSourceGrowsTooLarge(t *testing.T) {
	for name, o := range map[string]Options{
		"raw":   {},
		"fixed": {Width: 64, Height: 48},
		"jpeg":  {Encoded: MJPEG},
	} {
		t.Run(name, func(t *testing.T) {
			o.URL, o.MaxPixels, o.InputArgs = grows(t), 160*120, []string{"-analyzeduration", "200000"}
			r := open(t, o)
			dst := make([]byte, r.FrameSize())
			for {
				_, err := r.Next(dst)
				if err != nil {
					if KindOf(err) != TooLarge {
						t.Errorf("after %d frames: %v", r.index, err)
					}
					return
				}
				// ffmpeg has written its message; another goroutine reads the message
				for r.index == 26 && r.said.rebuilt.Load() == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
}
