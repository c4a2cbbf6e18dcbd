package ws_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/ws"
	"millrace/ingest/ws/conn"
	"millrace/stream"
	"millrace/workers"
)

// TestUnload unloads a model with open sessions: waiting frames end as unloaded, then the client is told and the
// session closed.
func TestUnload(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/slow/stream?policy=every&window=64&outputs=none")
	for range 40 {
		c.send([]byte("frame"))
	}
	c.next()
	if err := r.models.Unload(t.Context(), "slow", ""); err != nil {
		t.Fatal(err)
	}
	frames := 1
	for {
		m := c.next()
		if m.Seq == nil {
			if m.Error == nil || m.Error.Code != "unloaded" {
				t.Fatalf("%+v", m)
			}
			break
		}
		if *m.Seq != uint64(frames) || m.Error != nil && m.Error.Code != "unloaded" {
			t.Fatalf("frame %d: %+v %+v", frames, m, m.Error)
		}
		frames++
	}
	c.closed(4404)
	r.until("the session is gone", func() bool {
		st := r.ws.Stats()
		return st.Conns == 0 && st.Ends[conn.EndUnloaded] == 1
	})
}

// TestShutdown ends the server in the middle of a stream: every frame received has its reply, then the client is
// told.
func TestShutdown(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/slow/stream?policy=every&window=64&outputs=none")
	quiet := r.dial("/v2/models/echo/stream")
	for range 40 {
		c.send([]byte("frame"))
	}
	c.next()
	done := make(chan struct{})
	go func() { defer close(done); r.stop() }()
	seq := uint64(1)
	for {
		m := c.next()
		if m.Seq == nil {
			if m.Error == nil || m.Error.Code != "draining" {
				t.Fatalf("%+v", m)
			}
			break
		}
		if *m.Seq != seq || m.Error != nil && m.Error.Code != "draining" {
			t.Fatalf("frame %d: %+v %+v", seq, m, m.Error)
		}
		seq++
	}
	c.closed(websocket.CloseGoingAway)
	quiet.nextError("draining", -1)
	quiet.closed(websocket.CloseGoingAway)
	c.Close()
	quiet.Close()
	<-done
	if n := r.ws.Stats().Ends[conn.EndDraining]; n != 2 {
		t.Errorf("%d sessions ended as draining", n)
	}
}

// TestGone disconnects clients in every way; the rig checks that the memory of all frames is released.
func TestGone(t *testing.T) {
	r := start(t, ws.Options{})
	leave := map[string]func(c *client){
		"close frame": func(c *client) {
			_ = c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
				time.Now().Add(time.Second))
			for err := error(nil); err == nil; {
				_, _, err = c.ReadMessage()
			}
			c.Close()
		},
		"FIN": func(c *client) { c.Close() },
		"RST": func(c *client) {
			_ = c.NetConn().(*net.TCPConn).SetLinger(0)
			c.Close()
		},
		"half a message": func(c *client) {
			_, _ = c.NetConn().Write([]byte{0x82, 0xfe, 0x10, 0, 1, 2, 3, 4, 'x'})
			c.Close()
		},
	}
	n := uint64(0)
	for name, f := range leave {
		for _, policy := range []string{"every", "latest"} {
			c := r.dial("/v2/models/slow/stream?window=4&policy=" + policy)
			for range 10 {
				c.send(make([]byte, 10_000))
			}
			if policy == "latest" {
				c.next()
			}
			f(c)
			n++
			r.until(name+": the session is gone", func() bool {
				st := r.ws.Stats()
				return st.Conns == 0 && st.Ends[conn.EndClient]+st.Ends[conn.EndGone] == n
			})
		}
	}
	if st := r.ws.Stats(); st.Ends[conn.EndClient] == 0 || st.Ends[conn.EndGone] < 4 {
		t.Errorf("%v", st.Ends)
	}
}

