//go:build !notracing && !nometrics

package service_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"millrace/client"
	"millrace/internal/servertest"
	"millrace/workers"
)

// Malformed contexts are counted, over REST and in frames, and lose nothing.
func TestMalformedTraceContexts(t *testing.T) {
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "echo", Source: "identity"})
	const broken = "00-zz"
	req, err := http.NewRequest(http.MethodPost, s.URL("http")+"/v2/models/echo/infer",
		strings.NewReader(`{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[7]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", broken)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("status %d", r.StatusCode)
	}
	in, err := clientOf(t, s).Stream(t.Context(), "echo", client.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close(context.Background())
	if _, err := in.Send(t.Context(), client.Frame{Data: []byte("x"), Codec: "opaque",
		Trace: "00-" + strings.Repeat("z", 32) + "-" + servertest.SpanID + "-01"}); err != nil {
		t.Fatal(err)
	}
	if e := <-in.Replies(); e.Err != nil {
		t.Fatal(e.Err)
	}
	if n := samples(t, s)["millrace_malformed_trace_contexts_total"]; n != 2 {
		t.Errorf("%v are counted, want 2", n)
	}
}
