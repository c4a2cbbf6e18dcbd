package ws_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/ws"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/workers"
)

// TestRefusedBeforeUpgrade checks that errors in the address, origin or host are HTTP errors in JSON.
func TestRefusedBeforeUpgrade(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{MaxSessions: 1}})
	for _, c := range []struct {
		path, header, value string
		status              int
		words               string
	}{
		{path: "/v2/models/none/stream", status: 404, words: "none"},
		{path: "/v2/models/echo/versions/9/stream", status: 404},
		{path: "/v2/stream?model=none", status: 404},
		{path: "/v2/stream", status: 400, words: "model"},
		{path: "/v2/models/echo/stream?model=echo", status: 400, words: "model"},
		{path: "/v2/models/echo/stream?codec=h265", status: 400, words: "codec"},
		{path: "/v2/models/echo/stream?codec=h264", status: 400, words: "codec"},
		{path: "/v2/models/echo/stream?codec=rgb24", status: 400, words: "width"},
		{path: "/v2/models/echo/stream?width=4&height=4", status: 400, words: "width"},
		{path: "/v2/models/echo/stream?policy=newest", status: 400, words: "policy"},
		{path: "/v2/models/echo/stream?policy=", status: 400, words: "policy"},
		{path: "/v2/models/echo/stream?window=0", status: 400, words: "window"},
		{path: "/v2/models/echo/stream?window=1e9", status: 400, words: "window"},
		{path: "/v2/models/echo/stream?max_age_ms=-1", status: 400, words: "max_age_ms"},
		{path: "/v2/models/echo/stream?deadline_ms=x", status: 400, words: "deadline_ms"},
		{path: "/v2/models/echo/stream?max_fps=NaN", status: 400, words: "max_fps"},
		{path: "/v2/models/echo/stream?outputs=xml", status: 400, words: "outputs"},
		{path: "/v2/models/echo/stream?colour=red", status: 400, words: "colour"},
		{path: "/v2/models/echo/stream?outputs=none", header: "Sec-Websocket-Protocol", value: wire.Subprotocol,
			status: 400, words: "outputs"},
		{path: "/v2/stream?max_fps=5", header: "Sec-Websocket-Protocol", value: wire.Subprotocol, status: 400,
			words: "max_fps"},
		{path: "/models/infer?codec=jpeg", status: 400, words: "codec"},
		{path: "/models/infer?model=echo", status: 400, words: "model"},
		{path: "/v2/models/echo/stream", header: "Origin", value: "https://evil.example", status: 403,
			words: "evil.example"},
		{path: "/v2/models/echo/stream", header: "Origin", value: "null", status: 403},
		{path: "/v2/models/echo/stream", header: "Host", value: "evil.example", status: 403, words: "evil.example"},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set(c.header, c.value)
		}
		conn, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+c.path, h)
		if err == nil {
			conn.Close()
			t.Errorf("%s %s: upgraded", c.path, c.value)
			continue
		}
		var body struct{ Error, Code string }
		if resp == nil || resp.StatusCode != c.status || json.NewDecoder(resp.Body).Decode(&body) != nil ||
			!strings.Contains(body.Error, c.words) || body.Code == "" {
			t.Errorf("%s %s: %v %v %+v", c.path, c.value, err, resp, body)
		}
	}
	if resp, err := http.Get("http://" + r.addr + "/v2/models/echo/stream"); err != nil ||
		resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("plain GET: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	// A listed origin, and the server's own, are accepted; the limit of sessions is
	// observed.
	h := http.Header{"Origin": {"https://friend.example"}}
	one, _, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/v2/models/echo/stream", h)
	if err != nil {
		t.Fatal(err)
	}
	_, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/v2/models/echo/stream", nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("over the cap: %v %v", resp, err)
	}
	one.Close()
	r.until("the one session has ended", func() bool { return r.ws.Stats().Conns == 0 })
	h.Set("Origin", "http://"+r.addr)
	two, _, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/v2/models/echo/stream", h)
	if err != nil {
		t.Fatal(err)
	}
	two.Close()
}

