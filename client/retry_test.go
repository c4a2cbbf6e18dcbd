package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"millrace/client"
	"millrace/stream"
)

// RetryAfter returns the time sent by the server in an HTTP header or in a message.
func TestRetryAfter(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, `{"error":"full","code":"overloaded"}`)
	}))
	defer h.Close()
	c, err := client.New(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Index(t.Context())
	wantCode(t, err, stream.Overloaded)
	if d := client.RetryAfter(err); d != 7*time.Second {
		t.Errorf("after a request: %v", d)
	}
	_, err = c.Session(t.Context(), client.SessionOptions{})
	wantCode(t, err, stream.Overloaded)
	if d := client.RetryAfter(err); d != 7*time.Second {
		t.Errorf("after a handshake: %v", d)
	}
	if d := client.RetryAfter(context.Canceled); d != 0 {
		t.Errorf("after another error: %v", d)
	}
}

// The fields of an update reach the server, also over a new connection to a server that has lost the session; omitted
// fields do not change.
func TestUpdate(t *testing.T) {
	c, stop := serve(t, "same=identity")
	p, via := cut(t, c, never)
	state := newChanges()
	s := session(t, via, client.SessionOptions{OnConnection: state.add})
	ctx := testTimeout(t)
	st := openStream(t, s, "same", client.StreamOptions{Codec: "opaque", Policy: every})
	echo := func() client.Reply {
		t.Helper()
		if _, err := st.Send(ctx, client.Frame{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		return <-st.Replies()
	}
	if r := echo(); len(r.Outputs) != 1 {
		t.Errorf("%+v", r)
	}
	for _, u := range []client.Update{{Outputs: client.None, MaxAge: new(time.Minute)}, {Window: new(3)}} {
		if err := st.Update(u); err != nil {
			t.Fatal(err)
		}
	}
	want := stream.Policy{Mode: stream.Every, Window: 3, MaxAge: time.Minute}
	if r := echo(); !r.Answered() || r.Outputs != nil || st.Policy() != want {
		t.Errorf("%+v, %+v", r, st.Policy())
	}
	p.cutAll(true)
	<-state.next
	stop()
	other, _ := serve(t, "same=identity")
	p.to(other)
	p.cutAll(false)
	if change := <-state.next; change.State != client.ConnectionReopened {
		t.Errorf("%+v", change)
	}
	if r := echo(); !r.Answered() || r.Outputs != nil || st.Policy() != want {
		t.Errorf("after the session was opened again: %+v, %+v", r, st.Policy())
	}
	if err := st.Update(client.Update{MaxAge: new(time.Duration(0)), Outputs: client.JSON}); err != nil {
		t.Fatal(err)
	}
	if r := echo(); len(r.Outputs) != 1 || st.Policy().MaxAge != 0 || st.Policy().Window != 3 {
		t.Errorf("%+v, %+v", r, st.Policy())
	}
	if _, err := st.Close(ctx); err != nil {
		t.Error(err)
	}
}
