package video

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
)

func TestCameraArgs(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "-protocol_whitelist file -f v4l2 -i /dev/video0"},
		{Options{Height: 240}, "-f v4l2 -i /dev/video0"},
		{Options{Width: 320, Height: 240, FPS: 7.5}, "-f v4l2 -video_size 320x240 -framerate 7.5 -i /dev/video0"},
	} {
		c.o.URL = "/dev/video0"
		o, err := c.o.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.ffmpegArgs(&route{scheme: SchemeV4L2, target: "/dev/video0", address: "/dev/video0"},
			"", o.Width, o.Height), " "); !strings.Contains(got, c.want) {
			t.Errorf("%s; want %s", got, c.want)
		}
	}
}

// TestCameraFailures opens devices that are no cameras with the real ffmpeg. The test needs no camera and no kernel
// module.
func TestCameraFailures(t *testing.T) {
	refuse(t, Options{URL: "/dev/video9999"}, NotFound,
		"nothing at this address (no such file; is the camera connected?")
	refuse(t, Options{URL: "v4l2:/dev/null", Width: 64, Height: 48, FPS: 5}, NotVideo, "lower number")
	for text, want := range map[string]Kind{
		"[video4linux2,v4l2 @ 0x1] ioctl(VIDIOC_STREAMON): Device or resource busy":                      Busy,
		"[video4linux2,v4l2 @ 0x1] Cannot open video device /dev/video0: Permission denied":              Auth,
		"[video4linux2,v4l2 @ 0x1] Not a video capture device.\n/dev/video1: No such device":             NotVideo,
		"[video4linux2,v4l2 @ 0x1] ioctl(VIDIOC_DQBUF): No such device":                                  NotFound,
		"[video4linux2,v4l2 @ 0x1] Cannot open video device /dev/video0: No such file or directory\nx\n": NotFound,
	} {
		if f, _ := failureIn(text); f.kind != want {
			t.Errorf("%q is %s, want %s", text, f.kind, want)
		}
	}
}

// ffmpeg ends with status 0 when a camera is unplugged. Here a script writes real frames and then ffmpeg's message.
func TestUnplugged(t *testing.T) {
	script := filepath.Join(t.TempDir(), "ffmpeg")
	text := `#!/bin/sh
ffmpeg -nostdin -loglevel error -f lavfi -i testsrc=size=64x48:rate=10:duration=0.5 -c:v rawvideo -pix_fmt rgb24 -enc_time_base -1 -f nut pipe:1
echo '[video4linux2,v4l2 @ 0x1] [error] ioctl(VIDIOC_DQBUF): No such device' >&2
echo '[AVIOContext @ 0x1] [verbose] Statistics: 5 bytes written' >&2
echo '[verbose] 5 packets read' >&2
`
	testneeds.WriteProgram(t, script, text)
	r, err := Open(t.Context(), Options{URL: "/dev/video0", FFmpeg: script, StartTimeout: time.Minute,
		StallTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	dst := make([]byte, r.FrameSize())
	n := 0
	for err == nil {
		if _, err = r.Next(dst); err == nil {
			n++
		}
	}
	if n != 5 || KindOf(err) != EndedEarly || !strings.HasSuffix(err.Error(), "unplugged?)") ||
		OutputOf(err) != "ioctl(VIDIOC_DQBUF): No such device" {
		t.Errorf("%d frames, %v", n, err)
	}
}
