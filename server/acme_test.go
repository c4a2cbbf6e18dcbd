package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"millrace/config"
	"millrace/internal/child"
	"millrace/internal/testbuild"
	"millrace/workers"
)

// pebble is a running certificate authority, which resolves every name to an address of this machine.
type pebble struct {
	directory string // URL
	ca        string // a file with the certificate of the directory
	manage    string // URL of its management interface

	to      atomic.Pointer[string] // target of port 443 of all names; nil = connections are closed at once
	checked atomic.Int64           // connections to port 443
	process *child.Process
}

func startPebble(t *testing.T) *pebble {
	t.Helper()
	path := testbuild.Peer(t, "pebble")
	p := &pebble{}
	door := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { door.Close() })
	go func() { // ends with the listener
		for {
			c, err := door.Accept()
			if err != nil {
				return
			}
			p.checked.Add(1)
			go p.lead(c)
		}
	}()
	dns := names(t)
	dir := t.TempDir()
	cert, key, err := makeCertificate([]string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p.ca = filepath.Join(dir, "cert.pem")
	keyFile, file := filepath.Join(dir, "key.pem"), filepath.Join(dir, "pebble.json")
	for range 5 { // another program may take a port before its use
		directory, manage := freeAddress(t), freeAddress(t)
		p.directory, p.manage = "https://"+directory+"/dir", "https://"+manage
		text := must(json.Marshal(map[string]any{"pebble": map[string]any{
			"listenAddress": directory, "managementListenAddress": manage, "certificate": p.ca, "privateKey": keyFile,
			"httpPort": 1, "tlsPort": door.Addr().(*net.TCPAddr).Port,
			"domainBlocklist": []string{"blocked.example.org"},
			"retryAfter":      map[string]int{"authz": 1, "order": 1},
			"profiles": map[string]any{"default": map[string]any{"description": "the only one",
				"validityPeriod": 90 * 24 * 3600}},
		}}))
		for name, content := range map[string][]byte{p.ca: cert, keyFile: key, file: text} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p.process, err = child.Start(context.Background(), child.Spec{
			Path: path, Args: []string{"-config", file, "-dnsserver", dns},
			Env: append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=5"),
		})
		if err != nil {
			t.Fatal(err)
		}
		if p.answers() {
			t.Cleanup(func() { _ = p.process.Stop(0) })
			return p
		}
		_ = p.process.Stop(0)
	}
	t.Fatalf("pebble did not start: %s", p.process.Stderr())
	return nil
}

// answers waits until pebble answers, and reports success.
func (p *pebble) answers() bool {
	for {
		if c, err := net.Dial("tcp", strings.TrimPrefix(p.manage, "https://")); err == nil {
			c.Close()
			return true
		}
		select {
		case <-p.process.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *pebble) lead(c net.Conn) {
	defer c.Close()
	to := p.to.Load()
	if to == nil {
		return
	}
	s, err := net.Dial("tcp", *to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		_, _ = io.Copy(s, c)
		_ = s.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, s)
}

// root returns the certificate that signs the authority's certificates.
func (p *pebble) root(t *testing.T) *x509.CertPool {
	t.Helper()
	own := x509.NewCertPool()
	own.AppendCertsFromPEM(must(os.ReadFile(p.ca)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: own}}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get(p.manage + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(io.ReadAll(r.Body)))
	return roots
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// names is a DNS server over TCP that resolves all names to 127.0.0.1, with one query per connection.
func names(t *testing.T) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	go func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerName(c)
		}
	}()
	return l.Addr().String()
}

func answerName(c net.Conn) {
	defer c.Close()
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	var m dnsmessage.Message
	if _, err := io.ReadFull(c, question); err != nil || m.Unpack(question) != nil || len(m.Questions) != 1 {
		return
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type,
			Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	}
	if text, err := m.Pack(); err == nil {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
}

// said receives the lines of a log.
type said chan string

func (said) Enabled(context.Context, slog.Level) bool { return true }
func (s said) WithAttrs([]slog.Attr) slog.Handler     { return s }
func (s said) WithGroup(string) slog.Handler          { return s }

func (s said) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	select {
	case s <- text:
	default:
	}
	return nil
}

