package streams_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/httpd"
	"millrace/stream"
)

// dial watches the results of door over WebSocket.
func (r *rig) dial(header http.Header) (*websocket.Conn, *http.Response, error) {
	r.t.Helper()
	ws, resp, err := websocket.DefaultDialer.DialContext(r.t.Context(), "ws"+strings.TrimPrefix(r.url, "http")+
		"/v2/streams/door/results", header)
	if err == nil {
		r.t.Cleanup(func() { ws.Close() })
		_ = ws.SetReadDeadline(time.Now().Add(patience))
	}
	return ws, resp, err
}

func (r *rig) socket() *websocket.Conn {
	r.t.Helper()
	ws, _, err := r.dial(http.Header{"Origin": {r.url}})
	if err != nil {
		r.t.Fatal(err)
	}
	return ws
}

// refused dials, and wants an HTTP error.
func (r *rig) refused(header http.Header, status int, words string) {
	r.t.Helper()
	_, resp, err := r.dial(header)
	if err == nil || resp == nil {
		r.t.Fatalf("%v, want an HTTP error", err)
	}
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status || !strings.Contains(string(text), words) {
		r.t.Errorf("%s: %s, want %d %s", resp.Status, text, status, words)
	}
}

// rest reads up to the close and returns its code and the message before the close.
func rest(t *testing.T, ws *websocket.Conn) (code int, last string) {
	t.Helper()
	for {
		_, text, err := ws.ReadMessage()
		if e, ok := err.(*websocket.CloseError); ok {
			return e.Code, last
		}
		if err != nil {
			t.Errorf("%v after %s", err, last)
			return 0, last
		}
		last = string(text)
	}
}

func looped(t *testing.T) streams.Config {
	return streams.Config{Name: "door", Source: clip(t, 1), Model: "eyes", Loop: true}
}

// Each message is a line. When the stream is deleted, the socket reports the deletion and closes.
func TestWatchSocket(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{looped(t)}})
	ws := r.socket()
	var seq uint64
	for i := range 5 {
		kind, text, err := ws.ReadMessage()
		if err != nil || kind != websocket.TextMessage {
			t.Fatalf("%d %v", kind, err)
		}
		l := check(t, string(text))
		if i > 0 && *l.Seq <= seq {
			t.Errorf("seq %d after %d", *l.Seq, seq)
		}
		seq = *l.Seq
	}
	gone := r.socket()
	r.until("door", "two watch", func(s shown) bool { return s.Watchers == 2 })
	gone.UnderlyingConn().Close()
	r.until("door", "one has left", func(s shown) bool { return s.Watchers == 1 })
	left := r.socket()
	_ = left.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(patience))
	if code, _ := rest(t, left); code != websocket.CloseNormalClosure {
		t.Errorf("closed with %d", code)
	}
	r.until("door", "one has closed", func(s shown) bool { return s.Watchers == 1 })

	r.want(204, "DELETE", "/v2/streams/door", "")
	if code, last := rest(t, ws); code != websocket.CloseNormalClosure ||
		last != `{"stream":"door","closed":"deleted"}` {
		t.Errorf("closed with %d after %s", code, last)
	}
}

// A client that sends a message gets an error.
func TestSocketIsForReading(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{looped(t)}})
	for _, size := range []int{2, 1 << 20} {
		ws := r.socket()
		// the server may close before receiving the whole message
		_ = ws.WriteMessage(websocket.TextMessage, make([]byte, size))
		code, last := rest(t, ws)
		if code != websocket.ClosePolicyViolation || !strings.Contains(last, `"unsupported"`) {
			t.Errorf("%d bytes: closed with %d after %s", size, code, last)
		}
	}
	r.until("door", "nobody watches", func(s shown) bool { return s.Watchers == 0 })
}

// Floods of pings get few answers and end the connection, with the reason.
func TestPingsOfWatchers(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{looped(t)}})
	for _, n := range []int{httpd.PingBurst, httpd.PingBurst + 2*httpd.PingRate*int(patience/time.Second)} {
		ws := r.socket()
		answered, sent := 0, make(chan struct{})
		ws.SetPongHandler(func(string) error { answered++; return nil })
		began := time.Now()
		go func() {
			defer close(sent)
			for range n {
				if ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(patience)) != nil {
					return
				}
			}
			_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
				time.Now().Add(patience))
		}()
		code, last := rest(t, ws)
		most := httpd.PingAnswerBurst + int(time.Since(began).Seconds()+1)*httpd.PingAnswerRate
		ws.Close()
		<-sent
		if flood := n > httpd.PingBurst; flood != (code == websocket.ClosePolicyViolation) ||
			flood != strings.Contains(last, `"flow_control"`) {
			t.Errorf("%d pings: closed with %d after %s", n, code, last)
		}
		if answered < 1 || answered > most {
			t.Errorf("%d pings: %d were answered, want at most %d", n, answered, most)
		}
	}
	r.until("door", "nobody watches", func(s shown) bool { return s.Watchers == 0 })
}

