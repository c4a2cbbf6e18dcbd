package ws_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/ws"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// Every end of a session has its own counter and close code, and is sent to the client, if possible as an error; the
// end of the session's stream is also counted.
func TestEnds(t *testing.T) {
	const plain = "/v2/models/echo/stream?outputs=none"
	fatal := func(v *v1, code string, close int) {
		v.t.Helper()
		for {
			if e := v.next(); e.Fatal {
				if e.Code != code {
					v.t.Errorf("%+v, want %s", e, code)
				}
				break
			}
		}
		v.ends(close)
	}
	opened := func(r *rig) *v1 {
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","outputs":"binary"`)
		return v
	}
	idle := ws.Options{Limits: ingest.Limits{Idle: 50 * time.Millisecond}, PingEvery: 20 * time.Millisecond,
		PongWait: patience}
	seen := map[conn.End]bool{}
	for _, c := range []struct {
		name string
		why  conn.End
		of   stream.CloseReason // "" = none was opened
		o    ws.Options
		do   func(r *rig)
	}{
		{"bye", conn.EndClient, stream.ClientGone, ws.Options{}, func(r *rig) {
			bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
			_ = opened(r).WriteMessage(websocket.CloseMessage, bye)
		}},
		{"gone", conn.EndGone, stream.ClientGone, ws.Options{}, func(r *rig) { _ = r.dial(plain).NetConn().Close() }},
		{"gone for good", conn.EndGone, stream.ClientGone, ws.Options{Limits: ingest.Limits{Resume: time.Millisecond}},
			func(r *rig) {
				_ = opened(r).NetConn().Close()
			}},
		{"slow", conn.EndSlow, stream.SlowConsumer,
			ws.Options{Limits: ingest.Limits{OutboxMessages: 8, OutboxBytes: 1 << 20}, WriteWait: patience},
			func(r *rig) {
				v := opened(r)
				go func() {
					for seq := uint64(0); v.WriteMessage(websocket.BinaryMessage,
						raw(1, 0, 0, 1, seq, make([]byte, 200_000))) == nil; seq++ {
					}
				}()
			}},
		{"idle", conn.EndIdle, stream.Idle, idle, func(r *rig) { fatal(r.v1("/v2/stream"), "timeout", 4408) }},
		{"idle with a stream", conn.EndIdle, stream.Idle, idle, func(r *rig) {
			c := r.dial(plain)
			c.nextError("timeout", -1)
			c.closed(4408)
		}},
		{"unloaded", conn.EndUnloaded, stream.ByUnload, ws.Options{}, func(r *rig) {
			c := r.dial(plain)
			c.send([]byte("x"))
			c.next()
			if err := r.models.Unload(t.Context(), "echo", ""); err != nil {
				t.Error(err)
			}
			c.nextError("unloaded", -1)
			c.closed(4404)
		}},
		{"draining", conn.EndDraining, stream.ByDrain, ws.Options{}, func(r *rig) {
			v := opened(r)
			go r.stop()
			fatal(v, "draining", 1001)
		}},
		{"too large", conn.EndTooLarge, stream.ByError, ws.Options{Limits: ingest.Limits{MaxMessage: 1000}},
			func(r *rig) {
				v := opened(r)
				v.media(raw(1, 0, 0, 1, 0, make([]byte, 1000)))
				fatal(v, "too_large", 1009)
			}},
		{"malformed", conn.EndMalformed, stream.ByError, ws.Options{}, func(r *rig) {
			v := opened(r)
			v.media([]byte{9})
			fatal(v, "invalid_argument", 4400)
		}},
		{"no WebSocket", conn.EndMalformed, stream.ByError, ws.Options{}, func(r *rig) {
			c := r.dial(plain)
			_, _ = c.NetConn().Write([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
			c.closed(websocket.CloseProtocolError)
		}},
		{"failed", conn.EndFault, stream.ByError, ws.Options{}, func(r *rig) {
			c := r.dial(plain)
			c.send([]byte("x"))
			c.next()
			r.stream(0).Close(stream.ByError)
			c.nextError("internal", -1, "echo")
			c.closed(1011)
		}},
		{"panic", conn.EndFault, "", ws.Options{}, func(r *rig) {
			r.refuses(func() error { panic("a fault of the test") })
			r.panics = 1
			c := r.dial(plain)
			c.nextError("internal", -1, "log")
			c.closed(1011)
		}},
		{"panic in a session", conn.EndFault, "", ws.Options{}, func(r *rig) {
			r.refuses(func() error { panic("a fault of the test") })
			r.panics = 1
			v := r.v1("/v2/stream")
			v.say(`{"type":"open","sid":1,"model":"echo"}`)
			fatal(v, "internal", 1011)
		}},
		{"taken over", conn.EndTakenOver, "", ws.Options{}, func(r *rig) {
			v, w := opened(r), r.v1("/v2/stream")
			w.say(`{"type":"attach","token":"` + v.token + `"}`)
			w.expect("attached")
			fatal(v, "conflict", 4409)
		}},
		{"revoked", conn.EndRevoked, stream.ByError, ws.Options{}, func(r *rig) {
			v := opened(r)
			r.revoke()
			fatal(v, "unauthenticated", 4401)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, c.o)
			c.do(r)
			r.until("it is counted", func() bool { return r.ws.Stats().Ends[c.why] == 1 })
			wantStreams := map[stream.CloseReason]uint64{}
			for _, why := range wire.CloseReasons {
				wantStreams[stream.CloseReason(why)] = 0
			}
			if c.of != "" && c.name != "idle" {
				wantStreams[c.of] = 1
			}
			r.until("its stream is counted", func() bool { return maps.Equal(r.ws.Stats().StreamEnds, wantStreams) })
			for why, n := range r.ws.Stats().Ends {
				if why != c.why && n != 0 {
					t.Errorf("%d ended as %s", n, why)
				}
			}
			seen[c.why] = true
		})
	}
	seen[conn.EndRefused] = true // TestRefusals
	for _, why := range conn.Ends {
		if !seen[why] {
			t.Errorf("nothing ends as %s", why)
		}
	}
}

// refuses makes f decide before a stream is opened.
func (r *rig) refuses(f func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = f
}

// A failure to open a stream ends the session in plain mode, with the close code of the error; in millrace.v1 the
// session continues.
func TestRefusals(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	n := uint64(0)
	for code, want := range map[stream.Code]int{
		stream.NotFound: 4404, stream.Unloaded: 4404, stream.Overloaded: 1013, stream.Unavailable: 1013,
		stream.Draining:        4503,
		stream.InvalidArgument: 1008, stream.Unsupported: 1008, stream.PermissionDenied: 1008,
		stream.Unauthenticated: 4401, stream.Internal: 1011,
	} {
		r.refuses(func() error { return stream.Errorf(code, "setting", "refused") })
		c := r.dial("/v2/models/echo/stream")
		c.nextError(string(code), -1, "setting: refused")
		c.closed(want)
		n++
		r.until("it is counted", func() bool { return r.ws.Stats().Ends[conn.EndRefused] == n })
		v.say(`{"type":"open","sid":1,"model":"echo"}`)
		if e := v.expectError(string(code), "refused"); e.Fatal || e.SID != 1 {
			t.Errorf("%+v", e)
		}
	}
	r.refuses(nil)
	v.open(1, `,"model":"echo"`)
}

// The outbox of a session without a connection is bounded too.
func TestV1SlowWithoutAConnection(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{OutboxMessages: 4}})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"slow","policy":{"mode":"every","window":64}`)
	v.say(`{"type":"pause","sid":1}`)
	for seq := range uint64(64) {
		v.frame(1, seq)
	}
	r.until("all have come", func() bool { return r.accepted(0) == 64 })
	_ = v.NetConn().Close()
	r.until("it waits", func() bool { return r.ws.Stats().Waiting == 1 })
	r.stream(0).Resume()
	r.until("it is over", func() bool { st := r.ws.Stats(); return st.Waiting == 0 && st.Resumable == 0 })
	r.until("its stream has ended as slow", func() bool { return r.ws.Stats().StreamEnds[stream.SlowConsumer] == 1 })
}

// A web page cannot read the status of a refused handshake, and gets the error over the WebSocket. Other clients get
// the status.
func TestPagesAreTold(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{MaxSessions: 1}})
	told := func(ticket, code string, want int) {
		t.Helper()
		d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
		if ticket != "" {
			d.Subprotocols = append(d.Subprotocols, wire.TicketPrefix+ticket)
		}
		c, resp, err := d.Dial("ws://"+r.addr+"/v2/stream", http.Header{"Origin": {"http://" + r.addr}})
		if err != nil {
			t.Fatalf("%v %v", err, resp)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, b, err := c.ReadMessage()
		var e event
		if err != nil || json.Unmarshal(b, &e) != nil || e.Type != "error" || !e.Fatal || e.Code != code {
			t.Errorf("%s %v", b, err)
		}
		var closed *websocket.CloseError
		if _, b, err = c.ReadMessage(); !errors.As(err, &closed) || closed.Code != want {
			t.Errorf("%s %v, want close %d", b, err, want)
		}
		c.Close()
		if c, resp, err = d.Dial("ws://"+r.addr+"/v2/stream", nil); err == nil {
			c.Close()
			t.Error("another client was let in")
		} else if resp == nil || resp.StatusCode < 400 {
			t.Errorf("%v %v", resp, err)
		}
	}
	told("none-of-ours", "unauthenticated", 4401)
	r.until("it has left", func() bool { return r.ws.Stats().Conns == 0 })
	v := r.v1("/v2/stream")
	for range 3 {
		told("", "overloaded", 4429)
	}
	told("none-of-ours", "unauthenticated", 4401)
	v.open(1, `,"model":"echo"`)
	// Refusals with a status, for lack of room, are also counted.
	r.until("they have left", func() bool {
		st := r.ws.Stats()
		return st.Conns == 1 && st.Ends[conn.EndRefused] == 5+3
	})
}