// startACME starts a server with certificates of the authority, and returns the log about the certificates. startACME
// calls open before the first request to the authority.
func startACME(t *testing.T, c config.ACME, open func(addr string)) (s *Server, log said, stop func()) {
	t.Helper()
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", TLS: config.TLS{ACME: c},
		Models: []workers.Config{{Name: "id", Source: "identity"}}})
	if err != nil {
		t.Fatal(err)
	}
	open(s.Addr("http"))
	log = make(said, 100)
	s.connections.tls.authority.log = slog.New(log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	return s, log, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestACME gets certificates from an authority for the HTTP and gRPC listeners. A restart keeps the certificates, and
// names outside the configuration are refused.
func TestACME(t *testing.T) {
	authority := startPebble(t)
	c := config.ACME{
		Domains: []string{"models.example.org", "other.example.org"}, Email: "ops@example.org", AcceptTerms: true,
		Cache:     filepath.Join(t.TempDir(), "acme"),
		Directory: authority.directory, DirectoryCA: authority.ca,
	}
	s, log, stop := startACME(t, c, func(addr string) { authority.to.Store(&addr) })
	for range c.Domains {
		if line := <-log; !strings.Contains(line, "a name has a certificate") {
			t.Fatal(line)
		}
	}
	trust := &tls.Config{RootCAs: authority.root(t), ServerName: "models.example.org"}
	serial := check(t, s, trust)
	if st := must(os.Stat(c.Cache)); st.Mode().Perm() != 0o700 {
		t.Errorf("the folder of keys has mode %v", st.Mode())
	}
	for _, e := range must(os.ReadDir(c.Cache)) {
		if st := must(e.Info()); st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", e.Name(), st.Mode())
		}
	}
	if leaf, isLate, err := ACMECertificate(c, "models.example.org", time.Now()); err != nil || isLate ||
		leaf.SerialNumber.String() != serial {
		t.Errorf("in the cache: %v %v %v", leaf, isLate, err)
	}
	if _, isLate, err := ACMECertificate(c, "models.example.org", time.Now().Add(80*24*time.Hour)); err != nil ||
		!isLate {
		t.Errorf("in 80 days: %v %v", isLate, err)
	}
	checked := authority.checked.Load()

	for what, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"a name that is not configured": {&tls.Config{ServerName: "third.example.org"}, "unrecognized name"},
		"a challenge that is not there": {&tls.Config{ServerName: "models.example.org",
			NextProtos: []string{acme.ALPNProto}}, "internal error"},
	} {
		for _, listener := range []string{"http", "grpc"} {
			if conn, err := tls.Dial("tcp", s.Addr(listener), c.config); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s at %s: %v %v, want %s", what, listener, conn, err, c.want)
			}
		}
	}
	probe := must(tls.Dial("tcp", s.Addr("http"), &tls.Config{InsecureSkipVerify: true})) // by address
	probe.Close()
	stop()

	// The next server has the certificates also without the authority.
	if err := authority.process.Stop(0); err == nil {
		t.Log("pebble has ended by itself")
	}
	s, _, stop = startACME(t, c, func(string) {})
	if again := check(t, s, trust); again != serial {
		t.Errorf("the certificate is %s, was %s", again, serial)
	}
	stop()
	if n := authority.checked.Load(); n != checked {
		t.Errorf("%d connections of the authority or others while the certificates were there", n-checked)
	}
}

// check looks at both listeners, and returns the number of the certificate.
func check(t *testing.T, s *Server, trust *tls.Config) string {
	t.Helper()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Addr("http"))
	}
	transport := &http.Transport{TLSClientConfig: trust, DialContext: dial}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get("https://models.example.org/v2")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("the name of the certificate as Host: %s", r.Status)
	}
	if renewalOverdue(r.TLS.PeerCertificates[0], time.Now()) {
		t.Error("a new certificate is late")
	}
	conn := must(grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(credentials.NewTLS(trust)),
		grpc.WithAuthority("models.example.org")))
	defer conn.Close()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	return r.TLS.PeerCertificates[0].SerialNumber.String()
}

// TestACMEErrors: the log has the authority's errors, with advice.
func TestACMEErrors(t *testing.T) {
	authority := startPebble(t)
	for _, c := range []struct {
		name   string
		change func(*config.ACME)
		want   []string
	}{
		{"port 443 leads nowhere", func(*config.ACME) {},
			[]string{"name=models.example.org", "urn:ietf:params:acme:error:",
				"port 443 of models.example.org has to lead"}},
		{"name that is refused", func(c *config.ACME) {
			c.Domains = []string{"blocked.example.org"}
		}, []string{"rejectedIdentifier", "does not give certificates for this name: check tls.acme.domains"}},
		{"unknown certificate of the directory", func(c *config.ACME) {
			c.DirectoryCA = ""
		}, []string{"certificate signed by unknown authority", "set tls.acme.directory_ca"}},
		{"directory that is not there", func(c *config.ACME) {
			c.Directory = "https://" + freeAddress(t) + "/dir"
		}, []string{"connection refused", "check tls.acme.directory"}},
		{"another page", func(c *config.ACME) { c.Directory = authority.directory + "/none" }, []string{"404"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := config.ACME{
				Domains: []string{"models.example.org"}, AcceptTerms: true, Cache: t.TempDir(),
				Directory: authority.directory, DirectoryCA: authority.ca,
			}
			if err := os.Chmod(a.Cache, 0o700); err != nil {
				t.Fatal(err)
			}
			c.change(&a)
			_, log, stop := startACME(t, a, func(string) {})
			line := <-log
			for _, want := range append(c.want, "a name has no certificate", "again in=2m0s") {
				if !strings.Contains(line, want) {
					t.Errorf("%q has no %q", line, want)
				}
			}
			stop()
		})
	}

	// Each name has its own reason.
	a := config.ACME{AcceptTerms: true, Cache: filepath.Join(t.TempDir(), "acme"), Directory: authority.directory,
		DirectoryCA: authority.ca}
	for i := range 4 {
		a.Domains = append(a.Domains, fmt.Sprintf("models-%d.example.org", i), fmt.Sprintf("%d.blocked.example.org", i))
	}
	_, log, stop := startACME(t, a, func(string) {})
	defer stop()
	for range a.Domains {
		line := <-log
		blocked, refused := strings.Contains(line, "blocked.example.org ") ||
			strings.Contains(line, "blocked.example.org\" "), strings.Contains(line, "rejectedIdentifier")
		if !strings.Contains(line, "a name has no certificate") || blocked != refused {
			t.Errorf("the reason is that of another name: %s", line)
		}
	}
}

