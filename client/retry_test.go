package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/client"
	"millrace/stream"
)

// TestRetryAfter: what a server says of when to come again is told, from a header
// of HTTP and from a message.
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

// TestReconnectWaits: between two attempts a session waits as long as the server
// said, if that is longer than its own back-off.
func TestReconnectWaits(t *testing.T) {
	const wait = 500 * time.Millisecond // the back-off before this attempt is 400 ms at most
	var dials atomic.Int32
	refused := make(chan time.Time, 1)
	again := make(chan time.Duration, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{Subprotocols: []string{"millrace.v1"}}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.Close()
		say := func(text string) { _ = ws.WriteMessage(websocket.TextMessage, []byte(text)) }
		switch dials.Add(1) {
		case 1: // is lost without a word
			say(`{"type":"ready","session":"s","resume_token":"t"}`)
		case 2:
			say(`{"type":"ready","session":"s2","resume_token":"t2"}`)
			_, _, _ = ws.ReadMessage() // attach
			refused <- time.Now()
			say(fmt.Sprintf(`{"type":"error","code":"overloaded","message":"full","retry_after_ms":%d,"fatal":true}`, wait.Milliseconds()))
		default:
			again <- time.Since(<-refused)
		}
	}))
	defer h.Close()
	c, err := client.New(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(t.Context(), client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d := <-again; d < wait {
		t.Errorf("tried again after %v", d)
	}
	_ = s.Close()
}

// TestUpdate: what an update sets reaches the server, also over another connection
// to a server that no longer has the session; what it leaves out stays.
func TestUpdate(t *testing.T) {
	c, stop := serve(t, "same=identity")
	p, via := cut(t, c, never)
	state := newChanges()
	s := session(t, via, client.SessionOptions{OnConnection: state.told})
	ctx := patience(t)
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
