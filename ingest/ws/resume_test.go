package ws_test

import (
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/ws"
)

// After the loss of a connection the streams continue, and missed endings are sent again.
func TestV1Resume(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"slow"`+every)
	v.open(2, `,"model":"echo"`)
	v.frame(2, 41)
	v.expect("result")
	v.frame(1, 0)
	v.expect("result")
	v.frame(1, 1)
	v.frame(1, 2)
	r.until("both have come", func() bool { return r.accepted(0) == 3 })
	_ = v.NetConn().Close()
	r.until("it is noticed", func() bool { return r.ws.Stats().Conns == 0 })
	if n := r.ws.Stats().Resumable; n != 1 {
		t.Fatalf("%d sessions to be resumed", n)
	}

	w := r.v1("/v2/stream")
	w.say(`{"type":"attach","token":"` + v.token + `","streams":[{"sid":1,"last_seq":0},{"sid":2,"last_seq":41}]}`)
	a := w.expect("attached")
	if a.Session != v.id || len(a.Streams) != 2 || a.ResumeToken == v.token {
		t.Fatalf("%+v", a)
	}
	for _, s := range a.Streams {
		if s.SID == 1 && (s.Received != 3 || s.ReceivedSeq == nil || *s.ReceivedSeq != 2) ||
			s.SID == 2 && *s.ReceivedSeq != 41 {
			t.Errorf("%+v", s)
		}
	}
	for seq := uint64(1); seq <= 2; seq++ {
		if e := w.expect("result"); e.SID != 1 || e.Seq != seq {
			t.Fatalf("%+v, want seq %d", e, seq)
		}
	}
	w.frame(1, 3)
	if e := w.expect("result"); e.Seq != 3 || e.Ack != 4 {
		t.Fatalf("%+v", e)
	}

	// The token was good once.
	x := r.v1("/v2/stream")
	x.say(`{"type":"attach","token":"` + v.token + `","streams":[]}`)
	x.expectError("not_found", "attach.token")
	x.open(1, `,"model":"echo"`) // and the session of its own goes on

	// Unless the answer with the next token may have been lost.
	lost := r.v1("/v2/stream")
	lost.say(`{"type":"attach","token":"` + a.ResumeToken + `"}`)
	lost.expect("attached")
	_ = lost.NetConn().Close()
	for range 2 {
		again := r.v1("/v2/stream")
		again.say(`{"type":"attach","token":"` + a.ResumeToken + `"}`)
		b := again.expect("attached")
		for again.next().Type != "result" { // kept endings
		}
		if a.ResumeToken != b.ResumeToken {
			lost.token = b.ResumeToken
		}
		_ = again.NetConn().Close()
	}
	again := r.v1("/v2/stream")
	again.say(`{"type":"attach","token":"` + lost.token + `"}`)
	a.ResumeToken = again.expect("attached").ResumeToken
	again.say(`{"type":"ping","t":1}`)
	for again.next().Type != "pong" {
	}
	z := r.v1("/v2/stream")
	z.say(`{"type":"attach","token":"` + lost.token + `"}`)
	z.expectError("not_found", "attach.token")

	// A new connection takes over the session, even while the old connection is open.
	y := r.v1("/v2/stream")
	y.say(`{"type":"attach","token":"` + a.ResumeToken + `","streams":[{"sid":1,"last_seq":2}]}`)
	y.expect("attached")
	for { // kept endings of stream 2, too: attach did not mention stream 2
		if e := y.expect("result"); e.SID == 1 {
			if e.Seq != 3 {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	if e := w.expectError("conflict", "resumed"); !e.Fatal {
		t.Error("not fatal")
	}
	w.ends(4409)
	y.frame(1, 4)
	for {
		if e := y.expect("result"); e.SID == 1 && e.Seq == 4 {
			break
		}
	}
}

// The end of a stream lost with the connection is sent again to a client that considers the stream open, and only
// then.
func TestV1ResumeAfterTheEnd(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo"`)
	v.frame(1, 7)
	v.expect("result")
	v.say(`{"type":"close","sid":1}`)
	v.expect("closed")
	_ = v.NetConn().Close()

	w := r.v1("/v2/stream")
	w.say(`{"type":"attach","token":"` + v.token + `","streams":[{"sid":1}]}`)
	a := w.expect("attached")
	if len(a.Streams) != 1 || a.Streams[0].SID != 1 || a.Streams[0].Received != 1 {
		t.Errorf("%+v", a.Streams)
	}
	if e := w.expect("result"); e.SID != 1 || e.Seq != 7 {
		t.Errorf("%+v", e)
	}
	if e := w.expect("closed"); e.SID != 1 || e.Reason != "client" {
		t.Errorf("%+v", e)
	}
	w.open(1, `,"model":"echo"`) // its number is free
	_ = w.NetConn().Close()

	x := r.v1("/v2/stream")
	x.say(`{"type":"attach","token":"` + a.ResumeToken + `","streams":[{"sid":1}]}`)
	a = x.expect("attached")
	if len(a.Streams) != 1 || a.Streams[0].Received != 0 {
		t.Errorf("%+v", a.Streams)
	}
	x.say(`{"type":"close","sid":1}`)
	x.expect("closed")
	_ = x.NetConn().Close()

	y := r.v1("/v2/stream")
	y.say(`{"type":"attach","token":"` + a.ResumeToken + `"}`)
	if a = y.expect("attached"); len(a.Streams) != 0 {
		t.Errorf("%+v", a.Streams)
	}
}

// A connection resumes its own session, and two connections resume each other's session.
func TestV1ResumeInCircles(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.say(`{"type":"attach","token":"` + v.token + `"}`)
	v.expectError("not_found", "attach.token")
	v.open(1, `,"model":"echo"`)
	_ = v.NetConn().Close()
	for range 20 {
		a, b := r.v1("/v2/stream"), r.v1("/v2/stream")
		a.say(`{"type":"attach","token":"` + b.token + `"}`)
		b.say(`{"type":"attach","token":"` + a.token + `"}`)
		_ = a.NetConn().Close()
		_ = b.NetConn().Close()
	}
	r.until("no connection hangs", func() bool { return r.ws.Stats().Conns == 0 })
}

// A network that loses data ends no session, and a resuming client does not wait for the messages of the old
// connection.
func TestV1ResumeAfterALostNetwork(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"given up": 100 * time.Millisecond, "taken over": time.Hour} {
		r := start(t, ws.Options{WriteWait: wait})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","outputs":"binary","policy":{"mode":"every","window":100}`)
		for seq := range uint64(100) {
			// the server may have abandoned the connection by now
			_ = v.WriteMessage(websocket.BinaryMessage, raw(1, 0, 0, 1, seq, make([]byte, 200_000)))
		}
		if name == "given up" {
			r.until("it is given up", func() bool { return r.ws.Stats().Conns == 0 })
		}
		w := r.v1("/v2/stream")
		w.say(`{"type":"attach","token":"` + v.token + `","streams":[{"sid":1}]}`)
		if a := w.expect("attached"); len(a.Streams) != 1 || a.Session != v.id {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// When no client comes back, the streams end after a while.
func TestV1ResumeExpires(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{Resume: 50 * time.Millisecond}})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo"`)
	_ = v.NetConn().Close()
	r.until("it is over", func() bool { return r.ws.Stats().Resumable == 0 && r.ws.Stats().Conns == 0 })
	w := r.v1("/v2/stream")
	w.say(`{"type":"attach","token":"` + v.token + `"}`)
	w.expectError("not_found", "attach.token")
}
