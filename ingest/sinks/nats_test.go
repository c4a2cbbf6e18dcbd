//go:build unix

package sinks

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startNATS starts a nats-server; a port of 0 is a free port.
func startNATS(t testing.TB, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoSigs, o.NoLog, o.NoSystemAccount = "127.0.0.1", true, true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { stopNATS(s) })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not listen")
	}
	return s
}

func stopNATS(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func runBatches(t *testing.T, c Settings, e Env) *running {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.Stream, e.Log = "door.1", slog.New(slog.DiscardHandler)
	r := &running{Sink: Open(c, e), t: t, stop: cancel, ended: make(chan struct{})}
	go func() { defer close(r.ended); r.Run(ctx) }()
	t.Cleanup(func() { r.once.Do(r.Close); cancel(); <-r.ended })
	return r
}

func event(i int) []byte { return fmt.Appendf(nil, `{"id":"e%d","x":1}`, i) }

// Without JetStream, a subscriber gets each result once and in order. A result that the server does not take is lost,
// with the reason.
func TestNATS(t *testing.T) {
	srv := startNATS(t, server.Options{MaxPayload: 4096})
	conn, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sub, err := conn.SubscribeSync("millrace.*.results")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := runBatches(t, &NATS{URL: srv.ClientURL()}, Env{})
	const n = 300
	for i := range n {
		s.Write(seq(i))
	}
	s.Write([]byte(`{"x":"` + strings.Repeat("x", 5000) + `"}`))
	s.until("the loss", func(st Stats) bool {
		return st.Sent == n && st.Lost == 1 && strings.Contains(st.Error, "the server takes 4096 bytes")
	})
	s.Write(seq(n))
	for i := range n + 1 {
		m, err := sub.NextMsg(patience)
		if err != nil || m.Subject != "millrace.door%2E1.results" || string(m.Data) != string(seq(i)) {
			t.Fatalf("%d: %+v, %v", i, m, err)
		}
	}
	s.close()
	if st := s.Stats(); st.Sent != n+1 || st.Lost != 1 || st.Error != "" {
		t.Errorf("%+v", st)
	}
}

// JetStream has each event once, in order and under its id, although the server is away for a while and events come
// again.
func TestNATSJetStream(t *testing.T) {
	o := server.Options{JetStream: true, StoreDir: t.TempDir()}
	srv := startNATS(t, o)
	stream := func() jetstream.Stream {
		t.Helper()
		conn, err := nats.Connect(srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		st, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "events",
			Subjects: []string{"cameras.>"}})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	stream()
	o.Port = srv.Addr().(*net.TCPAddr).Port
	s := runBatches(t, &NATS{URL: srv.ClientURL(), Send: sendEvents, Subject: "cameras.door"}, Env{Keeps: true})
	for i := range 10 {
		s.Write(event(i))
	}
	s.until("sent", func(st Stats) bool { return st.Sent == 10 })
	stopNATS(srv)
	for i := range 10 {
		s.Write(event(10 + i))
	}
	s.until("a failure", func(st Stats) bool { return strings.HasPrefix(st.Error, "sinks.nats: ") })
	srv = startNATS(t, o)
	for i := range 20 { // the first again, as after a restart
		s.Write(event(i))
	}
	s.until("sent after the restart", func(st Stats) bool { return st.Sent == 40 && st.Error == "" })
	s.close()
	st := stream()
	info, err := st.Info(t.Context())
	if err != nil || info.State.Msgs != 20 {
		t.Fatalf("%+v, %v", info, err)
	}
	for i := range 20 {
		m, err := st.GetMsg(t.Context(), uint64(i+1))
		if err != nil || string(m.Data) != string(event(i)) || m.Header.Get("Nats-Msg-Id") != fmt.Sprintf("e%d", i) {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	if st := s.Stats(); st.Sent != 40 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// TLS, passwords and rights: a right address works, and each wrong part is named.
func TestNATSAccess(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir, "ca")
	certificate(t, dir, "other")
	ca := filepath.Join(dir, "ca.pem")
	config, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: ca, KeyFile: filepath.Join(dir, "ca.key")})
	if err != nil {
		t.Fatal(err)
	}
	secured := startNATS(t, server.Options{Username: "door", Password: "right%", TLSConfig: config, TLS: true})
	limited := startNATS(t, server.Options{Users: []*server.User{{Username: "door", Password: "right",
		Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"millrace.>"}}}}}})
	at := secured.Addr().String()
	for name, c := range map[string]struct {
		NATS
		failure string
	}{
		"right":          {NATS{URL: "tls://door:right%25@" + at, CA: ca}, ""},
		"wrong password": {NATS{URL: "tls://door:wrong@" + at, CA: ca}, "refuses the user or the password"},
		"authority":      {NATS{URL: "tls://door:right%25@" + at, CA: filepath.Join(dir, "other.pem")}, "certificate"},
		"no authority":   {NATS{URL: "tls://door:right%25@" + at, CA: filepath.Join(dir, "ca.key")}, "sinks.nats_ca"},
		"no credentials": {NATS{URL: "tls://" + at, CA: ca, Credentials: filepath.Join(dir, "none")}, "none"},
		"no right":       {NATS{URL: "nats://door:right@" + limited.Addr().String()}, "may not publish to millrace"},
		"no TLS":         {NATS{URL: "tls://door:right@" + limited.Addr().String()}, "sinks.nats: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := runBatches(t, &c.NATS, Env{})
			s.Write(seq(0))
			if c.failure == "" {
				s.until("sent", func(st Stats) bool { return st.Sent == 1 && st.Error == "" })
				return
			}
			s.until(c.failure, func(st Stats) bool { return strings.Contains(st.Error, c.failure) })
			if text := s.Stats().Error; strings.Contains(text, "right") || strings.Contains(text, "wrong") {
				t.Errorf("the error has the password: %s", text)
			}
		})
	}
	s := runBatches(t, &NATS{URL: "nats://" + limited.Addr().String()}, Env{
		Allow: func(a netip.Addr) error { return fmt.Errorf("%v is private", a) }})
	s.until("a refusal", func(st Stats) bool { return strings.Contains(st.Error, "127.0.0.1 is private") })
}

