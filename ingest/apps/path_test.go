package apps_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/ingest/access"
	"millrace/server"
)

// behind starts a proxy that passes requests below /ai/ on to a server, without /ai, and returns its address.
func behind(t *testing.T, to string) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	mux := http.NewServeMux()
	mux.Handle("/ai/", http.StripPrefix("/ai", through))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// visitor is a client with cookies, which follows redirects.
type visitor struct {
	*http.Client
	t    *testing.T
	user *url.Userinfo
}

// ask sends a request and returns the address that redirects have led to, the answer and its body.
func (v *visitor) ask(method, address, body string) (*url.URL, *http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if password, given := v.user.Password(); given && strings.HasSuffix(address, "/session_login") {
		req.SetBasicAuth(v.user.Username(), password)
	}
	r, err := v.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return r.Request.URL, r, string(text)
}

// operation returns the address of an operation by the OpenAPI document at an address: its server, relative to the
// document, and the path.
func (v *visitor) operation(document, path, method string) string {
	v.t.Helper()
	at, r, text := v.ask("GET", document, "")
	var d struct {
		Servers []struct{ URL string }
		Paths   map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Servers) != 1 || d.Paths[path][method] == nil {
		v.t.Fatalf("%s: %s: %d servers, %s %s is there: %v, %v", document, r.Status, len(d.Servers), method, path,
			d.Paths[path][method] != nil, err)
	}
	to, err := at.Parse(d.Servers[0].URL)
	if err != nil {
		v.t.Fatal(err)
	}
	return strings.TrimSuffix(to.String(), "/") + path
}

// TestBehindAPath: behind a proxy that takes a path away, redirects stay below the path, and OpenAPI documents lead
// to operations.
func TestBehindAPath(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	roles := []string{"infer", "watch", "manage"}
	if err := access.WriteUsers(users, []access.User{{Name: "eva", Password: access.HashPassword("secret"),
		Grant: access.Grant{Roles: roles}}}); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(c *server.Config) {
		c.Auth.Users, c.Apps.Address, c.Sources.AllowPrivate = users, "127.0.0.1:0", true
	}, "svc")
	host := behind(t, r.Base)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{&http.Client{Jar: jar}, t, url.UserPassword("eva", "secret")}
	for _, c := range []struct{ from, to string }{
		{"/ai/", "/ai/console/"},
		{"/ai/console", "/ai/console/"},
		{"/ai/docs", "/ai/docs/"},
		{"/ai/session_login", "/ai/console/"},
		{"/ai/apps/svc/docs", "/ai/docs/?program=svc"},
		{"/ai/apps/s%76c/docs", "/ai/docs/?program=svc"},
	} {
		if at, a, _ := v.ask("GET", host+c.from, ""); a.StatusCode != 200 || at.String() != host+c.to {
			t.Errorf("%s led to %s: %s, want %s", c.from, at, a.Status, c.to)
		}
	}
	if _, a, text := v.ask("GET", host+"/ai/session_status", ""); a.StatusCode != 200 ||
		!strings.Contains(text, `"eva"`) {
		t.Errorf("after the login: %s %s", a.Status, text)
	}
	for _, c := range []struct{ document, path, method, body, at, want string }{
		{"/ai/openapi.json", "/v2/health/ready", "get", "", "/ai/v2/health/ready", ""},
		{"/ai/openapi.json", "/v2/models/{model}", "get", "", "/ai/v2/models/svc", `"name":"svc"`},
		{"/ai/apps/svc/openapi.json", "/echo", "post", "text", "/ai/apps/svc/echo", "text"},
	} {
		at := strings.Replace(v.operation(host+c.document, c.path, c.method), "{model}", "svc", 1)
		_, a, text := v.ask(strings.ToUpper(c.method), at, c.body)
		if at != host+c.at || a.StatusCode != 200 || !strings.Contains(text, c.want) {
			t.Errorf("%s of %s: %s: %s %s", c.path, c.document, at, a.Status, text)
		}
	}
	_, made, text := v.ask("POST", host+"/ai/v2/streams",
		`{"name":"cam","source":"http://127.0.0.1:1/x","model":"svc","paused":true}`)
	if at, err := made.Location(); made.StatusCode != 201 || err != nil || at.String() != host+"/ai/v2/streams/cam" {
		t.Errorf("a created stream: %s %v %v %s", made.Status, at, err, text)
	} else if _, a, text := v.ask("GET", at.String(), ""); a.StatusCode != 200 {
		t.Errorf("%s: %s %s", at, a.Status, text)
	}
	if at, a, _ := v.ask("GET", host+"/ai/session_logout", ""); a.StatusCode != 200 ||
		at.String() != host+"/ai/console/" {
		t.Errorf("the logout led to %s: %s", at, a.Status)
	}
	at, a, _ := v.ask("GET", behind(t, "http://"+r.Addr("programs"))+"/ai/", "")
	if !slices.Contains([]int{200, 401}, a.StatusCode) || at.Path != "/ai/apps" {
		t.Errorf("/ at the address of programs led to %s: %s", at, a.Status)
	}
}
