package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/client"
	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/server"
	"millrace/stream"
)

// serveWithKeys runs a server whose clients need keys, and returns the address, a key with the role infer, and an
// expired key.
func serveWithKeys(t *testing.T) (addr, key, expired string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	k, key := access.NewKey("camera", access.Grant{Roles: []string{"infer"}})
	old, expired := access.NewKey("old", access.Grant{Roles: role.All.Names(), Expires: time.Unix(1, 0)})
	if err := access.WriteKeys(file, []access.Key{k, old}); err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC, cfg.Auth.Keys = "127.0.0.1:0", server.Off, file
	if err := cfg.AddModels("echo=identity"); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	return s.Addr("http"), key, expired
}

// A client with a key has the rights of its role, over REST and in sessions; a client without a key or with an
// expired key gets an error with the reason.
func TestToken(t *testing.T) {
	addr, key, expired := serveWithKeys(t)
	with := func(key string) *client.Client {
		t.Helper()
		c, err := client.NewWith(addr, client.Options{Token: key})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	request := client.Request{Inputs: []stream.Tensor{fp32("x", 1, 2)}}
	for name, key := range map[string]string{"none": "", "expired": expired, "unknown": key[:len(key)-2] + "AA"} {
		c := with(key)
		_, err := c.Infer(t.Context(), "echo", request)
		wantCode(t, err, stream.Unauthenticated)
		if key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%s: the error has the key: %v", name, err)
		}
		_, err = c.Session(t.Context(), client.SessionOptions{})
		wantCode(t, err, stream.Unauthenticated)
		if _, err := c.Health(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := with(key)
	if a, err := c.Infer(t.Context(), "echo", request); err != nil || len(a.Outputs) != 1 {
		t.Errorf("%v %v", a, err)
	}
	s := session(t, c, client.SessionOptions{})
	st := openStream(t, s, "echo", client.StreamOptions{Codec: "opaque"})
	if _, err := st.Send(t.Context(), client.Frame{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if r := <-st.Replies(); len(r.Outputs) != 1 {
		t.Errorf("%+v", r)
	}
	err := c.Unload(t.Context(), "echo")
	wantCode(t, err, stream.PermissionDenied)

	// A header of the session is sent in place of the key.
	_, err = c.Session(t.Context(), client.SessionOptions{Header: http.Header{"Authorization": {"Bearer " + expired}}})
	wantCode(t, err, stream.Unauthenticated)
}

// A key not allowed in a header is refused before sending.
func TestTokenForm(t *testing.T) {
	for _, key := range []string{"a b", "a\r\nX: y", "é", "a\x00"} {
		_, err := client.NewWith("127.0.0.1:1", client.Options{Token: key})
		wantCode(t, err, stream.InvalidArgument)
	}
}

// A redirect to another address does not take the key along.
func TestTokenIsNotRedirected(t *testing.T) {
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("{}"))
	}))
	defer other.Close()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		if r.URL.Path == "/v2" {
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		} else {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}
	}))
	defer h.Close()
	c, err := client.NewWith(h.URL, client.Options{Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"Bearer secret", "Bearer secret", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