// TestACMEEndsWithTheServer: the end of the server does not wait for an unresponsive authority.
func TestACMEEndsWithTheServer(t *testing.T) {
	asked := make(chan struct{})
	first := sync.OnceFunc(func() { close(asked) })
	authority := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		first()
		<-r.Context().Done()
	}))
	defer authority.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, _, stop := startACME(t, config.ACME{
		Domains: []string{"models.example.org"}, AcceptTerms: true, Cache: filepath.Join(t.TempDir(), "acme"),
		Directory: authority.URL, DirectoryCA: ca,
	}, func(string) {})
	<-asked
	ended := make(chan struct{})
	go func() {
		stop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the server waits for the authority")
		<-ended
	}
}

// TestACMERenews: the server serves a certificate with less than a third of its lifetime left at the start, and
// replaces the certificate at once by a new certificate of the authority, without a restart.
func TestACMERenews(t *testing.T) {
	authority := startPebble(t)
	c := config.ACME{
		Domains: []string{"models.example.org"}, AcceptTerms: true, Cache: filepath.Join(t.TempDir(), "acme"),
		Directory: authority.directory, DirectoryCA: authority.ca,
	}
	if err := os.Mkdir(c.Cache, 0o700); err != nil {
		t.Fatal(err)
	}
	old, key, err := makeCertificate(c.Domains, time.Now().Add(7*24*time.Hour-ownValidity))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Cache, c.Domains[0]), append(key, old...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, isLate, err := ACMECertificate(c, c.Domains[0], time.Now()); err != nil || !isLate {
		t.Fatalf("%v, late: %v", err, isLate)
	}
	s, _, stop := startACME(t, c, func(addr string) { authority.to.Store(&addr) })
	defer stop()
	trust := &tls.Config{RootCAs: authority.root(t), ServerName: c.Domains[0]}
	serial := ""
	eventually(t, func() bool {
		conn, err := tls.Dial("tcp", s.Addr("http"), trust)
		if err != nil {
			var unknown x509.UnknownAuthorityError
			if !errors.As(err, &unknown) { // of the cached certificate
				t.Fatal(err)
			}
			return false
		}
		defer conn.Close()
		serial = conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
		return true
	})
	leaf, isLate, err := ACMECertificate(c, c.Domains[0], time.Now())
	if err != nil || isLate || leaf.SerialNumber.String() != serial {
		t.Errorf("in the cache: %v, late: %v, %v", err, isLate, leaf)
	}
}

// TestLate: a certificate is late hours after autocert should have renewed the certificate.
func TestLate(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for _, c := range []struct {
		life, age time.Duration
		want      bool
	}{
		{90 * day, 60 * day, false}, {90 * day, 60*day + 7*time.Hour, true}, {90 * day, 91 * day, true},
		{6 * day, 4 * day, false}, {6 * day, 5 * day, true}, {9 * time.Hour, 7 * time.Hour, false},
		{9 * time.Hour, 8 * time.Hour, true},
	} {
		cert := &x509.Certificate{NotBefore: from, NotAfter: from.Add(c.life)}
		if got := renewalOverdue(cert, from.Add(c.age)); got != c.want {
			t.Errorf("of %v after %v: %v", c.life, c.age, got)
		}
	}
}

// TestACMERefused: New refuses a folder of keys readable by others, and unusable files.
func TestACMERefused(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	junk := filepath.Join(open, "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		acme config.ACME
		want string
	}{
		{config.ACME{Cache: open}, "tls.acme.cache: other users of this machine can read"},
		{config.ACME{Cache: filepath.Join(junk, "x")}, "tls.acme.cache: "},
		{config.ACME{Cache: filepath.Join(open, "new"), DirectoryCA: junk},
			fmt.Sprintf("tls.acme.directory_ca: %s has no certificate", junk)},
	} {
		c.acme.Domains, c.acme.AcceptTerms = []string{"models.example.org"}, true
		if _, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, TLS: config.TLS{ACME: c.acme}}); err == nil ||
			!strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
