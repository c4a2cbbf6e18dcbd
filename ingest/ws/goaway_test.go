package ws_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws"
	"millrace/stream"
	"millrace/workers"
)

// A client is told that the server goes away while it still has its streams: what
// is in flight is answered, nothing more is opened, and only then the connection
// ends.
func TestV1GoAwayComesFirst(t *testing.T) {
	r := start(t, ws.Options{}, workers.Config{Name: "slower", Kind: "delay", Params: stream.Params{"fixed": "500ms"}})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"slower"`+every)
	for seq := range uint64(4) {
		v.frame(1, seq)
	}
	v.say(`{"type":"ping","t":1}`)
	ended := map[uint64]string{}
	for e := v.next(); e.Type != "pong"; e = v.next() { // all have come
		ended[e.Seq] = e.Type
	}
	r.ws.GoAway(time.Now().Add(time.Hour))
	r.ws.GoAway(time.Now()) // the first counts
	e := v.next()
	for ; e.Type == "result"; e = v.next() {
		ended[e.Seq] = e.Type
	}
	if e.Type != "goaway" || e.TimeLeftMS < 3_000_000 || e.TimeLeftMS > 3_600_000 {
		t.Fatalf("%+v", e)
	}

	late, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/v2/models/echo/stream", nil)
	if err == nil {
		late.Close()
		t.Error("a connection was let in")
	} else if resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%v %v", err, resp)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.models.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for e = v.next(); e.Type != "closed"; e = v.next() {
		if e.Type != "result" && (e.Type != "error" || e.Code != "draining") || e.Fatal {
			t.Fatalf("%+v", e)
		}
		if ended[e.Seq] != "" {
			t.Errorf("frame %d has two endings", e.Seq)
		}
		ended[e.Seq] = e.Type
	}
	if e.Reason != "draining" || len(ended) != 4 || ended[0] != "result" {
		t.Errorf("%+v after %v", e, ended)
	}
	v.say(`{"type":"open","sid":2,"model":"slower"}`)
	if e := v.next(); e.Type != "error" || e.Fatal || e.SID != 2 {
		t.Errorf("%+v", e)
	}
	go r.stop()
	if e := v.expectError("draining", "shutting down"); !e.Fatal {
		t.Errorf("%+v", e)
	}
	v.ends(websocket.CloseGoingAway)
	r.stop()
}

// Where nobody has said it before, it is said when the adapter ends.
func TestV1GoAwayAtTheEnd(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"slow"`)
	go r.stop()
	if e := v.expect("goaway"); e.TimeLeftMS != 0 {
		t.Errorf("%+v", e)
	}
	if e := v.expect("closed"); e.Reason != "draining" {
		t.Errorf("%+v", e)
	}
	if e := v.expectError("draining", "shutting down"); !e.Fatal {
		t.Errorf("%+v", e)
	}
	v.ends(websocket.CloseGoingAway)
	r.stop()
}
