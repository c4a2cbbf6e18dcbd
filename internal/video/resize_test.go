package video

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"millrace/internal/codec"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// Frames of a consumer's need are not scaled again by package codec.
func TestNeed(t *testing.T) {
	for _, tt := range []struct {
		need TargetSize
		w, h int
		want [2]int
	}{
		{TargetSize{}, 1280, 720, [2]int{1280, 720}},
		{TargetSize{Width: 320, Height: 240}, 1280, 720, [2]int{320, 240}},
		{TargetSize{Width: 320, Height: 240}, 300, 720, [2]int{300, 240}},
		{TargetSize{Width: 640, Height: 640, Letterbox: true}, 1280, 720, [2]int{640, 360}},
		{TargetSize{Width: 640, Height: 640, Letterbox: true}, 720, 1280, [2]int{360, 640}},
		{TargetSize{Width: 640, Height: 640, Letterbox: true}, 320, 240, [2]int{320, 240}},
		{TargetSize{Width: 4, Height: 4, Letterbox: true}, 1000, 1, [2]int{4, 1}},
	} {
		if w, h := tt.need.In(tt.w, tt.h); [2]int{w, h} != tt.want {
			t.Errorf("%+v of %d x %d: %d x %d, want %v", tt.need, tt.w, tt.h, w, h, tt.want)
		}
	}
	if w, h := Largest(1280, 720, []TargetSize{{Width: 320, Height: 240}, {Width: 416, Height: 416,
		Letterbox: true}}); w !=
		416 || h != 240 {
		t.Errorf("the largest is %d x %d", w, h)
	}
	if w, h := Largest(1280, 720, nil); w != 1280 || h != 720 {
		t.Errorf("without needs it is %d x %d", w, h)
	}
	same := func(w, h, tw, th uint16) bool {
		sw, sh := int(w%2000)+1, int(h%2000)+1
		n := TargetSize{Width: int(tw%700) + 1, Height: int(th%700) + 1, Letterbox: true}
		nw, nh := n.In(sw, sh)
		to := codec.Target{Width: n.Width, Height: n.Height, Color: codec.Gray, Fit: codec.Letterbox, SourceWidth: sw,
			SourceHeight: sh}
		var d codec.Decoder
		placed, err := d.Convert(make([]byte, codec.Gray8.Size(nw, nh)), codec.Gray8, nw, nh, to,
			make([]byte, n.Width*n.Height))
		if err != nil {
			t.Fatal(err)
		}
		// The picture in the target is as large as the frame, unless the source is smaller.
		return nw == sw || nh == sh || math.Abs(placed.ScaleX*float64(nw)-float64(sw)) < 1e-6 &&
			math.Abs(placed.ScaleY*float64(nh)-float64(sh)) < 1e-6
	}
	if err := quick.Check(same, &quick.Config{MaxCount: 300}); err != nil {
		t.Error(err)
	}
}

// resizing reads a source until each size has occurred, and checks all frames.
func resizing(t *testing.T, o Options, full [2]int, step time.Duration) {
	small := []TargetSize{{Width: 96, Height: 64}}
	o.Format, o.Needs = NV12, small
	r := open(t, o)
	defer r.Close()
	if i := r.Info(); [2]int{i.Width, i.Height} != full {
		t.Fatalf("the picture has %d x %d pixels, want %v", i.Width, i.Height, full)
	}
	dst := make([]byte, r.FrameSize())
	last := -step
	until := func(w, h int) {
		t.Helper()
		for range 600 {
			f, err := r.Next(dst)
			if err != nil {
				t.Fatal(err)
			}
			if gap := f.PTS - last; gap > step+time.Millisecond || gap <= 0 {
				t.Fatalf("frame %d is %v after the one before, want %v", f.Index, gap, step)
			}
			last = f.PTS
			if len(f.Data) != NV12.size(f.Width, f.Height) {
				t.Fatalf("%d bytes for %d x %d", len(f.Data), f.Width, f.Height)
			}
			if f.Width == w && f.Height == h {
				return
			}
		}
		t.Fatalf("no frame of %d x %d", w, h)
	}
	until(96, 64)
	for range 2 {
		r.Resize(nil)
		until(full[0], full[1])
		r.Resize(append(small, TargetSize{Width: 100, Height: 30, Letterbox: true}))
		until(96, 64)
		r.Resize([]TargetSize{{Width: 160, Height: 48}})
		r.Resize([]TargetSize{{Width: 64, Height: 100}}) // before the previous Resize has taken effect
		until(64, 100)
		r.Resize(small)
		until(96, 64)
	}
}

// flushing flushes each write.
type flushing struct{ http.ResponseWriter }

