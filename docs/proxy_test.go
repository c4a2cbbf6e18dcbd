package docs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/inferencepb"
	"millrace/internal/testneeds"
	"millrace/server"
)

// proxied is the name of the server in deploy.md.
const proxied = "models.example.org"

// TestNginx runs a real nginx with the block of deploy.md in front of a server: clients cannot forge their address by
// a header, cookies of sessions are for encrypted connections only, and clients cannot read the metrics.
func TestNginx(t *testing.T) {
	t.Run("keys", func(t *testing.T) {
		dir := t.TempDir()
		users, audit := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "audit.log")
		if err := access.WriteUsers(users, []access.User{{Name: "eva", Password: access.HashPassword("secret"),
			Grant: access.Grant{Roles: []string{"infer"}}}}); err != nil {
			t.Fatal(err)
		}
		p := startNginx(t, fmt.Sprintf("auth: {users: %q}\naudit: %q\n", users, audit))
		guesser := p.client("127.0.0.2")
		var got int
		for i := 0; i < 500 && got != 429; i++ {
			if got, _ = p.ask(t, guesser, "POST", "/login", "api_key: wrong", forged(i)...); got != 401 && got != 429 {
				t.Fatalf("a wrong login: %d", got)
			}
		}
		if got != 429 {
			t.Error("a client that invents addresses can try passwords without a bound")
		}
		owner := p.client("127.0.0.3")
		got, head := p.ask(t, owner, "POST", "/session_login", "Authorization: Basic ZXZhOnNlY3JldA==", forged(0)...)
		if cookie := head.Get("Set-Cookie"); got != 200 || !strings.Contains(strings.ToLower(cookie), "; secure") {
			t.Errorf("a login from another address: %d %q, want 200 and a cookie that is Secure", got, cookie)
		}
		text, err := os.ReadFile(audit)
		if err != nil {
			t.Fatal(err)
		}
		addresses := map[string]int{}
		for _, m := range regexp.MustCompile(`"address":"([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			addresses[m[1]]++
		}
		if len(addresses) != 2 || addresses["127.0.0.2"] == 0 || addresses["127.0.0.3"] != 1 {
			t.Errorf("the addresses of the audit log: %v, want those of the two clients", addresses)
		}
		for _, path := range []string{"/metrics", "/metrics/", "/%6detrics", "/metrics%2f", "/./metrics",
			"/metrics?x=1"} {
			if got, _ := p.ask(t, owner, "GET", path, ""); got < 400 {
				t.Errorf("%s: %d, want a refusal", path, got)
			}
		}
	})
	t.Run("addresses", func(t *testing.T) { // 3 requests and calls of each
		p := startNginx(t, "quotas: {requests: 0.001, burst: 1h}\n")
		for i, want := range []int{200, 200, 200, 429, 429} {
			if got, _ := p.ask(t, p.client("127.0.0.2"), "GET", "/v2/models/echo", "", forged(i)...); got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		if got, _ := p.ask(t, p.client("127.0.0.3"), "GET", "/v2/models/echo", ""); got != 200 {
			t.Errorf("a request of another client: %d", got)
		}
		call := func(from string, headers ...string) codes.Code {
			conn, err := grpc.NewClient("passthrough:///"+p.addr,
				grpc.WithTransportCredentials(credentials.NewTLS(p.tls.Clone())),
				grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
					return dialer(from).DialContext(ctx, "tcp", addr)
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx := t.Context()
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), value)
			}
			_, err = inferencepb.NewGRPCInferenceServiceClient(conn).ModelMetadata(ctx,
				&inferencepb.ModelMetadataRequest{Name: "echo"})
			return status.Code(err)
		}
		for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted,
			codes.ResourceExhausted} {
			if got := call("127.0.0.4", forged(i)...); got != want {
				t.Errorf("call %d: %v, want %v", i, got, want)
			}
		}
		if got := call("127.0.0.5"); got != codes.OK {
			t.Errorf("a call of another client: %v", got)
		}
	})
}

// TestNginxBelowAPath runs nginx with the block of deploy.md, changed as the page says for a server below a path:
// redirects of pages, logins and logouts lead below the path, and the metrics are not for clients.
func TestNginxBelowAPath(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	if err := access.WriteUsers(users, []access.User{{Name: "eva", Password: access.HashPassword("secret"),
		Grant: access.Grant{Roles: []string{"infer"}}}}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	changes := [][2]string{
		{"location / {", "location /ai/ {"},
		{"proxy_pass http://127.0.0.1:8000;", "proxy_pass http://127.0.0.1:8000/;"},
		{"location ^~ /metrics { deny all; }", "location ^~ /ai/metrics { deny all; }"},
	}
	for _, c := range changes {
		if told := strings.TrimSuffix(c[1], " {"); !strings.Contains(string(page), "`"+told+"`") {
			t.Fatalf("deploy.md does not say `%s`", told)
		}
	}
	const cookies = "proxy_cookie_path / /ai/;"
	if !strings.Contains(string(page), "`"+cookies+"`") {
		t.Fatalf("deploy.md does not say `%s`", cookies)
	}
	changes = append(changes, [2]string{"proxy_read_timeout 1h;", "proxy_read_timeout 1h; " + cookies})
	p := startNginx(t, fmt.Sprintf("auth: {users: %q}\n", users), changes...)
	c := p.client("127.0.0.2")
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	const login = "Authorization: Basic ZXZhOnNlY3JldA=="
	for _, want := range []struct {
		path, header string
		status       int
		to           string
	}{
		{"/ai/", "", 302, "/ai/console/"},
		{"/ai", "", 301, "/ai/"},
		{"/ai/console", "", 302, "/ai/console/"},
		{"/ai/console/", "", 200, ""},
		{"/ai/docs", "", 302, "/ai/docs/"},
		{"/ai/session_login", login, 307, "/ai/"},
		{"/ai/session_logout", "", 307, "/ai/"},
		{"/ai/metrics", "", 403, ""},
		{"/console/", "", 404, ""},
	} {
		status, head := p.ask(t, c, "GET", want.path, want.header)
		to := ""
		if at := head.Get("Location"); at != "" {
			u, err := (&url.URL{Scheme: "https", Host: proxied, Path: want.path}).Parse(at)
			if err != nil || u.Scheme != "https" || u.Hostname() != proxied {
				t.Errorf("%s leads to %q (%v)", want.path, at, err)
				continue
			}
			to = u.Path
		}
		if status != want.status || to != want.to {
			t.Errorf("%s: %d to %q, want %d to %q", want.path, status, to, want.status, want.to)
		}
		for _, set := range head.Values("Set-Cookie") {
			cookie, err := http.ParseSetCookie(set)
			if err != nil || cookie.Path != "/ai/" {
				t.Errorf("%s sets the cookie %q (%v), want the path /ai/", want.path, set, err)
			}
		}
		if want.header == login && len(head.Values("Set-Cookie")) == 0 {
			t.Errorf("%s sets no cookie", want.path)
		}
	}
}

// forged returns headers with a forged client address, different for each i.
func forged(i int) []string {
	a := fmt.Sprintf("203.0.113.%d", i%250)
	return []string{"X-Forwarded-For: " + a, "X-Forwarded-For: 192.0.2.1, " + a, "X-Real-IP: " + a,
		"Forwarded: for=" + a + ";proto=http", "X-Forwarded-Proto: http", "X-Forwarded-Host: evil.example"}
}

// proxy is a proxy in front of a server.
type proxy struct {
	addr string
	tls  *tls.Config // for the proxy's clients
}

func dialer(from string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
}

// client returns a client with an address of the loopback network.
func (p *proxy) client(from string) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: p.tls, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer(from).DialContext(ctx, "tcp", p.addr)
		}}}
}

// ask sends a request and returns the status and the header of the answer. A header is "" or NAME: VALUE.
func (p *proxy) ask(t *testing.T, c *http.Client, method, path, header string, more ...string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, "https://"+proxied, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque = path
	for _, h := range append(more, header) {
		if name, value, found := strings.Cut(h, ": "); found {
			req.Header.Add(name, value)
		}
	}
	if header != "" && strings.HasPrefix(header, "api_key: ") { // nginx drops names with an underscore
		req.Header.Set("Authorization", "Bearer "+strings.TrimPrefix(header, "api_key: "))
	}
	r, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode, r.Header
}

// startNginx starts a server with the proxy settings of deploy.md and the given settings, and nginx with the block of
// deploy.md. startNginx first applies changes, each a text and its replacement, and then replaces the addresses and
// file names of the block.
func startNginx(t *testing.T, settings string, changes ...[2]string) *proxy {
	t.Helper()
	page, err := os.ReadFile("deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindSubmatch(page)
		if m == nil {
			t.Fatalf("deploy.md has no text %s", pattern)
		}
		return string(m[1])
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "millrace.yaml")
	text := find(`(?s)\n## Behind a proxy\n[^\n]*\n\n(.*?)\nnginx:\n`)
	text = regexp.MustCompile("(?m)^    ").ReplaceAllString(text, "") +
		"http: 127.0.0.1:0\ngrpc: 127.0.0.1:0\nlog: {level: error}\nmodels: [{name: echo, source: identity}]\n" +
		settings
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-served:
		served <- nil
		t.Fatal(err)
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: ln.Addr().String()}
	cert, key := filepath.Join(dir, "models.pem"), filepath.Join(dir, "models.key")
	p.tls = certify(t, cert, key)
	block := find(`(?s)\nnginx:\n\n(.*?)\nCaddy`)
	for _, change := range append(changes, [][2]string{
		{"listen 443 ", "listen " + p.addr + " "}, {"/etc/ssl/models.pem", cert}, {"/etc/ssl/models.key", key},
		{"http://127.0.0.1:8000", "http://" + s.Addr("http")}, {"grpc://127.0.0.1:8001", "grpc://" + s.Addr("grpc")},
	}...) {
		if strings.Count(block, change[0]) != 1 {
			t.Fatalf("the block of nginx in deploy.md has not once %q", change[0])
		}
		block = strings.Replace(block, change[0], change[1], 1)
	}
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // root can read the folder
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil,
		"daemon off;\n%sworker_processes 1;\npid %s;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", user,
		filepath.Join(dir, "pid"), temp, block), 0o600); err != nil {
		t.Fatal(err)
	}
	program := testneeds.Program(t, "nginx")
	// nginx takes over the listener, so that no other process can take the port meanwhile, and clients can connect
	// already.
	socket, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "-e", "stderr", "-p", dir, "-c", conf)
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(os.Environ(), "NGINX=3;"), []*os.File{socket}, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (`scripts/deps.sh test` installs it)", err)
	}
	_ = socket.Close()
	_ = ln.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("nginx: %v: %s", err, out.String())
		}
	})
	return p
}

// certify writes a certificate for proxied and its key, and returns a client's configuration that trusts the
// certificate.
func certify(t *testing.T, cert, key string) *tls.Config {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{proxied},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return &tls.Config{RootCAs: roots, ServerName: proxied}
}
