package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// The error of an HTTP reply has the server's code, or a code for the status, and the time for a retry.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		after  string
		body   string
		code   stream.Code
		text   string
		wait   time.Duration
	}{
		{503, "2", `{"error":"draining","code":"draining"}`, stream.Draining, "draining", 2 * time.Second},
		{503, "", `{"error":"draining","code":"draining"}`, stream.Draining, "draining", 0},
		{429, "1", `{"error":"slow down"}`, stream.Overloaded, "slow down", time.Second},
		{503, "soon", `{"code":"draining"}`, stream.Unavailable, "the server answered 503 Service Unavailable", 0},
		{503, "5", ``, stream.Unavailable, "the server answered 503 Service Unavailable", 5 * time.Second},
		{502, "-5", ``, stream.Unavailable, "the server answered 502 Bad Gateway", 0},
		{401, "", "<html>", stream.Unauthenticated, "the server answered 401 Unauthorized", 0},
		{403, "", "", stream.PermissionDenied, "the server answered 403 Forbidden", 0},
		{404, "", "", stream.NotFound, "the server answered 404 Not Found", 0},
		{409, "", "", stream.Conflict, "the server answered 409 Conflict", 0},
		{413, "", "", stream.TooLarge, "the server answered 413 Request Entity Too Large", 0},
		{408, "", "", stream.Timeout, "the server answered 408 Request Timeout", 0},
		{504, "", "", stream.Timeout, "the server answered 504 Gateway Timeout", 0},
		{418, "", "", stream.InvalidArgument, "the server answered 418 I'm a teapot", 0},
		{500, "", "", stream.Internal, "the server answered 500 Internal Server Error", 0},
		{302, "", "", stream.Internal, "the server answered 302 Found", 0},
	} {
		err := replyError(c.status, http.Header{"Retry-After": {c.after}}, []byte(c.body))
		if stream.CodeOf(err) != c.code || err.Error() != c.text || RetryAfter(err) != c.wait {
			t.Errorf("%d %q: %s %q, again after %v; want %+v", c.status, c.body, stream.CodeOf(err), err,
				RetryAfter(err), c)
		}
		var coded *stream.Error
		if !errors.As(err, &coded) {
			t.Errorf("%d: %T", c.status, err)
		}
	}
	if RetryAfter(nil) != 0 || RetryAfter(errors.New("x")) != 0 {
		t.Error("a time out of nothing")
	}
	err := errorOf(&wire.ErrorMessage{Code: "overloaded", Message: "full", RetryAfterMS: 250})
	if stream.CodeOf(err) != stream.Overloaded || RetryAfter(err) != 250*time.Millisecond || err.Error() != "full" {
		t.Error(err)
	}
}

// TestEndOfASession: an ordinary end is told without the words of WebSocket.
func TestEndOfASession(t *testing.T) {
	for code, want := range map[int]string{
		websocket.CloseNormalClosure: "the server ended the session",
		websocket.CloseGoingAway:     "the server ended the session: websocket: close 1001 (going away)",
	} {
		if got := closeError(&websocket.CloseError{Code: code}).Error(); got != want {
			t.Errorf("%d: %q, want %q", code, got, want)
		}
	}
	for after, is := range map[time.Duration]bool{-1: false, 0: false, 1: true} {
		var r *retryError
		if errors.As(retryable(&stream.Error{}, after), &r) != is {
			t.Errorf("after %v: to be tried again %v", after, !is)
		}
	}
}

// The functions working for a session get the reason of its end.
func TestCauseOfASession(t *testing.T) {
	said := errors.New("said")
	for _, err := range []error{nil, said} {
		s := &Session{discard: make(chan struct{})}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		s.stop(err)
		if cause := context.Cause(s.ctx); err == nil && stream.CodeOf(cause) != stream.Canceled ||
			err != nil && cause != err || s.Err() != err {
			t.Errorf("%v: %v, %v", err, cause, s.Err())
		}
	}
}

// Merged updates have the newest value of each field.
func TestUpdatesAreMerged(t *testing.T) {
	first := Update{MaxAge: new(time.Second), Deadline: new(2 * time.Second), MaxFPS: new(3.0), Window: new(4),
		Outputs: JSON, Params: stream.Params{"a": "b"}}
	if got := first.merged(Update{}); *got.MaxAge != time.Second || *got.Deadline != 2*time.Second ||
		*got.MaxFPS != 3 || *got.Window != 4 || got.Outputs != JSON || got.Params["a"] != "b" {
		t.Errorf("%+v", got)
	}
	next := Update{MaxAge: new(5 * time.Second), Deadline: new(6 * time.Second), MaxFPS: new(7.0), Window: new(8),
		Outputs: None, Params: stream.Params{}}
	if got := first.merged(next); *got.MaxAge != 5*time.Second || *got.Deadline != 6*time.Second || *got.MaxFPS != 7 ||
		*got.Window != 8 || got.Outputs != None || len(got.Params) != 0 {
		t.Errorf("%+v", got)
	}
	m := next.message(9)
	if m.SID != 9 || *m.Policy.MaxAgeMS != 5000 || *m.Policy.DeadlineMS != 6000 || *m.Policy.MaxFPS != 7 ||
		*m.Policy.Window != 8 || m.Outputs != "none" {
		t.Errorf("%+v", m)
	}
	if m := (&Update{}).message(9); m.Policy.MaxAgeMS != nil || m.Policy.DeadlineMS != nil {
		t.Errorf("%+v", m)
	}
	for d, want := range map[time.Duration]int{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		20 * time.Millisecond: 20} {
		if got := millis(d); got != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
}
