package sources_test

import (
	"strings"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/internal/video/videotest"
)

func TestRTSP(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	addr, stop := videotest.RTSP(t)
	for _, transport := range []string{"tcp", "udp"} {
		t.Run(transport, func(t *testing.T) {
			r := run(t, video.Options{URL: "rtsp://" + addr, InputArgs: []string{"-rtsp_transport", transport}},
				sources.Options{})
			st := r.frames(10)
			if st.Info.Width != 160 || st.Info.Height != 120 || st.Info.Ends {
				t.Errorf("%+v", st.Info)
			}
		})
	}
	// A camera without a picture.
	r := run(t, video.Options{URL: "rtsp://" + strings.Replace(addr, "/live", "/sound", 1)}, sources.Options{})
	st := r.until("refused", func(st sources.Status) bool { return st.State == sources.Waiting })
	wantKind(t, st.Err, video.NotVideo)
	if !strings.Contains(st.Err.Error(), "sound, subtitles or data only") {
		t.Error(st.Err)
	}
	r.cancel(errStop)
	_ = r.wait()
	// The server dies under the stream.
	r = run(t, video.Options{URL: "rtsp://" + addr, StallTimeout: 2 * time.Second}, sources.Options{})
	r.frames(5)
	stop()
	r.until("refused", func(st sources.Status) bool { return st.Kind == video.Refused })
}

func TestRTSPPassword(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	addr, _ := videotest.RTSP(t, "me", "geheim")
	r := run(t, video.Options{URL: "rtsp://me:geheim@" + addr}, sources.Options{})
	r.frames(5)
	r.cancel(errStop)
	_ = r.wait()
	for _, url := range []string{"rtsp://" + addr, "rtsp://me:geheimnis@" + addr} {
		r := run(t, video.Options{URL: url}, sources.Options{})
		st := r.until("denied", func(st sources.Status) bool { return st.State == sources.Waiting })
		wantKind(t, st.Err, video.Auth)
		if strings.Contains(st.Err.Error(), "geheim") {
			t.Error(st.Err)
		}
		r.cancel(errStop)
		_ = r.wait()
	}
}
