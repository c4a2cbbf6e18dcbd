package codec

import (
	"os/exec"
	"testing"

	"millrace/internal/testneeds"
)

func TestContainer(t *testing.T) {
	for want, args := range map[string][]string{
		"WebM": {"-c:v", "libvpx", "-f", "webm", "-"},
		"MP4":  {"-c:v", "libx264", "-f", "mp4", "-movflags", "frag_keyframe+empty_moov", "-"},
		"":     {"-c:v", "libx264", "-f", "h264", "-"},
	} {
		b, err := exec.Command(testneeds.Program(t, "ffmpeg"),
			append([]string{"-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=5:d=1"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := Container(b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, picture := range []string{"\x00\x00\x00\x18ftypheic", "\x00\x00\x00\x18ftypavif", "", "\xff\xd8\xff\xe0"} {
		if got := Container([]byte(picture)); got != "" {
			t.Errorf("%q is %q", picture, got)
		}
	}
}
