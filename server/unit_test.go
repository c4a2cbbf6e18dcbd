package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/config"
	"millrace/ingest"
	"millrace/internal/accept"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/workers"
)

// silent returns a server without listeners that does not run.
func silent(t testing.TB, cfg Config) *Server {
	t.Helper()
	cfg.HTTP, cfg.GRPC = Off, Off
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.abandon)
	return s
}

// A missing model counts as loading while the server starts, if configured; as missing after the start; and as gone
// when the server drains.
func TestMissingModels(t *testing.T) {
	here, soon := workers.Config{Name: "here", Source: "identity"}, workers.Config{Name: "soon", Source: "identity"}
	s := silent(t, Config{Models: []workers.Config{here, soon}})
	if _, err := s.models.LoadConfig(t.Context(), here, true); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want map[string]stream.Code) {
		t.Helper()
		for name, code := range want {
			if g, err := s.group(name, ""); stream.CodeOf(err) != code || (g == nil) != (err != nil) {
				t.Errorf("%s, %s: %v, want %q", when, name, err, code)
			}
		}
	}
	check("at the start", map[string]stream.Code{"here": "", "soon": stream.Unavailable, "none": stream.NotFound})
	if st := (backend{s}).State(); st.Ready || st.Draining {
		t.Errorf("at the start: %+v", st)
	}
	s.life.loaded.Store(true)
	check("once started", map[string]stream.Code{"here": "", "soon": stream.NotFound, "none": stream.NotFound})
	if st := (backend{s}).State(); !st.Ready || st.Draining {
		t.Errorf("once started: %+v", st)
	}
	s.life.draining.Store(true)
	check("at the end", map[string]stream.Code{"here": "", "soon": stream.Draining, "none": stream.Draining})
	if st := (backend{s}).State(); !st.Draining {
		t.Errorf("at the end: %+v", st)
	}
}

func TestWorkersAreCountedForAllModels(t *testing.T) {
	s := silent(t, Config{})
	for name, n := range map[string]int{"a": 2, "b": 3} {
		if _, err := s.models.LoadConfig(t.Context(), workers.Config{Name: name, Source: "identity", Instances: n},
			true); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.measure().Goroutines["workers"]; n != 5 {
		t.Errorf("%d workers, want 5", n)
	}
}

// broken is an adapter that cannot serve.
type broken struct{}

func (broken) Name() string { return "broken" }

func (broken) Serve(context.Context, *ingest.Gate) error { return errors.New("out of order") }

func TestAdapterThatFailsEndsTheServer(t *testing.T) {
	s, err := New(Config{HTTP: Off, GRPC: Off})
	if err != nil {
		t.Fatal(err)
	}
	s.listening.adapters = append(s.listening.adapters, broken{})
	if err := s.Run(t.Context()); err == nil || err.Error() != "broken: out of order" {
		t.Errorf("%v", err)
	}
}

func TestReopenLog(t *testing.T) {
	if err := silent(t, Config{}).ReopenLog(); err != nil {
		t.Errorf("without a log file: %v", err)
	}
	file := filepath.Join(t.TempDir(), "log")
	s := silent(t, Config{Log: config.Log{File: file}})
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := s.ReopenLog(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "the log file was opened again") {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Rename(filepath.Dir(file), filepath.Dir(file)+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := s.ReopenLog(); err == nil || !strings.Contains(err.Error(), "log.file") {
		t.Errorf("without its folder: %v", err)
	}
	if text, _ := os.ReadFile(filepath.Dir(file) + ".gone/log"); strings.Count(string(text), "opened again") != 1 {
		t.Errorf("%q", text)
	}
}

func TestMetricsServerBeforeItListens(t *testing.T) {
	s := silent(t, Config{})
	m := s.observe.server(config.Metrics{Address: "127.0.0.1:0", Path: "/metrics"}, nil, &accept.Limit{},
		2*time.Minute, func(string, net.Addr) error {
			return nil
		}, s.guardHandler, role.Open)
	if err := m.Close(); err != nil || m.srv.ReadHeaderTimeout != 10*time.Second || m.srv.IdleTimeout != 2*time.Minute {
		t.Errorf("%v, %v for a header, %v between requests", err, m.srv.ReadHeaderTimeout, m.srv.IdleTimeout)
	}
	addr, err := m.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", addr.String()); err == nil {
		c.Close()
		t.Error("it listens after Close")
	}
}

func TestUnobservedRoutes(t *testing.T) {
	for route, want := range map[string]bool{"/metrics": true, "/v2/status": true, "/v2/health/live": true,
		"/v2/health/ready": true, "/v2/models/:model": false, "/": false} {
		if unobserved(route, "/metrics") != want {
			t.Errorf("%s: %v", route, !want)
		}
	}
}

// writePair writes a certificate for the name, with the modification time changed.
func writePair(t *testing.T, k *keyPair, name string, changed time.Time) {
	t.Helper()
	cert, key, err := makeCertificate([]string{name}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(k.cert, cert, 0o600), os.WriteFile(k.key, key, 0o600),
		os.Chtimes(k.cert, changed, changed)); err != nil {
		t.Fatal(err)
	}
}

// A certificate is read again after a change of its file, checked every ten seconds; unreadable files leave the
// certificate unchanged.
func TestRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k := &keyPair{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
		serves := func(when, name string) {
			t.Helper()
			if c, err := k.get(nil); err != nil || c.Leaf.VerifyHostname(name) != nil {
				t.Errorf("%s: not the certificate of %s: %v", when, name, err)
			}
		}
		if _, err := k.get(nil); stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("without files: %v", err)
		}
		day := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
		writePair(t, k, "first.test", day)
		serves("at first", "first.test")
		writePair(t, k, "second.test", day.Add(time.Hour))
		time.Sleep(9 * time.Second)
		serves("before it is looked at", "first.test")
		time.Sleep(time.Second)
		// the key's time is in the future of the bubble: its writing may go on
		serves("when it is found", "first.test")
		time.Sleep(10 * time.Second)
		serves("once two looks have found the same", "second.test")
		if err := errors.Join(os.WriteFile(k.cert, []byte("half"), 0o600), os.Chtimes(k.cert, day, day)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		serves("while it is written", "second.test")
		if err := os.Remove(k.cert); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		serves("without its file", "second.test")
		writePair(t, k, "fourth.test", day.Add(2*time.Hour))
		time.Sleep(10 * time.Second)
		serves("when it is found again", "second.test")
		time.Sleep(10 * time.Second)
		serves("renewed", "fourth.test")
	})
}

