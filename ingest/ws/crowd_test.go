package ws_test

import (
	"testing"

	"millrace/ingest"
	"millrace/ingest/ws"
)

// Waiting sessions count as sessions. When places are needed, the longest waiting session ends first, but not for a
// returning client.
func TestV1WaitingSessionsCount(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{MaxSessions: 3}})
	lose := func(v *v1, waiting int) {
		_ = v.NetConn().Close()
		r.until("it is noticed", func() bool { st := r.ws.Stats(); return st.Waiting == waiting && st.Conns == 0 })
	}
	var lost []*v1
	for i := range 3 {
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo"`)
		lost = append(lost, v)
		lose(v, i+1)
	}
	over := func(n int) bool {
		select {
		case <-r.stream(n).Finished():
			return true
		default:
			return false
		}
	}
	resume := func(v *v1) event {
		w := r.v1("/v2/stream")
		w.say(`{"type":"attach","token":"` + v.token + `"}`)
		e := w.next()
		v.Conn, v.token = w.Conn, e.ResumeToken
		return e
	}
	// All three places are taken, and each returning client has its own place.
	if e := resume(lost[0]); e.Type != "attached" || len(e.Streams) != 1 {
		t.Fatalf("%+v", e)
	}
	lose(lost[0], 3)
	for n := range 3 {
		if over(n) {
			t.Errorf("stream %d has ended", n)
		}
	}
	// A new session ends the longest waiting session, in either mode.
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo"`)
	r.until("the second session has given way", func() bool { return over(1) && r.ws.Stats().Waiting == 2 })
	v.open(2, `,"model":"echo"`) // its own place is enough for all its streams
	c := r.dial("/v2/models/echo/stream")
	c.send([]byte("x"))
	c.next()
	r.until("the third session has given way", func() bool { return over(2) && r.ws.Stats().Waiting == 1 })
	if e := resume(lost[1]); e.Type != "error" || e.Code != "not_found" {
		t.Errorf("%+v", e)
	}
	_ = lost[1].NetConn().Close()
	r.until("it has left", func() bool { return r.ws.Stats().Conns == 2 })
	if e := resume(lost[0]); e.Type != "attached" || len(e.Streams) != 1 || over(0) {
		t.Errorf("%+v", e)
	}
}
