package servertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/server"
	"millrace/workers"
)

// Until waits until ok returns true, for 30 seconds at most.
func Until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it has not come to be")
		}
	}
}

// PostJSON posts a body, and returns the status and the body of the answer.
func PostJSON(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Run starts a server on free ports; the returned function stops the server and returns Run's result.
func Run(t *testing.T, models ...workers.Config) (*server.Server, func() error) {
	t.Helper()
	return RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Models: models})
}

// RunWith is Run for a configuration.
func RunWith(t *testing.T, cfg server.Config) (*server.Server, func() error) {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("did not start: %v", err)
	}
	return s, func() error {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		return <-done
	}
}

// Get returns the status and the body of the answer at the path of the HTTP address.
func Get(t *testing.T, s *server.Server, path string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + s.Addr("http") + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// UnreadConfig configures a server with the model same, which returns the input, and a memory budget in bytes.
func UnreadConfig(budget int64) server.Config {
	return server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Memory: config.Memory{Budget: budget},
		Models: []workers.Config{{Name: "same", Source: "identity"}}}
}

// IsServed returns an error if a small request to the model same is not answered.
func IsServed(s *server.Server) error {
	r, err := http.Post("http://"+s.Addr("http")+"/v2/models/same/infer", "application/octet-stream",
		bytes.NewReader([]byte("text")))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", r.Status)
	}
	return nil
}
