package apps_test

import (
	"strings"
	"testing"
)

// TestEvents: each answer is an event, and an error is the reply before the first one and an
// event behind it.
func TestEvents(t *testing.T) {
	r := start(t, nil, "svc")
	const zero, one = "data: {\"n\":0}\n\n", "data: {\"n\":1}\n\n"
	for _, c := range []struct {
		body, accept string
		status       int
		want         string
	}{
		{"2", "text/event-stream", 200, zero + one},
		{"2", "*/*", 200, zero + one},
		{"0", "text/event-stream", 200, ""},
		{"3", "", 200, zero + one + "data: {\"n\":2}\n\nevent: error\ndata: " +
			"{\"error\":\"three\",\"code\":\"invalid_argument\"}\n\n"},
		{"-1", "", 422, `{"detail":"below 0"}`},
		{"2", "application/json", 406, `{"error":"Accept: \"application/json\" does not name text/event-stream, by ` +
			`which POST /count is answered","code":"unsupported"}`},
	} {
		a := r.Ask("POST", "/apps/svc/count", c.body, "Accept: "+c.accept)
		if a.StatusCode != c.status || a.Text != c.want {
			t.Errorf("%s as %s: %v, want %d %q", c.body, c.accept, a, c.status, c.want)
		}
		if ct := a.Header.Get("Content-Type"); a.StatusCode == 200 && !strings.HasPrefix(ct, "text/event-stream") {
			t.Errorf("Content-Type %q", ct)
		}
		if h := a.Header; a.StatusCode == 422 &&
			(h.Get("X-Own") != "1" || h.Get("Content-Type") != "application/json" || !a.Close) {
			t.Errorf("the reply of the program has the header %v", h)
		}
	}
	r.NoLeases()
}
