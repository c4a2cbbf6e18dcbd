package video

import (
	"fmt"
	"strings"
	"testing"

	"millrace/internal/codec"
)

// rgb converts an NV12 frame to RGB24 with the workers' conversion.
func rgb(t *testing.T, f Frame) []byte {
	t.Helper()
	out := make([]byte, 3*f.Width*f.Height)
	var d codec.Decoder
	if _, err := d.Convert(f.Data, codec.NV12, f.Width, f.Height, codec.Target{}, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// difference returns the mean difference of two pictures, of 255.
func difference(a, b []byte) float64 {
	sum := 0
	for i := range a {
		sum += max(int(a[i]), int(b[i])) - min(int(a[i]), int(b[i]))
	}
	return float64(sum) / float64(len(a))
}

// Frames have the colours of ffmpeg's own conversion to RGB, in the source's size and in a smaller size, for every
// pixel format, range and matrix, for odd sizes, and for turned and interlaced pictures.
func TestColoursAreFFmpegs(t *testing.T) {
	if testing.Short() {
		t.Skip("reads many videos")
	}
	const w, h = 160, 120
	input := func(size string) []string {
		// smooth, as chroma has half the size
		return []string{"-f", "lavfi", "-i",
			"gradients=rate=10:duration=1:n=4:c0=red:c1=lime:c2=blue:c3=yellow:seed=7:speed=0.00001:size=" + size}
	}
	even := fmt.Sprintf("%dx%d", w, h)
	h264 := []string{"-c:v", "libx264", "-preset", "ultrafast", "-qp", "4"}
	tests := []struct {
		name string
		size string
		args []string
	}{
		{"420", even, append([]string{"-pix_fmt", "yuv420p"}, h264...)},
		{"422", even, append([]string{"-pix_fmt", "yuv422p"}, h264...)},
		{"444", even, append([]string{"-pix_fmt", "yuv444p"}, h264...)},
		{"10 bit", even, append([]string{"-pix_fmt", "yuv420p10le"}, h264...)},
		{"full range", even, append([]string{"-vf", "scale=out_range=pc", "-pix_fmt", "yuvj420p", "-color_range",
			"pc"}, h264...)},
		{"709", even, append([]string{"-vf", "scale=out_color_matrix=bt709", "-pix_fmt", "yuv420p", "-colorspace",
			"bt709", "-color_primaries", "bt709", "-color_trc", "bt709"}, h264...)},
		{"709 full range", even, append([]string{"-vf", "scale=out_color_matrix=bt709:out_range=pc", "-pix_fmt",
			"yuvj420p", "-colorspace", "bt709", "-color_range", "pc"}, h264...)},
		{"709 10 bit", even, append([]string{"-vf", "scale=out_color_matrix=bt709", "-pix_fmt", "yuv420p10le",
			"-colorspace", "bt709"}, h264...)},
		{"709 odd size", "161x119", append([]string{"-vf", "scale=out_color_matrix=bt709", "-pix_fmt", "yuv444p",
			"-colorspace", "bt709"}, h264...)},
		{"2020", even, append([]string{"-vf", "scale=out_color_matrix=bt2020", "-pix_fmt", "yuv420p10le",
			"-colorspace", "bt2020nc"}, h264...)},
		{"240m", even, append([]string{"-vf", "scale=out_color_matrix=smpte240m", "-pix_fmt", "yuv420p",
			"-colorspace", "smpte240m"}, h264...)},
		{"fcc", even, append([]string{"-vf", "scale=out_color_matrix=fcc", "-pix_fmt", "yuv420p", "-colorspace",
			"fcc"}, h264...)},
		{"601", even, append([]string{"-vf", "scale=out_color_matrix=bt601", "-pix_fmt", "yuv420p", "-colorspace",
			"smpte170m"}, h264...)},
		{"rgb", even, []string{"-c:v", "png"}},
		{"rgb in h264", even, []string{"-c:v", "libx264rgb", "-qp", "4"}},
		{"gray", even, append([]string{"-pix_fmt", "gray"}, h264...)},
		{"odd size", "161x119", append([]string{"-pix_fmt", "yuv444p"}, h264...)},
		{"interlaced", even, append([]string{"-pix_fmt", "yuv420p", "-flags", "+ildct+ilme", "-x264opts", "tff=1"},
			h264...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := clip(t, strings.ReplaceAll(tt.name, " ", "")+".mkv", append(input(tt.size), tt.args...)...)
			for _, needs := range [][]TargetSize{nil, {{Width: 64, Height: 48}}, {{Width: 63, Height: 63,
				Letterbox: true}}} {
				r := open(t, Options{URL: path, Format: NV12, Needs: needs})
				f, err := r.Next(make([]byte, r.FrameSize()))
				if err != nil {
					t.Fatal(err)
				}
				got := rgb(t, f)
				want := ffmpeg(t, "-i", path, "-frames:v", "1", "-vf",
					fmt.Sprintf("scale=%d:%d:flags=area+accurate_rnd+full_chroma_int", f.Width, f.Height), "-f",
					"rawvideo", "-pix_fmt", "rgb24", "-")
				if len(got) != len(want) {
					t.Fatalf("%d bytes, want %d", len(got), len(want))
				}
				most := 3.5 // another matrix or range costs 8
				if f.Width%2+f.Height%2 > 0 {
					most = 6 // the chroma of odd sides lies up to half a pixel beside the luma
				}
				if d := difference(got, want); d > most {
					t.Errorf("%d x %d: a mean difference of %.2f", f.Width, f.Height, d)
				}
				_ = r.Close()
			}
		})
	}
}

// Pictures above the limit are refused before memory is allocated, whether or not the size is known in advance.
func TestLargePicturesAreRefused(t *testing.T) {
	path := clip(t, "large.ts", "-f", "lavfi", "-i", "color=size=4000x2304:rate=1:duration=2", "-c:v", "mpeg2video",
		"-f", "mpegts")
	for _, url := range []string{path, "exec:cat " + path} {
		for _, pixels := range []int{1 << 20, 4000*2304 - 1} {
			refuse(t, Options{URL: url, Format: NV12, MaxPixels: pixels}, TooLarge,
				"(they have 4000 x 2304 pixels: raise limits.max_pixels to 9216000)")
		}
		_ = open(t, Options{URL: url, Format: NV12, MaxPixels: 4096 * 2304}).Close()
	}
}
