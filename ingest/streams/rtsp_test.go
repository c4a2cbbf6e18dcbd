package streams_test

import (
	"strings"
	"testing"

	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/internal/video/videotest"
)

// A camera that sends only over UDP works once the configuration or a request sets UDP, with a password too.
func TestRTSPOverUDP(t *testing.T) {
	if testing.Short() {
		t.Skip("an RTSP camera takes seconds to begin")
	}
	open, _ := videotest.RTSP(t, "udp")
	locked, _ := videotest.RTSP(t, "udp", "me", "geheim")
	r := start(t, streams.Options{AllowPrivate: true, Streams: []streams.Config{
		{Name: "plain", Source: "rtsp://" + open, Model: "eyes"},
		{Name: "door", Source: "rtsp://" + open, Model: "eyes", Settings: &sources.Video{Transport: "udp"}},
		{Name: "locked", Source: "rtsp://me:geheim@" + locked, Model: "eyes",
			Settings: &sources.Video{Transport: "udp"}},
	}})
	r.want(201, "POST", "/v2/streams", `{"name":"yard","source":"rtsp://`+open+
		`","rtsp_transport":"udp","model":"eyes"}`)
	for _, name := range []string{"door", "locked", "yard"} {
		s := r.until(name, "results", func(s shown) bool { return s.Results > 3 && s.Width == 160 })
		if s.Transport != "udp" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := r.until("plain", "waiting", func(s shown) bool {
		return s.State == "waiting" && s.Error != nil
	}); s.Transport != "tcp" || s.Results != 0 {
		t.Errorf("%+v", s)
	}
}

func TestRTSPTransportRefusals(t *testing.T) {
	r := start(t, streams.Options{})
	for _, c := range [][3]string{ // source, transport, error
		{"rtsp://example.com/", "http", `rtsp_transport: \"http\" is unknown: want tcp or udp`},
		{"rtsps://example.com/", "udp", "rtsp_transport: udp is for rtsp sources"},
		{"http://example.com/", "tcp", "rtsp_transport: is for rtsp and rtsps sources, but this one is http"},
		{"rtsp://example.com/", "udp", "rtsp_transport: udp may lead to private addresses: leave it out, or " +
			"sources.allow_private (--sources-allow-private) allows private addresses; a change of it needs a " +
			"restart of the server"},
	} {
		code, text := r.call("POST", "/v2/streams", `{"name":"a","source":"`+c[0]+`","rtsp_transport":"`+c[1]+
			`","model":"eyes"}`)
		if code/100 != 4 || !strings.Contains(text, c[2]) {
			t.Errorf("%v: %d %s", c, code, text)
		}
	}
	r.want(404, "GET", "/v2/streams/a", "")
}

// A server without UDP does not open a stream stored by a server with UDP.
func TestKeptOverUDP(t *testing.T) {
	path := t.TempDir() + "/streams.json"
	r := start(t, streams.Options{Store: open(t, path), AllowPrivate: true})
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"rtsp://127.0.0.1:9/","rtsp_transport":"udp",`+
		`"model":"eyes"}`)
	r.stop()
	r = start(t, streams.Options{Store: open(t, path)})
	s := r.until("door", "failed", func(s shown) bool { return s.State == "failed" })
	if s.Error == nil || s.Error.Code != "permission_denied" || !strings.Contains(s.Error.Message, "rtsp_transport") ||
		s.Transport != "udp" {
		t.Errorf("%+v %+v", s, s.Error)
	}
}