// TestMalformed checks that bytes other than WebSocket frames end the session.
func TestMalformed(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/echo/stream")
	if _, err := c.NetConn().Write([]byte{0xff, 0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	c.closed(websocket.CloseProtocolError)
	c.Close()
	r.until("it is counted", func() bool { return r.ws.Stats().Ends[conn.EndMalformed] == 1 })
}

// TestSlowConsumer has a client that never reads: the outbox fills up, and the session is closed.
func TestSlowConsumer(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{OutboxMessages: 32, OutboxBytes: 1 << 20}})
	c := r.dial("/v2/models/echo/stream?policy=latest&outputs=binary")
	go func() {
		for c.WriteMessage(websocket.BinaryMessage, make([]byte, 200_000)) == nil {
		}
	}()
	r.until("it is closed as slow", func() bool {
		st := r.ws.Stats()
		return st.Ends[conn.EndSlow] == 1 && st.Conns == 0
	})
}

// TestNeverReads is the same in every: reading stops at the window, and the write
// deadline ends the session.
func TestNeverReads(t *testing.T) {
	r := start(t, ws.Options{WriteWait: 200 * time.Millisecond})
	c := r.dial("/v2/models/echo/stream?policy=every&window=4&outputs=binary")
	go func() {
		for c.WriteMessage(websocket.BinaryMessage, make([]byte, 2<<20)) == nil {
		}
	}()
	r.until("it is closed as slow", func() bool {
		st := r.ws.Stats()
		return st.Ends[conn.EndSlow] == 1 && st.Conns == 0
	})
}

// TestSilent checks that clients without pongs are disconnected, and other clients are not.
func TestSilent(t *testing.T) {
	t.Parallel()
	r := start(t, ws.Options{PingEvery: 50 * time.Millisecond, PongWait: 3 * time.Second})
	r.dial("/v2/models/echo/stream") // never reads, thus never answers
	good := r.dial("/v2/models/echo/stream?outputs=none")
	pings := 0
	answer := good.PingHandler()
	good.SetPingHandler(func(s string) error { pings++; return answer(s) })
	got := make(chan error, 1)
	go func() {
		_, _, err := good.ReadMessage() // answers pings meanwhile
		got <- err
	}()
	r.until("the silent one is gone", func() bool { return r.ws.Stats().Ends[conn.EndGone] == 1 })
	if err := good.WriteMessage(websocket.BinaryMessage, []byte("still here")); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil || pings == 0 {
		t.Errorf("%v after %d pings", err, pings)
	}
}

// TestIdle checks that an idle time-out closes a session without messages.
func TestIdle(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{Idle: 50 * time.Millisecond}, PingEvery: 20 * time.Millisecond,
		PongWait: patience})
	c := r.dial("/v2/models/echo/stream")
	c.nextError("timeout", -1, "no message")
	c.closed(4408)
}

func TestHalfHandshake(t *testing.T) {
	t.Parallel()
	r := start(t, ws.Options{})
	var half []net.Conn
	for _, text := range []string{"",
		"GET /v2/models/echo/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"} {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(text))
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		half = append(half, conn)
	}
	for _, conn := range half {
		if _, err := bufio.NewReader(conn).ReadBytes(0); errors.Is(err, os.ErrDeadlineExceeded) { // to the end
			t.Error("a connection that says nothing stays")
		}
	}
	// More than a handshake before the answer is refused, not half understood.
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("GET /v2/models/echo/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: " +
		"Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x82\x81aaaaa"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%v", resp)
	}
	r.until("nothing is open", func() bool { return r.ws.Stats().Conns == 0 })
}

func TestSwap(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/slow/stream?policy=every&outputs=none")
	c.send([]byte("one"))
	c.next()
	cfg := workers.Config{Name: "slow", Kind: "delay", Params: stream.Params{"fixed": "1ms"}}.WithDefaults()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.models.Swap(ctx, "slow", cfg); err != nil {
		t.Fatal(err)
	}
	c.send([]byte("two"))
	if m := c.next(); m.Error != nil || *m.Seq != 1 {
		t.Errorf("%+v %+v", m, m.Error)
	}
}
