package videotest

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

//go:embed rtsp.py
var rtspServer string

// gstreamer returns a Python with GStreamer's RTSP server, or an error that says what to install.
func gstreamer() (python string, err error) {
	var out []byte
	for _, python := range []string{"python3", "/usr/bin/python3"} { // the second has apt's modules
		if out, err = exec.Command(python, "-c",
			"import gi; gi.require_version('GstRtspServer', '1.0')").CombinedOutput(); err == nil {
			return python, nil
		}
	}
	return "", fmt.Errorf("no RTSP server here: apt-get install python3-gst-1.0 gir1.2-gst-rtsp-server-1.0 "+
		"gstreamer1.0-plugins-good: %s", out)
}

// NoRTSP returns why RTSP would skip the test, nil if RTSP would run.
func NoRTSP() error {
	_, err := gstreamer()
	return err
}

// RTSP starts GStreamer's RTSP server, as described in rtsp.py, and returns the address without "rtsp://". stop and
// the end of the test kill the server. Without GStreamer the test is skipped.
func RTSP(t *testing.T, args ...string) (addr string, stop func()) {
	t.Helper()
	python, err := gstreamer()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(python, append([]string{"-c", rtspServer}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Kill()
			_ = in.Close()
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return "127.0.0.1:" + strings.TrimSpace(port) + "/live", stop
}
