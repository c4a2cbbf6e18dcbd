package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/workers"
)

// browser is a client with cookies, which follows no redirects.
type browser struct {
	*http.Client
	url string
}

func newBrowser(t *testing.T, url string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, url}
}

// ask sends a request; user is NAME:PASSWORD of HTTP Basic, or a key, or "".
func (b *browser) ask(t *testing.T, method, path, user string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, b.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if name, password, basic := strings.Cut(user, ":"); basic {
		req.SetBasicAuth(name, password)
	} else if user != "" {
		req.Header.Set(access.KeyName, user)
	}
	r, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(text)
}

// writeUsers writes a file with the users eva, who may infer, and boss, who may manage the models door-*.
func writeUsers(t *testing.T, file string) {
	t.Helper()
	if err := access.WriteUsers(file, []access.User{
		{Name: "eva", Password: access.HashPassword("secret of eva"), Grant: access.Grant{Roles: []string{"infer"}}},
		{Name: "boss", Password: access.HashPassword("secret of boss"),
			Grant: access.Grant{Roles: []string{"manage", "watch"}, Models: []string{"door-*"}}},
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSessions: a user logs in with a name and a password, acts with the roles of the entry, and is nobody after the
// logout or when the entry is gone.
func TestSessions(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, users)
	k := startKeyed(t, func(c *Config) { c.GRPC, c.Auth.Users = Off, users })
	b := newBrowser(t, k.URL("http"))
	want := func(what string, r *http.Response, text string, status int) {
		t.Helper()
		if r.StatusCode != status {
			t.Errorf("%s: %s %s, want %d", what, r.Status, text, status)
		}
	}
	for _, user := range []string{"", "eva:wrong", "nobody:secret of eva", "eva:"} {
		r, text := b.ask(t, "GET", "/session_login", user)
		want("login as "+user, r, text, 401)
		if !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Basic ") || len(r.Cookies()) != 0 {
			t.Errorf("login as %q: %v", user, r.Header)
		}
	}
	r, text := b.ask(t, "POST", "/session_login", "eva:wrong")
	want("a wrong login of a page", r, text, 401)
	if strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Basic ") { // the browser would ask the user
		t.Errorf("%v", r.Header)
	}
	r, text = b.ask(t, "GET", "/v2/models/echo", "eva:secret of eva")
	want("a password without a login", r, text, 401)
	r, text = b.ask(t, "POST", "/session_login", "eva:secret of eva")
	want("login", r, text, 200)
	var got who
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.User != "eva" ||
		strings.Join(got.Roles, " ") != "infer" {
		t.Errorf("%s %v", text, err)
	}
	if c := r.Cookies(); len(c) != 1 || c[0].Name != sessionName || !c[0].HttpOnly ||
		c[0].SameSite != http.SameSiteLaxMode || c[0].Secure || len(c[0].Value) < 26 {
		t.Errorf("%v", r.Header)
	}
	for path, status := range map[string]int{"/v2/models/echo": 200, "/session_status": 200, "/v2/status": 403} {
		r, text := b.ask(t, "GET", path, "")
		want(path, r, text, status)
	}
	if r, text := b.ask(t, "GET", "/session_status", ""); !strings.Contains(text, `"user_id":"eva"`) {
		t.Errorf("%s %s", r.Status, text)
	}
	stolen := newBrowser(t, k.URL("http"))
	for _, c := range b.Jar.Cookies(must(http.NewRequest("GET", b.url, nil)).URL) {
		stolen.Jar.SetCookies(must(http.NewRequest("GET", b.url, nil)).URL, []*http.Cookie{c})
	}
	r, text = b.ask(t, "POST", "/session_logout", "")
	want("logout", r, text, 204)
	for _, who := range []*browser{b, stolen} {
		r, text = who.ask(t, "GET", "/v2/models/echo", "")
		want("after the logout", r, text, 401)
	}
	r, text = b.ask(t, "GET", "/session_login", "boss:secret of boss")
	want("login of another", r, text, 307)
	if r.Header.Get("Location") != "./" {
		t.Errorf("%v", r.Header)
	}
	r, text = b.ask(t, "POST", "/v2/repository/models/echo/unload", "")
	want("a model of others", r, text, 403)
	r, text = b.ask(t, "GET", "/v2/models/door-1/stats", "")
	want("one's own model, which is not there", r, text, 404)
	list := must(access.ReadUsers(users))
	write := func(list []access.User) {
		t.Helper()
		if err := access.WriteUsers(users, list); err != nil {
			t.Fatal(err)
		}
		k.access.Recheck()
	}
	write(nil)
	r, text = b.ask(t, "GET", "/session_status", "")
	want("when the user was removed", r, text, 401)

	write(list)
	r, text = b.ask(t, "POST", "/session_login", "boss:secret of boss")
	want("login when the user is there again", r, text, 200)
	list[1].Password = access.HashPassword("secret of boss") // the same one again
	write(list)
	r, text = b.ask(t, "GET", "/session_status", "")
	want("when the password was set", r, text, 401)
	r, text = b.ask(t, "POST", "/session_login", "boss:secret of boss")
	want("login with the password that was set", r, text, 200)
	write(list[:1])
	list[1] = access.User{Name: "boss", Password: access.HashPassword("of another boss"),
		Grant: access.Grant{Roles: role.All.Names()}}
	write(list) // without a request in between
	r, text = b.ask(t, "GET", "/session_status", "")
	want("when another user has the name", r, text, 401)
}

