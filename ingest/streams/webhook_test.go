package streams_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"millrace/ingest/streams"
)

// A receiver that leaves out what it has seen loses nothing: no two batches have
// the same id, of one stream or of several, before or behind a restart.
func TestDeliveriesDiffer(t *testing.T) {
	ids := make(chan string, 4)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { ids <- req.Header.Get("X-Millrace-Delivery") }))
	defer hook.Close()
	for range 2 { // of the same stream, as after a restart
		h := streams.NewWebhookForTest("door", streams.Sinks{Webhook: hook.URL}, false)
		for range streams.HookBatch + 1 {
			h.Push([]byte(`{}`))
		}
		h.Close()
		h.Run(t.Context())
		if sent, lost, text := h.Counts(); sent != streams.HookBatch+1 || lost != 0 {
			t.Fatalf("%d sent, %d lost: %s", sent, lost, text)
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
