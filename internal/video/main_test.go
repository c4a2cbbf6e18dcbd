package video

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/child"
	"millrace/internal/testneeds"
)

// clips are rendered once, by ffmpeg.
var clips struct {
	sync.Mutex
	dir string
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "millrace-video")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	clips.dir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		if child.LiveChildren() != 0 {
			fmt.Fprintln(os.Stderr, "children left:", child.LiveChildren())
			code = 1
		}
		os.Exit(code)
	}))
}

// ffmpeg runs the real program and returns its standard output.
func ffmpeg(t testing.TB, args ...string) []byte {
	t.Helper()
	return tool(t, "ffmpeg", append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y"}, args...)...)
}

func tool(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(testneeds.Program(t, name), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.String())
	}
	return out
}

// clip renders a file with a name's extension, once for the same arguments.
func clip(t testing.TB, name string, args ...string) string {
	t.Helper()
	clips.Lock()
	defer clips.Unlock()
	sum := sha256.Sum256([]byte(strings.Join(args, "\x00")))
	path := filepath.Join(clips.dir, hex.EncodeToString(sum[:6])+"-"+name)
	if _, err := os.Stat(path); err != nil {
		ffmpeg(t, append(args, "file:"+path)...)
	}
	return path
}

// sample is 2 s of 320x240 at 30 a second, H.264 with the index in front.
func sample(t testing.TB) string {
	return clip(t, "sample.mp4", "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=30:duration=2",
		"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-movflags", "+faststart")
}

// longSample returns a clip too long for any pipe, so that ffmpeg is still at work while a test looks.
func longSample(t testing.TB) string {
	return clip(t, "long.mp4", "-f", "lavfi", "-i", "testsrc2=size=640x480:rate=30:duration=10",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-movflags", "+faststart")
}

// open opens a source with long time-outs until the end of the test.
func open(t testing.TB, o Options) *Reader {
	t.Helper()
	o.Sandbox = o.confined()
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = time.Minute
	}
	r, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// times asks ffprobe, independently, for the presentation time of every frame.
func times(t testing.TB, path string) (list []time.Duration) {
	t.Helper()
	out := tool(t, "ffprobe", "-loglevel", "error", "-select_streams", "v", "-show_entries", "frame=pts_time", "-of",
		"csv=p=0", "file:"+path)
	for _, l := range strings.Fields(string(out)) {
		sec, err := strconv.ParseFloat(strings.Trim(l, ","), 64)
		if err != nil {
			t.Fatalf("ffprobe returned %q", l)
		}
		list = append(list, time.Duration(sec*float64(time.Second)))
	}
	return list
}

// confined reports whether ffmpeg can be confined in a test: a program of the test's own may write files.
func (o *Options) confined() bool { return o.FFmpeg == "" && child.SandboxError() == nil }

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