// TestOtherSitesDoNotLogIn: a link or a picture on the page of another site neither begins a session with a key of
// its author, nor ends one.
func TestOtherSitesDoNotLogIn(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, users)
	k := startKeyed(t, func(c *Config) { c.GRPC, c.Auth.Users = Off, users })
	for _, path := range []string{"/login?api_key=" + k.keys["all"], "/session_login", "/logout", "/session_logout"} {
		for site, refused := range map[string]bool{"cross-site": true, "same-site": true, "same-origin": false,
			"none": false} {
			got, head := k.request(t, "GET", path, "Sec-Fetch-Site: "+site+"\r\n")
			if (got == 403) != refused || refused && head.Get("Set-Cookie") != "" {
				t.Errorf("%s from %s: %d %v", path, site, got, head)
			}
		}
	}
}

// TestSessionsOfKeys: a key begins a session, which has its role, does not prolong itself, and ends with the key.
func TestSessionsOfKeys(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.GRPC = Off })
	page := newBrowser(t, k.URL("http"))
	want := func(what string, r *http.Response, text string, status int) {
		t.Helper()
		if r.StatusCode != status {
			t.Errorf("%s: %s %s, want %d", what, r.Status, text, status)
		}
	}
	r, text := page.ask(t, "POST", "/login", "wrong")
	want("login with a wrong key", r, text, 401)
	r, text = page.ask(t, "POST", "/login?api_key="+k.keys["watch"], "")
	want("a key in the query of a page", r, text, 401)
	r, text = page.ask(t, "POST", "/login", k.keys["watch"])
	want("login with a key", r, text, 200)
	r, text = page.ask(t, "GET", "/v2/status", "")
	want("with the session of a key", r, text, 200)
	r, text = page.ask(t, "POST", "/login", "")
	want("a login with a session only, which would prolong itself", r, text, 401)
	k.all, _ = access.WithoutKey(k.all, "watch")
	k.write(t)
	k.access.Recheck()
	r, text = page.ask(t, "GET", "/v2/status", "")
	want("when the key was revoked", r, text, 401)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestLoginsAreBounded: an address can try to log in so often; behind a trusted proxy, each client has its own bound,