func (w flushing) Write(b []byte) (int, error) {
	defer w.ResponseWriter.(http.Flusher).Flush()
	return w.ResponseWriter.Write(b)
}

// Frames change size while the source is read, and no frame is lost: for a file, for a program (its output is not on
// standard input), and over the network, also through the proxy and the relay and from secret addresses.
func TestResize(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		path := clip(t, "resize.mp4", "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=100:duration=20", "-c:v",
			"libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
		resizing(t, Options{URL: path, Realtime: true}, [2]int{320, 240}, 10*time.Millisecond)
	})
	t.Run("exec", func(t *testing.T) {
		t.Parallel()
		resizing(t, Options{URL: "exec:ffmpeg -nostdin -v error -re -f lavfi -i testsrc=size=321x241:rate=50 -c:v " +
			"ffv1 -f nut -"}, [2]int{321, 241}, 20*time.Millisecond)
	})
	// ffmpeg computes one side from the other side: a command for one side must not change both.
	for name, o := range map[string]Options{"exec, width": {Width: 160}, "exec, height": {Height: 120}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.URL = "exec:ffmpeg -nostdin -v error -re -f lavfi -i testsrc=size=321x241:rate=50 -c:v ffv1 -f nut -"
			resizing(t, o, [2]int{160, 120}, 20*time.Millisecond)
		})
	}
	if testing.Short() {
		return
	}
	path := filepath.Join(t.TempDir(), "clip.mp4")
	if err := videotest.Numbered(path, 320, 240, 1000, 10, 0); err != nil {
		t.Fatal(err)
	}
	anywhere := func(netip.Addr) error { return nil }
	t.Run("rtsp", func(t *testing.T) {
		t.Parallel()
		camera := videotest.RunCamera(t, path)
		for name, o := range map[string]Options{
			"direct":        {URL: "rtsp://" + camera.Addr},
			"relay":         {URL: "rtsp://" + camera.Addr, Allow: anywhere},
			"secret":        {URL: "rtsp://me:geheim@" + camera.Addr},
			"secret, relay": {URL: "rtsp://me:geheim@" + camera.Addr, Allow: anywhere},
		} {
			t.Run(name, func(t *testing.T) { resizing(t, o, [2]int{320, 240}, 40*time.Millisecond) })
		}
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if _, password, _ := q.BasicAuth(); password != "geheim" {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			cmd := exec.CommandContext(q.Context(), testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-re",
				"-i", path, "-c", "copy", "-f", "mpegts", "-flush_packets", "1", "-")
			cmd.Stdout = flushing{w}
			_ = cmd.Run() // until the reader leaves
		}))
		defer srv.Close()
		url := strings.Replace(srv.URL, "://", "://me:geheim@", 1)
		resizing(t, Options{URL: url}, [2]int{320, 240}, 40*time.Millisecond)
		resizing(t, Options{URL: url, Allow: anywhere}, [2]int{320, 240}, 40*time.Millisecond)
	})
}

// When a source changes its size or pixel format, ffmpeg forgets the commands. The commands are sent again.
func TestResizeSurvivesAChangeOfTheSource(t *testing.T) {
	if testing.Short() {
		t.Skip("reads six seconds of video at its own speed")
	}
	var parts []string
	for i, p := range []string{"size=320x240", "size=160x120", "size=320x240"} {
		part := clip(t, fmt.Sprintf("part%d.ts", i), "-f", "lavfi", "-i", "testsrc2=rate=50:duration=2:"+p, "-c:v",
			"libx264", "-preset", "ultrafast", "-bf", "0", "-output_ts_offset", fmt.Sprint(2*i), "-f", "mpegts")
		parts = append(parts, part)
	}
	path := clip(t, "changes.ts", "-i", "concat:"+strings.Join(parts, "|"), "-c", "copy", "-copyts", "-f", "mpegts")
	for _, tt := range []struct {
		name string
		o    Options
	}{
		{"file", Options{URL: path, Realtime: true}},
		// the size is unknown in advance
		{"exec", Options{URL: "exec:ffmpeg -nostdin -v error -re -i " + path + " -c copy -copyts -f mpegts -"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.o.Format, tt.o.Needs = NV12, []TargetSize{{Width: 64, Height: 48}}
			r := open(t, tt.o)
			r.Resize([]TargetSize{{Width: 128, Height: 96}})
			dst := make([]byte, 2*r.FrameSize())
			var sizes []string
			n := 0
			for ; ; n++ {
				f, err := r.Next(dst)
				if err != nil {
					if err != io.EOF {
						t.Error(err)
					}
					break
				}
				if s := fmt.Sprintf("%dx%d", f.Width, f.Height); len(sizes) == 0 || sizes[len(sizes)-1] != s {
					sizes = append(sizes, s)
				}
			}
			if n < 290 || sizes[len(sizes)-1] != "128x96" || len(sizes) < 5 || r.Info().Width != 320 {
				t.Errorf("%d frames of %v", n, sizes)
			}
		})
	}
}

