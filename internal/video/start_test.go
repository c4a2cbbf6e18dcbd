package video

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/video/videotest"
)

// numbered returns a clip of videotest.Numbered, 320x64.
func numbered(t testing.TB, n, key, bframes int, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "numbered.mp4")
	if err := videotest.Numbered(path, 320, 64, n, key, bframes, more...); err != nil {
		t.Fatal(err)
	}
	return path
}

// number returns the number in a grey frame of a numbered clip.
func number(f Frame) int { return videotest.Number(func(x, y int) byte { return f.Data[320*y+x] }) }

// The first frame of a camera is the first key frame sent, and no later frame is missing, repeated or out of order,
// even with B-frames and with parameter sets only before key frames. There is one connection.
func TestCameraBeginsWithTheKeyFrame(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a camera's key frames")
	}
	const key, length = 15, 150
	plain, reordered := numbered(t, length, key, 0), numbered(t, length, key, 2)
	for _, c := range []struct {
		name, clip, options, transport string
	}{
		{"tcp", plain, "", "tcp"},
		{"parameter sets in the description", plain, "sprop", "tcp"},
		{"udp", plain, "udp", "udp"},
		{"B-frames", reordered, "", "tcp"},
		{"B-frames, parameter sets in the description", reordered, "sprop", "tcp"},
		{"B-frames, udp", reordered, "udp", "udp"},
		{"secret", plain, "", "tcp"},
		{"secret, B-frames", reordered, "", "tcp"},
		{"secret, B-frames, parameter sets in the description", reordered, "sprop", "tcp"},
		{"secret, B-frames, udp", reordered, "udp", "udp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			camera := videotest.RunCamera(t, c.clip, strings.Fields(c.options)...)
			address, fps := "rtsp://"+camera.Addr, 25.0
			if strings.HasPrefix(c.name, "secret") {
				address, fps = address+"?token=geheim", 0 // the rate is measured
			}
			r := open(t, Options{URL: address, Format: Gray, InputArgs: []string{"-rtsp_transport", c.transport},
				FFprobe: "/no/such/ffprobe"})
			if i := r.Info(); i.Width != 320 || i.Height != 64 || i.SourceWidth != 320 || i.SourceHeight != 64 ||
				i.Codec != "h264" || i.FPS != fps || i.Duration != 0 {
				t.Errorf("%+v", i)
			}
			var got []int
			for len(got) < 3*key {
				f, err := r.Next(make([]byte, r.FrameSize()))
				if err != nil {
					t.Fatal(err)
				}
				if len(got) == 0 && f.PTS != 0 {
					t.Errorf("the first frame has the time %v", f.PTS)
				}
				got = append(got, number(f))
			}
			if i := r.Info(); i.FPS != 25 {
				t.Errorf("%v fps", i.FPS)
			}
			want := slices.Clone(got)
			for i := range want {
				want[i] = (got[0] + i) % length
			}
			if got[0]%key != 0 || !slices.Equal(got, want) {
				t.Errorf("frames %v", got)
			}
			if n := camera.Clients(); n != 1 {
				t.Errorf("%d connections", n)
			}
			_ = r.Close()
			if child.LiveChildren() != 0 {
				t.Errorf("%d children left", child.LiveChildren())
			}
		})
	}
}

// A program that sends video at playback speed is not analysed for ffmpeg's default of five seconds: two seconds of
// video are enough to begin.
func TestProgramBeginsSoon(t *testing.T) {
	for _, format := range []string{"mpegts", "flv", "h264"} {
		path := clip(t, "live."+format, "-i", sample(t), "-c", "copy", "-f", format)
		r := open(t, Options{URL: "exec:sh -c 'cat " + path + "; exec sleep 1000'"})
		if f, err := r.Next(make([]byte, r.FrameSize())); err != nil || f.Width != 320 || f.Height != 240 {
			t.Errorf("%s: %d x %d, %v", format, f.Width, f.Height, err)
		}
		_ = r.Close()
	}
}

// When a camera or the network has held pictures back, all are decoded, and all but the last are late. Later, a
// picture is late only if another picture came much later than usual, as on a busy machine.
func TestOldFramesAreLate(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a camera")
	}
	const key, length, old = 10, 150, 40
	camera := videotest.RunCamera(t, numbered(t, length, key, 0))
	r := open(t, Options{URL: "rtsp://" + videotest.Hold(t, camera.Addr, old), Format: Gray})
	keepOutput(t, r, old*3/4)
	var got []int
	prefix := 0 // number of late frames at the beginning
	least, before := time.Duration(math.MaxInt64), false
	for i := range 3 * old {
		f, err := r.Next(make([]byte, r.FrameSize()))
		if err != nil {
			t.Fatal(err)
		}
		lag := time.Since(r.opened) - f.PTS
		late := r.Late()
		switch {
		case late && prefix == i:
			prefix++
		case late && !before && lag < least+lagAllowed-20*time.Millisecond:
			t.Errorf("frame %d is late, after %d at the beginning: its lag is %v, and was %v", i, prefix, lag, least)
		}
		before = late
		least = min(least, lag)
		got = append(got, number(f))
	}
	for i, n := range got {
		if n != (got[0]+i)%length {
			t.Fatalf("frames %v", got)
		}
	}
	if prefix < old/2 || prefix == len(got) {
		t.Errorf("%d are late at the beginning", prefix)
	}
}