// and a client cannot give itself another address.
func TestLoginsAreBounded(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, users)
	try := func(k *keyed, forwarded string) int {
		t.Helper()
		status, head := k.request(t, "POST", "/login", "X-Forwarded-For: "+forwarded+"\r\napi_key: wrong\r\n")
		if status == 429 && head.Get("Retry-After") == "" {
			t.Error("a refusal does not say when to try again")
		}
		return status
	}
	refused := func(k *keyed, forwarded func(i int) string) (n int) {
		t.Helper()
		for i := range 30 {
			switch got := try(k, forwarded(i)); got {
			case 429:
				n++
			case 401:
			default:
				t.Errorf("%d", got)
			}
		}
		return n
	}
	// loopback is trusted
	behind := startKeyed(t, func(c *Config) { c.GRPC, c.Auth.Users = Off, users })
	// but for the burst, and some while the test runs
	if n := refused(behind, func(i int) string { return fmt.Sprintf("10.9.9.%d, 192.0.2.7", i) }); n < 10 {
		t.Errorf("%d of 30 attempts were refused", n)
	}
	if n := refused(behind, func(i int) string {
		return fmt.Sprintf("10.9.9.%d\r\nX-Forwarded-For: 192.0.2.9:%d", i, 1000+i)
	}); n < 10 {
		t.Errorf("with the proxy's address and port in a line of its own, %d of 30 attempts were refused", n)
	}
	if n := refused(behind, func(i int) string { return fmt.Sprintf("2001:db8::%x", i) }); n < 10 {
		t.Errorf("with addresses of one network of IPv6, %d of 30 attempts were refused", n)
	}
	if got := try(behind, "192.0.2.8"); got != 401 {
		t.Errorf("another address: %d", got)
	}
	direct := startKeyed(t, func(c *Config) { c.GRPC, c.Auth.Users, c.Proxies = Off, users, []string{"10.0.0.0/8"} })
	if n := refused(direct, func(i int) string { return fmt.Sprintf("192.0.2.%d", i) }); n < 10 {
		t.Errorf("of a client that is no proxy and invents addresses, %d of 30 attempts were refused", n)
	}
}

// TestLoginWithoutMemory: a login is refused when there is no memory for the check of the password.
func TestLoginWithoutMemory(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, users)
	// a check takes 64 MiB
	k := startKeyed(t, func(c *Config) { c.GRPC, c.Auth.Users, c.Memory.Budget = Off, users, 32<<20 })
	r, text := newBrowser(t, k.URL("http")).ask(t, "POST", "/session_login", "eva:secret of eva")
	if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(text, "memory.budget") ||
		k.access.Outcomes()["limited"] != 0 {
		t.Errorf("%s %s %v", r.Status, text, r.Header)
	}
}

// TestCookiesAreSecure: the cookie of a session is for encrypted connections where the server's is, or where a proxy
// of trusted_proxies says that of the client; others cannot choose it.
func TestCookiesAreSecure(t *testing.T) {
	for _, c := range []struct {
		name    string
		proxies []string
		tls     bool
		want    bool
	}{
		{"a proxy", nil, false, true}, // loopback is trusted
		{"a client", []string{"10.0.0.0/8"}, false, false},
		{"a client over TLS", []string{"10.0.0.0/8"}, true, true},
	} {
		k := startKeyed(t, func(cfg *Config) { cfg.GRPC, cfg.Proxies, cfg.TLS.SelfSigned = Off, c.proxies, c.tls })
		req, err := http.NewRequest("POST", k.URL("http")+"/login", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(access.KeyName, k.keys["infer"])
		req.Header.Set("X-Forwarded-Proto", "https")
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true}}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if got := r.Cookies(); len(got) != 1 || got[0].Secure != c.want {
			t.Errorf("%s: %s %v, want Secure %t", c.name, r.Status, got, c.want)
		}
	}
}