func TestTooLarge(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{MaxMessage: 100_000}})
	c := r.dial("/v2/models/echo/stream?outputs=none&policy=every")
	c.send(make([]byte, 100_000))
	if m := c.next(); m.Error != nil {
		t.Fatal(m.Error)
	}
	// The client is still sending when the server ends the connection, and must get the
	// reason all the same.
	go func() { _ = c.WriteMessage(websocket.BinaryMessage, make([]byte, 8<<20)) }()
	c.nextError("too_large", -1, "100000", "limits.max_message")
	c.closed(websocket.CloseMessageTooBig)
	r.until("it is counted", func() bool { return r.ws.Stats().Ends[conn.EndTooLarge] == 1 })
}

// TestBadFrames checks that an error in a frame ends only the frame.
func TestBadFrames(t *testing.T) {
	r := start(t, ws.Options{}, workers.Config{Name: "eyes", Kind: "motion"})
	c := r.dial("/v2/models/eyes/stream?policy=every&outputs=none")
	c.send([]byte("GIF89a, which is none of them"))
	c.nextError("unsupported", 0, "not a picture")
	c.send(nil)
	c.nextError("invalid_argument", 1, "empty")
	c.send([]byte("\xff\xd8\xff\xe0 and nothing behind it"))
	if m := c.next(); m.Error == nil || *m.Seq != 2 {
		t.Errorf("a broken JPEG: %+v", m)
	}
	raw := r.dial("/v2/models/eyes/stream?policy=every&outputs=none&codec=rgb24&width=4&height=4")
	raw.send(make([]byte, 47))
	raw.nextError("invalid_argument", 0, "48")
	raw.send(make([]byte, 48))
	if m := raw.next(); m.Error != nil || *m.Seq != 1 || m.Width != 4 {
		t.Errorf("a raw frame: %+v %+v", m, m.Error)
	}
	opaque := r.dial("/v2/models/eyes/stream?codec=opaque")
	opaque.send([]byte("x"))
	opaque.nextError("unsupported", 0)
}

// TestNotUTF8 checks that a result without a JSON form ends as an error with a remedy.
func TestNotUTF8(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/echo/stream")
	c.send([]byte{0xff, 0xfe})
	c.nextError("unsupported", 0, "outputs=binary")
	c.send([]byte("fine"))
	if m := c.next(); m.Error != nil {
		t.Error(m.Error)
	}
}

func TestBadText(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/echo/stream")
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	for text, code := range map[string]string{
		"":                               "invalid_argument",
		"hello":                          "invalid_argument",
		"{":                              "invalid_argument",
		`{"url":` + deep + `}`:           "invalid_argument",
		`{"url":7}`:                      "invalid_argument",
		`{"url":"http://x/","colour":1}`: "invalid_argument",
		`{"url":"http://x/"} {}`:         "invalid_argument",
		`{"stop":true}`:                  "conflict",
		`{"stop":true,"url":"http://x"}`: "invalid_argument",
		`{"url":"file:/etc/passwd"}`:     "permission_denied",
		`{"url":"/etc/passwd"}`:          "permission_denied",
		`{"url":"exec:id"}`:              "permission_denied",
		`{"url":"v4l2:/dev/video0"}`:     "permission_denied",
		`{"url":"concat:a|b"}`:           "invalid_argument",
		`{"url":"http://127.0.0.1/"}`:    "permission_denied",
		`{"url":"rtsp://localhost/x"}`:   "permission_denied",
		`{"url":"` + strings.Repeat("x", 70_000) + `"}`: "too_large",
	} {
		c.say(text)
		c.nextError(code, -1)
	}
	c.send([]byte("still here"))
	if m := c.next(); m.Error != nil || *m.Seq != 0 {
		t.Errorf("%+v", m)
	}
}

// A text above the limit gets an error in the form of the protocol, also in a resumed session, and adds only its own
// length to the memory in use.
func TestLongText(t *testing.T) {
	r := start(t, ws.Options{})
	long := `{"type":"ping","t":"` + strings.Repeat("x", 64<<10) + `"}`
	c := r.dial("/v2/models/echo/stream")
	c.say(long)
	c.nextError("too_large", -1, "65536")
	c.send([]byte("x"))
	if m := c.next(); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
	v := r.v1("/v2/stream")
	_ = v.NetConn().Close()
	r.until("it waits", func() bool { return r.ws.Stats().Waiting == 1 })
	w := r.v1("/v2/stream")
	w.say(`{"type":"attach","token":"` + v.token + `"}`)
	w.expect("attached")
	w.say(long)
	if e := w.expectError("too_large", "65536"); e.Fatal {
		t.Errorf("%+v", e)
	}
	w.open(1, `,"model":"echo"`)
}
