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

// ffmpeg decodes only the selected pictures, each with its time, and every other picture is counted as skipped; FPS
// selects among the decoded pictures.
func TestDecode(t *testing.T) {
	path := clip(t, "keys.mp4", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30:duration=2", "-c:v", "libx264",
		"-preset", "veryfast", "-pix_fmt", "yuv420p",
		"-x264-params", "keyint=10:min-keyint=10:scenecut=0:open-gop=0:bframes=1:b-adapt=0:b-pyramid=none")
	var keys []time.Duration
	for i := range 6 {
		keys = append(keys, time.Duration(i)*time.Second/3)
	}
	// pictures 1, 3, 5 and 7 of each ten are B-frames that no picture needs
	var reference []time.Duration
	for i := range 60 {
		if i%10 == 9 || i%2 == 0 {
			reference = append(reference, time.Duration(i)*time.Second/30)
		}
	}
	intra := clip(t, "intra.avi", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30:duration=2", "-c:v", "mjpeg")
	for _, tt := range []struct {
		name    string
		o       Options
		decoded int
		want    []time.Duration // nil: all
	}{
		{"all frames", Options{URL: path, Decode: DecodeAll}, 60, nil},
		{"reference frames", Options{URL: path, Decode: DecodeReference}, 36, reference},
		{"key frames", Options{URL: path, Decode: DecodeKey}, 6, keys},
		{"key frames, and packets", Options{URL: path, Decode: DecodeKey, Packets: func(Fragment) {}}, 6, keys},
		{"key frames of a program", Options{URL: "exec:ffmpeg -nostdin -v error -i " + path + " -c copy -f mpegts -",
			Decode: DecodeKey}, 6, keys},
		{"one a second of them", Options{URL: path, Decode: DecodeKey, FPS: 1}, 6, []time.Duration{keys[0], keys[3]}},
		{"pictures that depend on no other", Options{URL: intra, Decode: DecodeKey}, 60, nil},
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
				if n := r.Skipped(); n > 60-uint64(tt.decoded) {
					t.Errorf("%d pictures were skipped after %d frames", n, len(got))
				}
			}
			if n := r.Skipped(); n != 60-uint64(len(got)) {
				t.Errorf("%d pictures were skipped, %d frames", n, len(got))
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

// Pictures of each round of a looped video are counted, without warnings about the times of their packets.
func TestSkippedOfLoop(t *testing.T) {
	path := clip(t, "loop.mkv", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30:duration=2", "-c:v", "libx264",
		"-g", "10", "-bf", "3", "-pix_fmt", "yuv420p")
	r := open(t, Options{URL: path, Decode: DecodeKey, Format: NV12, Loop: true, Log: func(line string) {
		if strings.Contains(line, "DTS") {
			t.Error(line)
		}
	}})
	for dst := make([]byte, r.FrameSize()); r.Skipped() < 5*54; {
		if _, err := r.Next(dst); err != nil {
			t.Fatal(err)
		}
	}
}

// Of a source without an end, pictures are counted as skipped once they cannot become a frame any more.
func TestSkippedOfLiveSource(t *testing.T) {
	r := &Reader{pictures: &pictureCount{}, index: 10}
	for _, step := range []struct{ pictures, want uint64 }{{5, 0}, {10 + maxInside, 0}, {100, 90 - maxInside},
		{99, 90 - maxInside}} {
		r.pictures.n.Store(step.pictures)
		if n := r.Skipped(); n != step.want {
			t.Errorf("%d of %d pictures, want %d", n, step.pictures, step.want)
		}
	}
}