// TestLimitedToModels: a key that is limited to some models uses these, over each protocol, and is refused for
// others, whether or not they are there.
func TestLimitedToModels(t *testing.T) {
	k := startKeyed(t, func(c *Config) {
		c.Models = append(c.Models, workers.Config{Name: "door-1", Source: "identity"})
	})
	ask := func(method, path string) (int, string) {
		t.Helper()
		r, text := newBrowser(t, k.URL("http")).ask(t, method, path, k.keys["door"])
		return r.StatusCode, text
	}
	for path, want := range map[string]int{
		"/v2/models/door-1": 200, "/v2/models/door%2d1": 200, "/v2/models/echo": 403, "/v2/models/none": 403,
		"/v2/models/%65cho": 403, "/v2/models/door-9": 404, "/v2/models/door-1/stats": 200,
		"/v2/models/stats": 403, "/v2/status": 403, "/v2": 200, "/apps/echo": 403, "/metrics": 403,
		"/v2/stream?model=echo": 403, "/v2/models/door-1/trace/setting": 403,
	} {
		if got, text := ask("GET", path); got != want {
			t.Errorf("%s: %d %s, want %d", path, got, text, want)
		}
	}
	for what, c := range map[string]struct {
		path, body string
		want       int
	}{
		"with a file": {"/v2/repository/models/door-x/load",
			`{"parameters": {"config": "{}", "file:1/a.txt": "YQ=="}}`, 403},
		"with parameters": {"/v2/repository/models/door-1/load", `{"parameters": {"instances": 2}}`, 403},
		"what it uses": {"/v2/repository/models/door-1/unload", `{"parameters": {"unload_dependents": true}}`,
			403},
		"as it is configured": {"/v2/repository/models/door-1/load", `{}`, 200},
		"workers":             {"/v2/workers/door-1/scale", `{"instances": 1}`, 200},
	} {
		req := must(http.NewRequest("POST", k.URL("http")+c.path, strings.NewReader(c.body)))
		req.Header.Set(access.KeyName, k.keys["door"])
		r := must(http.DefaultClient.Do(req))
		if text := must(io.ReadAll(r.Body)); r.StatusCode != c.want {
			t.Errorf("%s: %s %s, want %d", what, r.Status, text, c.want)
		}
		r.Body.Close()
	}
	if _, text := ask("GET", "/v2/repository/index"); !strings.Contains(text, "door-1") ||
		strings.Contains(text, "echo") {
		t.Errorf("%s", text)
	}
	if _, text := ask("GET", "/v2/models"); !strings.Contains(text, `"door-1"`) || strings.Contains(text, "echo") {
		t.Errorf("the models of a client that may use some: %s", text)
	}
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stub := inferencepb.NewGRPCInferenceServiceClient(conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), access.KeyName, k.keys["door"])
	code := func(_ any, err error) codes.Code { return status.Code(err) }
	for what, c := range map[string]struct{ got, want codes.Code }{
		"metadata": {code(stub.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: "door-1"})),
			codes.OK},
		"metadata of other": {code(stub.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: "echo"})),
			codes.PermissionDenied},
		"config of other": {code(stub.ModelConfig(ctx, &inferencepb.ModelConfigRequest{Name: "echo"})),
			codes.PermissionDenied},
		"infer other": {code(stub.ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: "echo"})),
			codes.PermissionDenied},
		"infer": {code(stub.ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: "door-1"})),
			codes.InvalidArgument},
		"load other": {code(stub.RepositoryModelLoad(ctx,
			&inferencepb.RepositoryModelLoadRequest{ModelName: "echo"})), codes.PermissionDenied},
		"unload other": {code(stub.RepositoryModelUnload(ctx,
			&inferencepb.RepositoryModelUnloadRequest{ModelName: "echo"})), codes.PermissionDenied},
		"statistics": {code(stub.ModelStatistics(ctx, &inferencepb.ModelStatisticsRequest{Name: "echo"})),
			codes.PermissionDenied},
		"log settings": {code(stub.LogSettings(ctx, &inferencepb.LogSettingsRequest{})), codes.PermissionDenied},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	index, err := stub.RepositoryIndex(ctx, &inferencepb.RepositoryIndexRequest{})
	if err != nil || len(index.Models) != 1 || index.Models[0].Name != "door-1" {
		t.Errorf("%v %v", index, err)
	}
	stats, err := stub.ModelStatistics(ctx, &inferencepb.ModelStatisticsRequest{})
	if err != nil || len(stats.ModelStats) != 1 {
		t.Errorf("%v %v", stats, err)
	}
}

