package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"millrace/client"
	"millrace/stream"
)

// A server stream is added, read, changed and removed. The source is not a video.
func TestServerStreams(t *testing.T) {
	c, _ := serve(t, "eyes=motion")
	ctx := t.Context()
	if list, err := c.ServerStreams(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	cfg := client.StreamConfig{
		Name: "door", Source: "http://me:secret@1.1.1.1:9/live", Model: "eyes", MaxAgeMS: 300, Priority: "high",
		Paused:   true,
		Settings: map[string]any{"width": 320}, Sinks: map[string]any{"webhook": "https://example.com/",
			"webhook_secret": "s"},
	}
	s, err := c.AddServerStream(ctx, cfg)
	if err != nil || s.Name != "door" || s.Source == cfg.Source || !s.Paused || s.Origin != "request" ||
		s.Policy.MaxAgeMS != 300 || s.Policy.Priority != "high" || len(s.Sinks) != 1 || s.Since.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = c.AddServerStream(ctx, cfg)
	wantCode(t, err, stream.Conflict)
	on, fps := true, 2.5
	if s, err = c.ChangeServerStream(ctx, "door", client.StreamChange{Paused: &on, MaxFPS: &fps}); err != nil ||
		!s.Paused || s.Policy.MaxFPS != 2.5 || s.Policy.MaxAgeMS != 300 {
		t.Errorf("%+v, %v", s, err)
	}
	if list, err := c.ServerStreams(ctx); err != nil || len(list) != 1 || list[0].Name != "door" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, ask := range []func(context.Context, string) (client.StreamCounts, error){c.StreamCounts,
		c.ResetStreamCounts} {
		if counts, err := ask(ctx, "door"); err != nil || counts.Stream != "door" || len(counts.Models) != 0 {
			t.Errorf("%+v, %v", counts, err)
		}
		_, err = ask(ctx, "")
		wantCode(t, err, stream.InvalidArgument)
	}
	if err := c.RemoveServerStream(ctx, "door"); err != nil {
		t.Error(err)
	}
	wantCode(t, c.RemoveServerStream(ctx, "door"), stream.NotFound)
	wantCode(t, c.RemoveServerStream(ctx, ""), stream.InvalidArgument)
	_, err = c.ServerStream(ctx, "")
	wantCode(t, err, stream.InvalidArgument)
}

// A reply of a server other than Millrace is an error.
func TestServerStreamsOfAForeignServer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>"))
	}))
	defer srv.Close()
	c, err := client.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.ServerStreams(context.Background())
	wantCode(t, err, stream.Internal)
}
