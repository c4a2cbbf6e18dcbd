package video

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// With KeyFrames, ffmpeg decodes only the key frames, each with its time; FPS selects among the key frames.
func TestKeyFramesOnly(t *testing.T) {
	path := clip(t, "keys.mp4", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30:duration=2", "-c:v", "libx264",
		"-preset", "veryfast", "-pix_fmt", "yuv420p",
		"-x264-params", "keyint=10:min-keyint=10:scenecut=0:open-gop=0:bframes=3")
	var keys []time.Duration
	for i := range 6 {
		keys = append(keys, time.Duration(i)*time.Second/3)
	}
	intra := clip(t, "intra.avi", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30:duration=2", "-c:v", "mjpeg")
	for _, tt := range []struct {
		name    string
		o       Options
		decoded int
		want    []time.Duration // nil: all
	}{
		{"all frames", Options{URL: path}, 60, nil},
		{"key frames", Options{URL: path, KeyFrames: true}, 6, keys},
		{"key frames of a program", Options{URL: "exec:ffmpeg -nostdin -v error -i " + path + " -c copy -f mpegts -",
			KeyFrames: true}, 6, keys},
		{"one a second of them", Options{URL: path, KeyFrames: true, FPS: 1}, 6, []time.Duration{keys[0], keys[3]}},
		{"pictures that depend on no other", Options{URL: intra, KeyFrames: true}, 60, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report := filepath.Join(t.TempDir(), "report")
			tt.o.FFmpeg = program(t, fmt.Sprintf(`FFREPORT=file=%s:level=40 exec ffmpeg "$@"`, report))
			tt.o.Format, tt.o.Needs = NV12, []TargetSize{{Width: 16, Height: 16}}
			r := open(t, tt.o)
			var got []time.Duration
			for dst := make([]byte, r.FrameSize()); ; {
				f, err := r.Next(dst)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, f.PTS.Round(time.Millisecond))
			}
			_ = r.Close()
			for i, at := range tt.want {
				tt.want[i] = at.Round(time.Millisecond)
			}
			if tt.want == nil && len(got) != 60 || tt.want != nil && !slices.Equal(got, tt.want) {
				t.Errorf("frames at %v, want %v", got, tt.want)
			}
			text, err := os.ReadFile(report)
			if want := fmt.Sprintf("; %d frames decoded", tt.decoded); err != nil ||
				!strings.Contains(string(text), " 60 packets read") || !strings.Contains(string(text), want) {
				t.Errorf("want 60 packets%s: %v in %s", want, err, text)
			}
		})
	}
}