// Bad requests get an HTTP error before the upgrade.
func TestSocketRefusals(t *testing.T) {
	r := start(t, streams.Options{})
	r.refused(nil, 404, "not_found")
	r.streams.AddRequested(t, streams.Config{Name: "door", Source: "http://127.0.0.1:9/", Model: "eyes"})
	r.refused(http.Header{"Origin": {"https://elsewhere.example"}}, 403, "origins")
	r.over("door", "failed")
	r.refused(nil, 409, "the stream has ended")
	r.want(426, "GET", "/v2/streams/door/results", "", "Upgrade", "websocket")
}

func TestSocketSeats(t *testing.T) {
	r := start(t, streams.Options{Limits: ingest.Limits{MaxWatchers: 1}, Streams: []streams.Config{looped(t)}})
	_ = r.socket()
	r.until("door", "one watches", func(s shown) bool { return s.Watchers == 1 })
	r.refused(nil, 503, "limits.max_watchers")
}

// Watchers learn of the end of a video, over WebSocket as in the other forms.
func TestWatchToTheEnd(t *testing.T) {
	path, watched := clip(t, 1), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-watched:
			http.ServeFile(w, req, path)
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(srv.Close)
	r := start(t, streams.Options{Streams: []streams.Config{{Name: "door", Source: srv.URL, Model: "eyes",
		Policy: stream.Policy{Mode: stream.Every}}}})
	ws := r.socket()
	events, plain := r.watch("results", ""), r.watch("results", "application/x-ndjson")
	r.until("door", "three watch", func(s shown) bool { return s.Watchers == 3 })
	close(watched)
	const want = `{"stream":"door","closed":"ended"}`
	if code, last := rest(t, ws); code != websocket.CloseNormalClosure || last != want {
		t.Errorf("closed with %d after %s", code, last)
	}
	if text, err := io.ReadAll(events.Body); err != nil ||
		!strings.HasSuffix(string(text), "event: closed\ndata: "+want+"\n\n") {
		t.Errorf("%v %s", err, text)
	}
	if text, err := io.ReadAll(plain.Body); err != nil || !strings.HasSuffix(string(text), "\n"+want+"\n") {
		t.Errorf("%v %s", err, text)
	}
}

// Watchers learn that the server ends, distinct from the end of the stream.
func TestSocketDrains(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{looped(t)}})
	ws := r.socket()
	if _, _, err := ws.ReadMessage(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); r.stop() }()
	code, last := rest(t, ws)
	var told struct{ Closed string }
	if err := json.Unmarshal([]byte(last), &told); err != nil || code != websocket.CloseGoingAway ||
		told.Closed != "draining" {
		t.Errorf("closed with %d after %s", code, last)
	}
	<-done
}

// A client that does not read after the handshake delays neither the stream nor the server's end.
func TestStuckSocket(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{looped(t)}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /v2/streams/door/results HTTP/1.1\r\nHost: localhost\r\nConnection: "+
		"Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	before := r.until("door", "one watches", func(s shown) bool { return s.Watchers == 1 })
	r.until("door", "results go on", func(s shown) bool { return s.Results > before.Results+5 })
	r.stop() // the client answers no close
}

// The silence of a vanished client ends the connection, even when nothing is sent; an answering client stays.
func TestVanishedSocket(t *testing.T) {
	quiet := looped(t)
	quiet.Paused = true
	r := start(t, streams.Options{Streams: []streams.Config{quiet}, Heartbeat: 50 * time.Millisecond,
		PongWait: 4 * time.Second})
	here, _ := r.socket(), r.socket()
	answered := make(chan struct{}, 1000)
	here.SetPingHandler(func(data string) error {
		answered <- struct{}{}
		return here.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(patience))
	})
	ended := make(chan string)
	go func() {
		_, last := rest(t, here)
		ended <- last
	}()
	r.until("door", "two watch", func(s shown) bool { return s.Watchers == 2 })
	// a client that does not read answers no ping
	r.until("door", "one is gone", func(s shown) bool { return s.Watchers == 1 })
	for range 100 { // for longer than silence is borne
		<-answered
	}
	r.want(204, "DELETE", "/v2/streams/door", "")
	if last := <-ended; last != `{"stream":"door","closed":"deleted"}` {
		t.Errorf("%s", last)
	}
}
