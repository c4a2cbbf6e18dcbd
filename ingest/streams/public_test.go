package streams

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/ingest/sinks"
)

// The server does not call a webhook of a request when the webhook's name leads to a private address at the time of
// the call, despite the earlier check of the request. A configured webhook may have a private address.
func TestWebhookLeadsToPrivate(t *testing.T) {
	called := make(chan struct{}, 2)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	defer hook.Close()
	for _, public := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		f := &runner{a: &Adapter{opts: Options{Log: slog.New(slog.DiscardHandler)}}, name: "door", ctx: ctx}
		s := f.openSink(&sinks.Webhook{URL: hook.URL}, sinkOrigin{request: public, public: public}, nil)
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		s.Write([]byte(`{}`))
		st := s.Stats()
		for ; st.Error == "" && st.Sent == 0; st = s.Stats() {
			<-time.After(5 * time.Millisecond)
		}
		s.Close()
		cancel()
		<-ended
		if refused := strings.Contains(st.Error,
			"sources.allow_private (--sources-allow-private) allows private addresses"); refused != public ||
			len(called) == 1 == public {
			t.Errorf("public %v: %+v, called %d times", public, st, len(called))
		}
	}
}