// certificates makes an authority, and a certificate for each name that it has signed.
func certificates(t *testing.T, names ...string) (ca string, of map[string]tls.Certificate) {
	t.Helper()
	make := func(name string, parent *x509.Certificate, by *ecdsa.PrivateKey,
		usage x509.ExtKeyUsage) (*x509.Certificate, *ecdsa.PrivateKey, tls.Certificate) {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		c := &x509.Certificate{
			SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{usage}, IsCA: parent == nil, BasicConstraintsValid: true,
		}
		if parent == nil {
			parent, by, c.KeyUsage, c.ExtKeyUsage = c, key, x509.KeyUsageCertSign, nil
		}
		der := must(x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by))
		return c, key, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	parent, key, own := make("authority", nil, nil, 0)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}),
		0o600); err != nil {
		t.Fatal(err)
	}
	of = map[string]tls.Certificate{}
	for _, name := range names {
		_, _, of[name] = make(name, parent, key, x509.ExtKeyUsageClientAuth)
	}
	_, _, of["server"] = make("server", parent, key, x509.ExtKeyUsageServerAuth)
	stranger, foreign, _ := make("stranger", nil, nil, 0)
	_, _, of["foreign"] = make("eva", stranger, foreign, x509.ExtKeyUsageClientAuth)
	return ca, of
}

