package video

import (
	"strings"
	"testing"
	"time"
)

// said returns messages after reading a text line by line.
func said(text string) *messages {
	m := newMessages(nil, newRedactor(""))
	for l := range strings.SplitSeq(text, "\n") {
		m.line([]byte(l))
	}
	return m
}

const rtspSaid = `[tcp @ 0x55b0c3a36980] [verbose] Successfully connected to 127.0.0.1 port 44599
[rtsp @ 0x55b0c3a33b40] [verbose] SDP:
v=0
s=Session
[info] Input #0, rtsp, from 'rtsp://h/live':
[info]   Duration: 10:00:00.00, start: 0.000000, bitrate: N/A
[info]   Stream #0:0: Video: vp9, yuv420p, 16x16, 99 fps, 90k tbn
[graph 0 input from stream 0:0 @ 0x55b0c3ac26c0] [verbose] w:16 h:16 pixfmt:yuv420p
m=video 0 RTP/AVP 96
[h264 @ 0x55b0c3a385c0] [error] non-existing PPS 0 referenced
    Last message repeated 1 times
[info] Input #0, rtsp, from 'rtsp://h/live':
[info]   Metadata:
[info]     title           : Session
[info]                     :   Stream #0:9: Video: vp9, yuv420p, 16x16, 99 fps
[info]   Duration: N/A, start: 1.120000, bitrate: N/A
[info]   Stream #0:0: Audio: pcm_alaw, 8000 Hz, mono, s16, 64 kb/s
[info]   Stream #0:1: Video: h264 (Constrained Baseline), 1 reference frame, yuv420p(progressive, left), 640x360 (640x368) [SAR 1:1 DAR 16:9], 29.97 fps, 25 tbr, 90k tbn
[info]     Side data:
[info]       displaymatrix: rotation of -90.00 degrees
[info]   Stream #0:2: Video: mjpeg, yuvj420p(pc), 800x600, 5 fps, 90k tbn
[info]     Side data:
[info]       displaymatrix: rotation of -90.00 degrees
`

const graphSaid = `[graph 0 input from stream 0:1 @ 0x55b0c3ac26c0] [verbose] w:640 h:364 pixfmt:yuv420p tb:1/90000 fr:25/1 sar:1/1
[graph 0 input from stream 0:1 @ 0x55b0c3ac26c0] [verbose] w:320 h:240 pixfmt:yuv420p tb:1/90000 fr:25/1 sar:1/1
[rtsp @ 0x55b0c3a33b40] [warning] rtsp://h/live: late`

// Texts of a camera's description, a title, and other streams are not mistaken for the video stream.
func TestMessagesDescribeTheInput(t *testing.T) {
	m := said(rtspSaid)
	want := Info{SourceWidth: 360, SourceHeight: 640, PixelAspect: 1, Codec: "h264", FPS: 30000. / 1001, HasVideo: true}
	if i := m.info(); i != want {
		t.Errorf("%+v; want %+v", i, want)
	}
	m = said(rtspSaid + graphSaid)
	want.SourceWidth = 364
	if i := m.info(); i != want {
		t.Errorf("%+v; want %+v", i, want)
	}
	if s := m.warnings(); s != "[h264 @ 0x55b0c3a385c0] non-existing PPS 0 referenced\n    Last message repeated 1 "+
		"times\n[rtsp @ 0x55b0c3a33b40] rtsp://h/live: late\n" {
		t.Errorf("kept %q", s)
	}
}

// Warnings about an unanalysed entry of a script are dropped; warnings about other inputs are kept.
func TestMessagesAboutAnEntry(t *testing.T) {
	entry := []string{
		"[h264 @ 0x55cc425d7840] [error] Codec (h264) not on whitelist 'none'",
		"[rtsp @ 0x55cc425d3180] [warning] Stream #0: not enough frames to estimate rate; consider increasing probesize",
		"[rtsp @ 0x55cc425d3180] [warning] Could not find codec parameters for stream 0 (Video: h264, 1 reference " +
			"frame, none): unspecified size\nConsider increasing the value",
	}
	own := "[concat @ 0x55cc425d3180] [warning] Could not find codec parameters for stream 0 (Video: h264, none): " +
		"unspecified size\nConsider increasing the value"
	for _, script := range []bool{false, true} {
		for _, text := range append(entry, own) {
			m := newMessages(nil, newRedactor(""))
			m.script = script
			for l := range strings.SplitSeq(text, "\n") {
				m.line([]byte(l))
			}
			if kept := m.warnings() != ""; kept != (!script || text == own) {
				t.Errorf("a script: %v, %q: kept %q", script, text, m.warnings())
			}
		}
	}
}

func TestMessagesAboutInputWithoutVideo(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"[info] Input #0, tty, from 'x':\n[info]   Stream #0:0: Video: ansi, pal8, 640x400, 25 fps, 25 tbr, 25 tbn": "it is a text file",
		"[info] Input #0, wav, from 'x':\n[info]   Stream #0:0: Audio: pcm_s16le, 8000 Hz, mono, s16, 64 kb/s":      "it is wav with sound, subtitles or data only",
		"[info] Input #0, mp3, from 'x':\n[info]   Stream #0:0: Audio: mp3, 44100 Hz\n[info]   Stream #0:1: Video: " +
			"png, rgb24, 64x64, 90k tbr, 90k tbn (attached pic)": "it is mp3 with sound, subtitles or data only",
		"[info] Input #0, rtsp, from 'x':\n[info]   Duration: N/A": "it has no streams",
		"[info] Input #0, mpegts, from 'x':\n[info]   Stream #0:0[0x100](und): Video: h264 ([27][0][0][0] / " +
			"0x001B), none, 90k tbr, 90k tbn": "",
	} {
		if got := said(text).noVideo(); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}

func TestMessagesKeepTheLast(t *testing.T) {
	m := said("[info] Input #0, mov,mp4,m4a,3gp,3g2,mj2, from 'x':\n[info]   Duration: 01:02:03.50, start: " +
		"0.000000, bitrate: 67 kb/s\n" +
		"[info]   Stream #0:0[0x1](und): Video: h264 (High) (avc1 / 0x31637661), yuv420p(progressive), 320x240 [SAR " +
		"1:1 DAR 4:3], 64 kb/s, 12.5 fps, 30 tbr, 15360 tbn (default)\n" +
		strings.Repeat("[error] again\n", 5000) + "[error] x: partial file")
	if s := m.warnings(); len(s) > maxKept || !strings.HasSuffix(s, "x: partial file\n") || !m.cutShort() {
		t.Errorf("%d bytes, cut short: %v", len(s), m.cutShort())
	}
	length := time.Hour + 2*time.Minute + 3500*time.Millisecond
	if i := m.info(); i.Duration != length || i.videoLength != length || i.FPS != 12.5 || i.SourceWidth != 320 {
		t.Errorf("%+v", i)
	}
}

// Whatever ffmpeg reports of a source, lines are read, and little is kept.
func FuzzMessages(f *testing.F) {
	f.Add(rtspSaid + graphSaid)
	f.Fuzz(func(t *testing.T, text string) {
		m := said(text)
		if i := m.info(); len(m.warnings()) > maxKept+len(text) || i.FPS < 0 || i.Duration < 0 || i.SourceWidth < 0 ||
			i.SourceHeight < 0 {
			t.Errorf("%+v", i)
		}
	})
}