// withTimes is an ffmpeg that reads n pictures at a rate instead of its input, with times from an expression of the
// filter setpts.
func withTimes(t *testing.T, rate, n int, times string) string {
	return program(t, fmt.Sprintf(`while [ $# -gt 0 ]; do [ "$1" = -vf ] && filters=$2; shift; done
exec ffmpeg -nostdin -loglevel level+verbose -f lavfi -i testsrc=size=64x48:rate=%d -frames:v %d -vf "setpts='%s',$filters" -enc_time_base -1 -fps_mode passthrough -pix_fmt nv12 -c:v rawvideo -flush_packets 1 -f nut pipe:1`,
		rate, n, times))
}

// A first frame whose time ffmpeg does not know (in one of 25 connections) comes one interval before the next frame.
func TestFirstFrameWithoutATime(t *testing.T) {
	r := open(t, Options{URL: "rtsp://127.0.0.1:9/", FFmpeg: withTimes(t, 25, 10, "if(N,(60+(N-1)/25)/TB,0)"),
		Format: NV12})
	dst := make([]byte, r.FrameSize())
	for i := range 4 {
		if f, err := r.Next(dst); err != nil || f.PTS != time.Duration(i)*time.Second/25 {
			t.Errorf("frame %d has the time %v, %v", i, f.PTS, err)
		}
	}
}

// The rate of a camera with a secret address is measured only from frames with certain times.
func TestRateAfterAFirstFrameWithoutATime(t *testing.T) {
	for _, fps := range []float64{0, 5} {
		r := open(t, Options{URL: "rtsp://127.0.0.1:9/?token=geheim",
			FFmpeg: withTimes(t, 5, 20, "if(N,(60+(N-1)/5)/TB,0)"), Format: NV12, FPS: fps})
		dst := make([]byte, r.FrameSize())
		for i := range 20 {
			f, err := r.Next(dst)
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 && f.PTS != time.Second/5 {
				t.Errorf("at most %v fps: the second frame has the time %v", fps, f.PTS)
			}
		}
		if got := r.Info().FPS; got != 5 {
			t.Errorf("at most %v fps: measured %v", fps, got)
		}
	}
}

// Whatever a source's times do, all frames come, and their times rise without a jump.
func TestWrongTimes(t *testing.T) {
	const n = 50
	for name, times := range map[string]string{
		"single, far ahead": "(N/25+60+37600*eq(mod(N,10),5))/TB",
		"single, far back":  "(N/25+50000-37600*eq(mod(N,10),5))/TB",
		"single, little":    "(N/25+60+3*eq(mod(N,10),5))/TB",
		"single, less":      "(N/25+60+0.1*eq(mod(N,10),5))/TB",
		"two of ten":        "(N/25+60+5000*gte(mod(N,10),8))/TB",
		"set ahead":         "(N/25+60+7200*gte(N,20))/TB",
		"set back":          "(N/25+50000-7200*gte(N,20))/TB",
		"set back often":    "(mod(N,10)/25+60)/TB",
		"RTP wraps":         "(mod(N/25+47720,47721.858)+60)/TB",
		"MPEG-TS wraps":     "(mod(N/25+95442,95443.717)+60)/TB",
		"standing":          "(min(N,20)/25+60)/TB",
		"standing at times": "((N-mod(N,10))/25+60)/TB",
		"none":              "NAN",
		"random":            "(60+1e6*random(0))/TB",
	} {
		for _, source := range []string{"rtsp://127.0.0.1:9/", "rtmp://127.0.0.1:9/live", "exec:printf x"} {
			t.Run(name+" "+source[:4], func(t *testing.T) {
				t.Parallel()
				r, err := Open(t.Context(), Options{URL: source, FFmpeg: withTimes(t, 25, n, times), Format: NV12})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				dst, last := make([]byte, r.FrameSize()), -time.Nanosecond
				for i := range n {
					f, err := r.Next(dst)
					if err != nil {
						t.Fatalf("frame %d of %d: %v", i, n, err)
					}
					// A test may stop for long, but not for an hour; a recording may have gaps of an hour.
					if step := f.PTS - last; step <= 0 || i > 0 && step > time.Hour+time.Minute {
						t.Fatalf("frame %d has the time %v, after %v", i, f.PTS, last)
					}
					last = f.PTS
				}
			})
		}
	}
}

// ffmpeg reads a secret address as an entry of a script. Too large a picture is refused before memory is allocated,
// too.
func TestLargePicturesOfASecretAddress(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a camera's key frames")
	}
	large := clip(t, "large.mp4", "-f", "lavfi", "-i", "color=black:size=7680x4320:rate=5:duration=2", "-c:v",
		"libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "5")
	camera := videotest.RunCamera(t, large)
	measured := program(t, `ffmpeg "$@" 3<&3 & child=$!
trap 'kill $child' TERM
while kill -0 $child 2>/dev/null; do echo "[warning] $(grep VmHWM /proc/$child/status)" >&2; sleep 0.05; done
wait $child`)
	var most atomic.Int64
	log := func(line string) {
		var kb int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			most.Store(max(most.Load(), kb))
		}
	}
	_, err := Open(t.Context(), Options{URL: "rtsp://" + camera.Addr + "?token=geheim", Format: NV12,
		MaxPixels: 1 << 20, FFmpeg: measured, StartTimeout: time.Minute, Log: log})
	if KindOf(err) != TooLarge {
		t.Error(err)
	}
	if n := most.Load(); n == 0 || n > 120<<10 { // a picture has 50 MB, and H.264 keeps several
		t.Errorf("ffmpeg took %d kB", n)
	}
}