// A certificate of the server's own is for its names, is valid for a year, and is renewed with a week left.
func TestOwnCertificate(t *testing.T) {
	names := []string{"a.test", "192.0.2.7"}
	made := func(at time.Time) *x509.Certificate {
		t.Helper()
		text, key, err := makeCertificate(names, at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.X509KeyPair(text, key); err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const day = 24 * time.Hour
	now := time.Now()
	c := made(now)
	if !c.NotBefore.Before(now) || c.NotBefore.Before(now.Add(-day)) || c.NotAfter.Before(now.Add(364*day)) ||
		c.NotAfter.After(now.Add(366*day)) {
		t.Errorf("from %v to %v", c.NotBefore, c.NotAfter)
	}
	if c.IsCA || c.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("who trusts it trusts others that it signs")
	}
	for _, x := range []struct {
		name  string
		cert  *x509.Certificate
		names []string
		want  bool
	}{
		{"none", nil, nil, false},
		{"its names", c, names, true},
		{"some of its names", c, names[:1], true},
		{"one name more", c, append([]string{"b.test"}, names...), false},
		{"eight days left", made(now.Add(-357 * day)), names, true},
		{"six days left", made(now.Add(-359 * day)), names, false},
	} {
		if covers(x.cert, x.names) != x.want {
			t.Errorf("%s: %v", x.name, !x.want)
		}
	}
}

func TestOwnNames(t *testing.T) {
	got := ownNames([]string{"*", "cam.test", "localhost"})
	machine, _ := os.Hostname()
	for _, want := range append([]string{"localhost", "cam.test", machine}, Addresses()...) {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool {
			return s != want
		})); n != 1 && want != "" {
			t.Errorf("%s is there %d times in %q", want, n, got)
		}
	}
	if slices.Contains(got, "*") || slices.Contains(got, "") || !slices.IsSorted(got) {
		t.Errorf("%q", got)
	}
	network := func(ip string) net.Addr { return &net.IPNet{IP: net.ParseIP(ip)} }
	all := []net.Addr{network("192.0.2.7"), network("fe80::1"), network("169.254.1.1"), network("2001:db8::1"),
		&net.UnixAddr{}}
	if got, want := addressesOf(all), []string{"192.0.2.7", "2001:db8::1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if there, err := net.InterfaceAddrs(); err == nil && !slices.Equal(Addresses(), addressesOf(there)) {
		t.Errorf("%q, want those of %v", Addresses(), there)
	}
}

// A model of a polled repository with a failed load is retried after growing waits, and at once after a change of its
// files or of another model.
func TestPollTriesAgain(t *testing.T) {
	dir, logs := t.TempDir(), filepath.Join(t.TempDir(), "log")
	write := func(path, text string) {
		t.Helper()
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad/1/model.onnx", "torn")
	write("bad/config.pbtxt", "optimization {graph {level: 1}}") // logged at each attempt
	cfg := Config{Repository: config.Repository{Dir: dir, Mode: config.LoadPoll, Poll: time.Second}}
	cfg.Log.File = logs
	tries := func() int {
		text, err := os.ReadFile(logs)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "a model of the repository cannot be loaded"); n != 1 {
			t.Errorf("the error is logged %d times", n)
		}
		return strings.Count(string(text), "parts of a model's configuration are not used")
	}
	synctest.Test(t, func(t *testing.T) {
		s := silent(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.loader.loadRepository(ctx); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { s.loader.poll(ctx) })
		defer wg.Wait()
		defer cancel()
		time.Sleep(time.Hour)
		synctest.Wait()
		hour := tries()
		if hour < 12 || hour > 50 { // at the start, 7 to 9 times until the wait is the longest, then every 150 to 300 s
			t.Errorf("%d tries in an hour", hour)
		}
		write("other/config.yaml", "source: identity")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := tries() - hour; n < 1 || n > 4 { // a load of several models repeats while one of the models succeeds
			t.Errorf("%d tries after another model has come", n)
		}
	})
}
