package ws_test

import (
	"fmt"
	"testing"

	"millrace/ingest/ws"
)

// A session has a limited number of streams: a further stream is refused with a time to try again, and the other
// streams continue.
func TestMaxStreams(t *testing.T) {
	const most = 256
	r := start(t, ws.Options{})
	v := r.v1("/v2/models/echo/stream")
	for sid := range most {
		v.open(sid, "")
	}
	more := fmt.Sprintf(`{"type":"open","sid":%d}`, most)
	v.say(more)
	if e := v.expectError("overloaded", "open.sid"); e.Fatal || !e.Retryable || e.RetryAfterMS != 1000 ||
		e.SID != most {
		t.Errorf("%+v", e)
	}
	v.frame(most-1, 0)
	if e := v.expect("result"); e.SID != most-1 {
		t.Errorf("%+v", e)
	}
	v.say(`{"type":"close","sid":7}`)
	v.expect("closed")
	v.say(more)
	v.expect("opened")
}

// Errors carry no time to try again when waiting alone does not help, or when a credit tells the client.
func TestRetryAfter(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.say(`{"type":"open","sid":1,"model":"nobody"}`)
	if e := v.expectError("not_found", "nobody"); e.RetryAfterMS != 0 {
		t.Errorf("%+v", e)
	}
	v.open(1, `,"model":"echo","policy":{"mode":"every","window":1}`)
	v.say(`{"type":"pause","sid":1}`)
	v.frame(1, 0)
	v.frame(1, 1)
	if e := v.expectError("flow_control", "credit"); !e.Retryable || e.RetryAfterMS != 0 {
		t.Errorf("%+v", e)
	}
	go r.stop()
	for {
		if e := v.next(); e.Type == "error" && e.Fatal {
			if e.Code != "draining" || e.RetryAfterMS != 1000 {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	v.Close()
	r.stop()
}