// TestClientCertificates: a client with a certificate of the authority is the user of its common name, over HTTP and
// gRPC; one without is nobody, and one of another authority is not connected.
func TestClientCertificates(t *testing.T) {
	ca, of := certificates(t, "eva", "boss", "cam", "bad name")
	users := filepath.Join(t.TempDir(), "users.yaml")
	if err := access.WriteUsers(users, []access.User{
		{Name: "eva", Grant: access.Grant{Roles: []string{"infer"}}},
		// another one, who logs in with it
		{Name: "boss", Password: access.HashPassword("secret of boss"),
			Grant: access.Grant{Roles: []string{"infer", "watch"}}},
	}); err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := makeCertificate([]string{"localhost", "127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"cert.pem": certPEM, "key.pem": keyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := startKeyed(t, func(c *Config) {
		c.Auth, c.TLS = config.Auth{Users: users, Metrics: "role", Roles: []string{"watch"}},
			config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: ca}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	for name, want := range map[string][2]int{"": {401, 401}, "eva": {200, 403}, "boss": {403, 403}, "cam": {403, 200},
		"bad name": {401, 401}, "server": {0, 0}, "foreign": {0, 0}} {
		cfg := &tls.Config{RootCAs: roots}
		if name != "" {
			cfg.Certificates = []tls.Certificate{of[name]}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
		for i, path := range []string{"/v2/models/echo", "/v2/status"} {
			got := 0
			if r, err := client.Get(k.URL("http") + path); err == nil {
				got = r.StatusCode
				r.Body.Close()
			}
			if got != want[i] {
				t.Errorf("%s as %q: %d, want %d", path, name, got, want[i])
			}
		}
		conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = inferencepb.NewGRPCInferenceServiceClient(conn).ModelMetadata(t.Context(),
			&inferencepb.ModelMetadataRequest{Name: "echo"})
		if got, want := status.Code(err), map[int]codes.Code{200: codes.OK, 401: codes.Unauthenticated,
			403: codes.PermissionDenied, 0: codes.Unavailable}[want[0]]; got != want {
			t.Errorf("gRPC as %q: %v, want %v", name, err, want)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	late := must(x509.ParseCertificate(of["eva"].Certificate[0])) // as on a connection that has been open for long
	late.NotAfter = time.Now()
	before := k.access.Outcomes()["expired"]
	if p, err := k.access.Identify(t.Context(),
		access.Credentials{Certificates: []*x509.Certificate{late}}); p != nil ||
		stream.CodeOf(err) != stream.Unauthenticated || k.access.Outcomes()["expired"] != before+1 {
		t.Errorf("with a certificate that has expired since: %v %v", p, err)
	}

	// Another authority is trusted from now on, also on connections that are open.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		Certificates: []tls.Certificate{of["eva"]}}}}
	defer client.CloseIdleConnections()
	conn, err := grpc.NewClient(k.Addr("grpc"),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots,
			Certificates: []tls.Certificate{of["eva"]}})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() (int, codes.Code) {
		t.Helper()
		r, err := client.Get(k.URL("http") + "/v2/models/echo")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		_, err = inferencepb.NewGRPCInferenceServiceClient(conn).ModelMetadata(t.Context(),
			&inferencepb.ModelMetadataRequest{Name: "echo"})
		return r.StatusCode, status.Code(err)
	}
	if http, call := ask(); http != 200 || call != codes.OK {
		t.Errorf("before the authority changes: %d %v", http, call)
	}
	open, err := k.access.Identify(t.Context(),
		access.Credentials{Certificates: []*x509.Certificate{must(x509.ParseCertificate(of["eva"].Certificate[0]))}})
	if err != nil {
		t.Fatal(err)
	}
	if err := unchanged(k.access, open); err != nil {
		t.Errorf("what is open before the authority changes: %v", err)
	}
	other, _ := certificates(t, "eva")
	if err := os.WriteFile(ca, append(must(os.ReadFile(other)), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	k.access.Recheck()
	if http, call := ask(); http != 401 || call != codes.Unauthenticated {
		t.Errorf("on open connections after the authority was removed: %d %v", http, call)
	}
	if unchanged(k.access, open) == nil {
		t.Error("what was open lasts after the authority was removed")
	}
}

// TestModuleLogsIn: users whom a module in Python names log in, and their id and roles are those of the settings.
func TestModuleLogsIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.py")
	if err := os.WriteFile(file, []byte("def authenticate_user(username, password):\n    return username.upper() if "+
		"password == 'right' else None\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(t.TempDir(), "users.yaml")
	if err := access.WriteUsers(users, []access.User{
		{Name: "boss", Password: access.HashPassword("secret of boss"), Grant: access.Grant{Roles: []string{"manage"}}},
		{Name: "BOSS2", Password: access.HashPassword("secret of boss"),
			Grant: access.Grant{Roles: []string{"manage"}}},
	}); err != nil {
		t.Fatal(err)
	}
	k := startKeyed(t, func(c *Config) {
		c.GRPC, c.Auth = Off, config.Auth{Module: file, Users: users, Python: testneeds.Python(t),
			Roles: []string{role.Watch.String()}}
	})
	b := newBrowser(t, k.URL("http"))
	// the passwords of the last two are in the file
	for _, user := range []string{"eva:wrong", "boss:right", "boss2:right"} {
		if r, text := b.ask(t, "POST", "/session_login", user); r.StatusCode != 401 {
			t.Errorf("%s: %s %s", user, r.Status, text)
		}
	}
	if r, text := b.ask(t, "POST", "/session_login", "eva:right"); r.StatusCode != 200 ||
		!strings.Contains(text, `"user_id":"EVA","roles":["watch"]`) {
		t.Errorf("%s %s", r.Status, text)
	}
	if r, text := b.ask(t, "GET", "/v2/status", ""); r.StatusCode != 200 {
		t.Errorf("%s %s", r.Status, text)
	}
	if r, text := b.ask(t, "GET", "/v2/models/echo", ""); r.StatusCode != 403 {
		t.Errorf("%s %s", r.Status, text)
	}
	// The module is not asked again: an entry that has expired ends the session.
	if err := access.WriteUsers(users, []access.User{{Name: "EVA", Grant: access.Grant{Roles: []string{"infer"},
		Expires: time.Now()}}}); err != nil {
		t.Fatal(err)
	}
	k.access.Recheck()
	if r, text := b.ask(t, "GET", "/v2/status", ""); r.StatusCode != 401 {
		t.Errorf("with an entry that has expired: %s %s", r.Status, text)
	}
}
