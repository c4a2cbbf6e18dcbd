package sources_test

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
)

// rtsp starts GStreamer's RTSP server, which asks for a password if one is given,
// and returns the address behind "rtsp://". stop kills it.
func rtsp(t *testing.T, access ...string) (addr string, stop func()) {
	t.Helper()
	python := "python3"
	probe := "import gi; gi.require_version('GstRtspServer', '1.0')"
	if exec.Command(python, "-c", probe).Run() != nil {
		python = "/usr/bin/python3" // where apt puts modules, when another one comes first in PATH
	}
	if out, err := exec.Command(python, "-c", probe).CombinedOutput(); err != nil {
		t.Skipf("no RTSP server here: apt-get install python3-gst-1.0 gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-good: %s", out)
	}
	cmd := exec.Command(python, append([]string{"testdata/rtsp.py"}, access...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	cmd.Stderr = &words
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
		t.Fatalf("%v: %s", err, words.String())
	}
	return "127.0.0.1:" + strings.TrimSpace(port) + "/live", stop
}

func TestRTSP(t *testing.T) {
	addr, stop := rtsp(t)
	for _, transport := range []string{"tcp", "udp"} {
		t.Run(transport, func(t *testing.T) {
			r := run(t, sources.Options{Video: video.Options{URL: "rtsp://" + addr, InputArgs: []string{"-rtsp_transport", transport}}})
			st := r.frames(10)
			if st.Info.Width != 160 || st.Info.Height != 120 || st.Info.Duration != 0 {
				t.Errorf("%+v", st.Info)
			}
		})
	}
	// The server dies under the stream.
	r := run(t, sources.Options{Video: video.Options{URL: "rtsp://" + addr, StallTimeout: 2 * time.Second}})
	r.frames(5)
	stop()
	r.until("refused", func(st sources.Status) bool { return st.Kind == video.Refused })
}

func TestRTSPPassword(t *testing.T) {
	addr, _ := rtsp(t, "me", "geheim")
	r := run(t, sources.Options{Video: video.Options{URL: "rtsp://me:geheim@" + addr}})
	r.frames(5)
	r.cancel(errStop)
	_ = r.wait()
	for _, url := range []string{"rtsp://" + addr, "rtsp://me:geheimnis@" + addr} {
		r := run(t, sources.Options{Video: video.Options{URL: url}})
		st := r.until("denied", func(st sources.Status) bool { return st.State == sources.Waiting })
		wantKind(t, st.Err, video.Auth)
		if strings.Contains(st.Err.Error(), "geheim") {
			t.Error(st.Err)
		}
		r.cancel(errStop)
		_ = r.wait()
	}
}
