package videotest

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

//go:embed camera.py
var camera string

// Numbered encodes n pictures of w by h, 25 a second, as H.264 in MP4, with a key frame every key pictures and
// bframes consecutive B-frames. A picture's number is in its upper left corner, see Number; w must be at least 256.
func Numbered(path string, w, h, n, key, bframes int, more ...string) error {
	args := []string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y",
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=%dx%d:rate=25,format=yuv420p", w, h),
		"-f", "lavfi", "-i", "color=black:size=256x16:rate=25,format=gray,geq=lum='16+219*mod(floor(N/pow(2,floor(X/" +
			"16))),2)',format=yuv420p",
		"-filter_complex", "[0][1]overlay=0:0", "-frames:v", fmt.Sprint(n), "-pix_fmt", "yuv420p", "-c:v", "libx264",
		"-preset", "ultrafast",
		"-x264-params", fmt.Sprintf("keyint=%d:min-keyint=%[1]d:scenecut=0:open-gop=0:bframes=%d:b-adapt=0", key,
			bframes)}
	args = append(append(args, more...), "-f", "mp4", "file:"+path)
	if said, err := exec.Command("ffmpeg", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ffmpeg %v: %w\n%s(is ffmpeg installed? apt-get install ffmpeg)", args, err, said)
	}
	return nil
}

// Number returns the number in a picture of Numbered: at returns the brightness of a
// pixel, from dark (under 128) to bright.
func Number(at func(x, y int) byte) (n int) {
	for bit := range 16 {
		if at(16*bit+8, 8) >= 128 {
			n |= 1 << bit
		}
	}
	return n
}

// Camera is an RTSP server that sends a clip in real time, see camera.py.
type Camera struct {
	Addr  string    // behind "rtsp://"
	Begun time.Time // when the first picture was taken

	clients atomic.Int32
	end     func()
}

// StartCamera starts a camera that sends a file of Numbered. camera.py describes the options.
func StartCamera(clip string, options ...string) (*Camera, error) {
	python, err := gstreamer()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(python, append([]string{"-c", camera, clip}, options...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := new(Camera)
	var said strings.Builder
	messages, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(messages); s.Scan(); {
			if s.Text() == "connected" {
				c.clients.Add(1)
			} else if said.Len() < 4096 {
				_, _ = said.WriteString(s.Text() + "\n")
			}
		}
	}()
	c.end = func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		<-read
		_ = cmd.Wait()
	}
	var port int
	var begun int64
	if _, err := fmt.Fscan(out, &port, &begun); err != nil {
		c.Stop()
		return nil, fmt.Errorf("the camera does not start: %w: %s", err, said.String())
	}
	c.Addr, c.Begun = fmt.Sprintf("127.0.0.1:%d/live", port), time.UnixMicro(begun)
	return c, nil
}

// Clients returns how many clients have connected so far.
func (c *Camera) Clients() int { return int(c.clients.Load()) }

// Stop kills the camera. Stop is idempotent, and for one goroutine.
func (c *Camera) Stop() {
	if c.end != nil {
		c.end()
		c.end = nil
	}
}

// RunCamera starts a camera and kills the camera at the end of the test. Without GStreamer the test is skipped.
func RunCamera(t *testing.T, clip string, options ...string) *Camera {
	t.Helper()
	if err := NoRTSP(); err != nil {
		t.Skip(err)
	}
	c, err := StartCamera(clip, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}