// Each setting that would not work is refused by name.
func TestNATSSettings(t *testing.T) {
	for _, c := range []struct {
		NATS
		field string
	}{
		{NATS{URL: "nats://a", Subject: "x.y"}, ""},
		{NATS{URL: "tls://a:1", CA: "x", Credentials: "y"}, ""},
		{NATS{}, ""},
		{NATS{Subject: "x"}, "sinks.nats_subject"},
		{NATS{Send: sendEvents}, "sinks.nats_send"},
		{NATS{Credentials: "x"}, "sinks.nats_creds"},
		{NATS{URL: "nats://a", CA: "x"}, "sinks.nats_ca"},
		{NATS{URL: "nats://u:p@a", Credentials: "x"}, "sinks.nats_creds"},
		{NATS{URL: "mqtt://a"}, "sinks.nats"},
		{NATS{URL: "nats://a/b"}, "sinks.nats"},
		{NATS{URL: "nats://a:0"}, "sinks.nats"},
		{NATS{URL: "nats://a", Subject: "a.*"}, "sinks.nats_subject"},
		{NATS{URL: "nats://a", Subject: "a..b"}, "sinks.nats_subject"},
		{NATS{URL: "nats://a", Subject: "a b"}, "sinks.nats_subject"},
		{NATS{URL: "nats://a", Subject: "$JS.API"}, "sinks.nats_subject"},
		{NATS{URL: "nats://a", Subject: strings.Repeat("x", natsSubjectMax+1)}, "sinks.nats_subject"},
	} {
		err := c.Validate()
		if got := fmt.Sprint(err); c.field == "" && err != nil || c.field != "" && !strings.Contains(got, c.field+":") {
			t.Errorf("%+v: %v, want %q", c.NATS, err, c.field)
		}
	}
	if got := subjectOf("a.b*c>d e%", "events"); got != "millrace.a%2Eb%2Ac%3Ed%20e%25.events" {
		t.Error(got)
	}
}

// BenchmarkNATS publishes to a nats-server in this process, with and without JetStream on disk.
func BenchmarkNATS(b *testing.B) {
	srv := startNATS(b, server.Options{JetStream: true, StoreDir: b.TempDir()})
	conn, err := nats.Connect(srv.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "events", Subjects: []string{"cameras.>"}})
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, subject := range []string{"cameras.door", "core.door"} {
		b.Run(subject, func(b *testing.B) { benchmarkSink(b, &NATS{URL: srv.ClientURL(), Subject: subject}) })
	}
}