// A source that turns from landscape to portrait keeps the number of bytes per frame; frames must not be read with
// rows of the wrong length. The left half of the pictures is white, the right half black.
func TestTheSourceTurns(t *testing.T) {
	part := func(size, offset string) string {
		return clip(t, size+".ts", "-f", "lavfi", "-i", "color=black:rate=25:duration=2:size="+size, "-vf",
			"drawbox=w=iw/2:color=white:t=fill",
			"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "0", "-output_ts_offset", offset,
			"-f", "mpegts")
	}
	wide, tall := part("320x240", "0"), part("240x320", "2")
	for _, tt := range []struct {
		name  string
		needs []TargetSize
	}{
		{"full", nil},
		{"reduced", []TargetSize{{Width: 64, Height: 48}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			command := "exec:ffmpeg -nostdin -v error -re -i concat:" + wide + "|" + tall +
				" -c copy -copyts -f mpegts -"
			r := open(t, Options{URL: command, Format: NV12, Needs: tt.needs,
				InputArgs: []string{"-analyzeduration", "200000"}})
			dst := make([]byte, r.FrameSize())
			for last := 0; ; {
				f, err := r.Next(dst)
				if err != nil {
					// Only the length of a reduced frame determines its size after the turn.
					if again := KindOf(err) == EndedEarly; again != (last == 320) || !again && err != io.EOF ||
						r.index < 45 {
						t.Errorf("after %d frames, the last %d wide: %v", r.index, last, err)
					}
					return
				}
				last = f.Width
				for y := range f.Height {
					if left, right := f.Data[y*f.Width], f.Data[(y+1)*f.Width-1]; left < 128 || right > 128 {
						t.Fatalf("frame %d of %d x %d has rows of the wrong length", f.Index, f.Width, f.Height)
					}
				}
			}
		})
	}
}

// Frames of an ffmpeg without commands keep their size. Reopening a source without an end would not help: the size is
// unknown before the first frame, so frames would have the full size again.
func TestWithoutCommandsTheSizeStays(t *testing.T) {
	path := program(t, `exec ffmpeg "$@" </dev/null`)
	logged := 0
	r := open(t,
		Options{URL: "exec:ffmpeg -nostdin -v error -f lavfi -i testsrc=size=64x48:rate=100 -c:v ffv1 -f nut -",
			Format: NV12,
			Needs:  []TargetSize{{Width: 16, Height: 16}}, FFmpeg: path, Log: func(line string) {
				if strings.Contains(line, "does not scale to 16 x 16") {
					logged++
				}
			}})
	dst := make([]byte, r.FrameSize())
	for range 3 * commandFrames {
		f, err := r.Next(dst)
		if err != nil || f.Width != 64 {
			t.Fatalf("%d x %d, %v", f.Width, f.Height, err)
		}
		r.scale.mu.Lock()
		r.scale.since = r.scale.since.Add(-commandTime)
		r.scale.mu.Unlock()
	}
	if logged != 1 {
		t.Errorf("logged %d times", logged)
	}
}

// A resizer tells the size of each frame, and gives up when the commands have no effect.
func TestResizer(t *testing.T) {
	var sent strings.Builder
	s := &resizer{format: NV12, commands: &sent}
	s.start(size{640, 360}, size{320, 180})
	s.resize(size{180, 320})
	at := func(w, h int) {
		t.Helper()
		if now, ok, err := s.frame(NV12.size(w, h)); !ok || err != nil || now != (size{w, h}) {
			t.Errorf("%v %v %v, want %d x %d", now, ok, err, w, h)
		}
	}
	at(320, 180)
	// 180 x 320 has as many bytes as 320 x 180.
	if got, want := sent.String(), "cscale@size -1 w 181\ncscale@size -1 h 320\n"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
	at(181, 180)
	at(181, 320)
	at(320, 180) // rebuilt
	at(181, 180)
	at(181, 320)
	at(181, 320)
	if _, ok, _ := s.frame(12345); ok {
		t.Error("a frame of a size that was not asked for")
	}
	s.resize(size{640, 360})
	for range commandFrames + 1 {
		at(181, 320)
	}
	s.since = s.since.Add(-2 * commandTime)
	at(181, 320)
	if !s.again {
		t.Error("the commands were not sent again")
	}
	for range commandFrames {
		at(181, 320)
	}
	s.since = s.since.Add(-2 * commandTime)
	if _, ok, err := s.frame(NV12.size(181, 320)); !ok || err == nil {
		t.Error("commands without an effect are no error")
	}
	at(181, 320)
}
