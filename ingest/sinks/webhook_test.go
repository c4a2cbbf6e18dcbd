package sinks

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A receiver that skips known ids loses nothing: no two batches have the same id, of one stream or of several, before
// or after a restart.
func TestDeliveriesDiffer(t *testing.T) {
	ids := make(chan string, 4)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		ids <- req.Header.Get("X-Millrace-Delivery")
	}))
	defer hook.Close()
	for range 2 { // of the same stream, as after a restart
		h := (&Webhook{URL: hook.URL}).Open(Env{Stream: "door", Log: slog.New(slog.DiscardHandler)})
		for range webhookBatch + 1 {
			h.Write([]byte(`{}`))
		}
		h.Close()
		h.Run(t.Context())
		if st := h.Stats(); st.Sent != webhookBatch+1 || st.Lost != 0 {
			t.Fatalf("%+v", st)
		}
	}
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		if id == "" || seen[id] {
			t.Errorf("%q is no new id", id)
		}
		seen[id] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d ids of 4 batches", len(seen))
	}
}

// A receiver with a forbidden address gets nothing.
func TestWebhookRefusesAddresses(t *testing.T) {
	called := make(chan struct{}, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	defer hook.Close()
	h := (&Webhook{URL: hook.URL}).Open(Env{Stream: "door", Log: slog.New(slog.DiscardHandler),
		Allow: func(a netip.Addr) error {
			return fmt.Errorf("%v is refused here", a)
		}})
	h.Write([]byte(`{}`))
	h.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); h.Run(ctx) }()
	// The first attempt reports the reason; the last attempt, after the end of ctx, has little time.
	text := h.Stats().Error
	for over := false; text == "" && !over; text = h.Stats().Error {
		select {
		case <-ended:
			over = true
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	<-ended
	select {
	case <-called:
		t.Error("a private address was called")
	default:
	}
	if st := h.Stats(); st.Lost != 1 || !strings.Contains(text, "127.0.0.1 is refused here") {
		t.Errorf("%+v: %s", st, text)
	}
}
