package apps_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"millrace/internal/servertest"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/stream"
)

// raw sends a request and returns all bytes that the server sends until it closes the connection.
func raw(r *servertest.Running, method, path, body string) string {
	r.T.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.Base, "http://"))
	if err != nil {
		r.T.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c,
		"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path,
		len(body), body); err != nil {
		r.T.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		r.T.Fatal(err)
	}
	return string(all)
}

// TestReplyHeaders: a reply whose header has characters that end or forge a header is a 500 that names the program,
// and no byte of it is sent as a header.
func TestReplyHeaders(t *testing.T) {
	r := start(t, nil, "svc")
	refused := []stream.Reply{
		{Header: map[string]string{"": "x"}},
		{Header: map[string]string{"X-Own ": "x"}},
		{Header: map[string]string{"X-Own:": "x"}},
		{Header: map[string]string{"X-Own\r\nX-Evil": "1"}},
		{Header: map[string]string{"X-\u00e9": "1"}},
		{Status: 422, ContentType: "text/plain\nX-Evil: 1"},
	}
	for _, c := range []string{"\n", "\r", "\r\n", "\x00", "\x0b", "\x1b", "\x7f"} {
		evil := "a" + c + "X-Evil: 1" + c + c + "HTTP/1.1 200 OK"
		refused = append(refused, stream.Reply{ContentType: evil},
			stream.Reply{Header: map[string]string{"X" + c + "Own": "1"}})
		for _, name := range []string{"X-Own", "Location", "Set-Cookie", "content-type", "Content-Disposition",
			"Strict-Transport-Security", "Connection"} {
			refused = append(refused, stream.Reply{Header: map[string]string{name: evil}})
		}
	}
	for _, path := range []string{"/reply", "/reply_events"} {
		for _, reply := range refused {
			if path == "/reply_events" {
				reply.Status = 422 // the header of a reply to a route of events is the server's, unless it is an error
			}
			body, err := json.Marshal(reply)
			if err != nil {
				t.Fatal(err)
			}
			got := raw(r, "POST", "/apps/svc"+path, string(body))
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
			if err != nil {
				t.Fatalf("%s %q: %v in %q", path, body, err, got)
			}
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 500 || resp.Header.Get("X-Evil") != "" ||
				!strings.Contains(string(text), "program svc") || strings.Contains(got, "\nX-Evil") {
				t.Errorf("%s %q: %q", path, body, got)
			}
		}
	}
	allowed := `{"Status":201,"ContentType":"text/plain; charset=utf-8","Header":{"X-Own":"a\tb ` +
		`\u00e9","Content-Disposition":"attachment; filename=\"x\""}}`
	if got := raw(r, "POST", "/apps/svc/reply", allowed); !strings.HasPrefix(got, "HTTP/1.1 201 ") ||
		!strings.Contains(got, "X-Own: a\tb \u00e9\r\n") || !strings.HasSuffix(got, "the body") {
		t.Errorf("a header without control characters: %q", got)
	}
	r.NoLeases()
}

// TestEventLines: data of a program cannot begin a field or an event of its own, by any of the three ends of a line
// of server-sent events.
func TestEventLines(t *testing.T) {
	r := start(t, nil, "svc")
	for _, end := range []string{"\n", "\r", "\r\n"} {
		a := r.Ask("POST", "/apps/svc/data_events", "a"+end+"event: evil"+end+"id: 7"+end+end+"data: b")
		want := "data: a\ndata: event: evil\ndata: id: 7\ndata: \ndata: data: b\n\n"
		if !strings.HasPrefix(a.Text, want) {
			t.Errorf("%q: %q, want %q", end, a.Text, want)
		}
	}
}

// TestProgramsCookies: a program gets its own cookies by its own names, whether it is below /apps/ or at the root,
// and none of the server's or of another program.
func TestProgramsCookies(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Programs.Root = "a.b" }, "a", "a.b")
	set := func(path, cookie string) string {
		t.Helper()
		body, err := json.Marshal(stream.Reply{Header: map[string]string{"set-cookie": cookie}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(r.Ask("POST", path+"/reply", string(body)).Header.Values("Set-Cookie"), " & ")
	}
	for _, c := range []struct{ path, cookie, want string }{
		{"/apps/a", "sid=1", "app.a.sid=1; Path=/apps/a/"},
		{"/apps/a", `sid="x=y"; Domain=example.org; path=/in; Max-Age=5; secure; HttpOnly; SameSite=None; Other=1`,
			`app.a.sid="x=y"; Max-Age=5; secure; HttpOnly; SameSite=None; Path=/apps/a/in`},
		{"/apps/a", "session_key=stolen; Path=/", "app.a.session_key=stolen; Path=/apps/a/"},
		{"/apps/a", "__Host-session=1; Path=relative", "app.a.__Host-session=1; Path=/apps/a/"},
		{"/apps/a.b", "c=1; Path=/", "app.a%2Eb.c=1; Path=/apps/a.b/"},
		{"", "c=1; Path=/", "app.a%2Eb.c=1; Path=/"},
		{"/apps/a", "=1", ""},
		{"/apps/a", "nothing", ""},
	} {
		if got := set(c.path, c.cookie); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.path, c.cookie, got, c.want)
		}
	}
	for _, c := range []struct{ path, cookies, want string }{
		{"/apps/a", "app.a.sid=1; session_key=secret; app.a%2Eb.c=2; plain=3; sid=4;app.a.other=5",
			"sid=1; other=5; plain=3"},
		{"/apps/a.b", "app.a.b.c=1; app.a%2Eb.c=2", "c=2"},
		{"", "app.a%2Eb.c=2; app.a.c=1", "c=2"},
		{"/apps/a", "session_key=secret", ""},
	} {
		a := r.Ask("GET", c.path+"/call", "", "Cookie: "+c.cookies)
		var got struct{ Header map[string]string }
		if err := json.Unmarshal([]byte(a.Text), &got); err != nil || got.Header["cookie"] != c.want {
			t.Errorf("%s %q: the program got %q, want %q (%v)", c.path, c.cookies, got.Header["cookie"], c.want, err)
		}
	}
}

// TestProgramsOrigin: what a program answers at the origin of the console is shown in a sandbox, and changes neither
// that origin nor who may read it; at the address of programs it has an origin, and the server's other routes are not
// there.
func TestProgramsOrigin(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Apps.Address = "127.0.0.1:0" }, "svc")
	const everything = `{"ContentType":"text/html","Header":{"strict-transport-security":"max-age=1","ACCESS-CONTROL-ALLOW-ORIGIN":"*",
		"Access-Control-Allow-Credentials":"true","Service-Worker-Allowed":"/","Clear-Site-Data":"\"*\"","Refresh":"0;url=/console/","Alt-Svc":"h2=\"evil.example:443\"",
		"X-Accel-Redirect":"/secret","X-Content-Type-Options":"sniff","content-security-policy":"default-src 'self'","Content-Security-Policy":"sandbox allow-same-origin","X-Own":"1"}}`
	console, own := r.Base, "http://"+r.Addr("programs")
	names := []string{"Strict-Transport-Security", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
		"Service-Worker-Allowed", "Clear-Site-Data", "Refresh", "Alt-Svc", "X-Accel-Redirect"}
	for base, kept := range map[string]string{console: "",
		own: "Access-Control-Allow-Origin Access-Control-Allow-Credentials Refresh"} {
		r.Base = base
		for _, path := range []string{"/reply", "/reply_events"} {
			a := r.Ask("POST", "/apps/svc"+path, strings.Replace(everything, "{", `{"Status":422,`, 1))
			var got []string
			for _, name := range names {
				if a.Header.Get(name) != "" {
					got = append(got, name)
				}
			}
			policy := strings.Join(a.Header.Values("Content-Security-Policy"), ", ")
			if strings.Join(got, " ") != kept || a.Header.Get("X-Own") != "1" ||
				a.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(policy, "default-src 'self'") {
				t.Errorf("%s: %v, want %s", path, a.Header, kept)
			}
			if sandboxed := strings.HasPrefix(policy, "sandbox allow-") &&
				!strings.Contains(strings.Split(policy, ",")[0], "same-origin"); sandboxed != (base == console) {
				t.Errorf("%s: the policy is %q", path, policy)
			}
		}
	}
	r.Base = own
	for _, path := range []string{"/v2/models", "/v2/health/live", "/console/", "/metrics", "/docs/", "/openapi.json",
		"/v2/repository/index", "/apps/svc/docs"} {
		if a := r.Ask("GET", path, ""); a.StatusCode != 404 {
			t.Errorf("%s at the address of programs: %v, want 404", path, a)
		}
	}
	if a := r.Ask("GET", "/", ""); a.StatusCode != 302 || a.Header.Get("Location") != "./apps" {
		t.Errorf("/ at the address of programs: %v %q", a, a.Header.Get("Location"))
	}
	r.NoLeases()
}

// TestProgramAtTheRootOrigin: at the address of programs the one that is served alone has every path, also those that
// the server has at its own address.
func TestProgramAtTheRootOrigin(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Apps.Address, c.Programs.Root = "127.0.0.1:0", "svc" }, "svc")
	for _, path := range []string{"/call", "/docs/run"} {
		if a := r.Ask("GET", path, ""); a.StatusCode != 200 ||
			!strings.HasPrefix(a.Header.Get("Content-Security-Policy"), "sandbox ") {
			t.Errorf("%s: %v %v", path, a, a.Header)
		}
	}
	r.Base = "http://" + r.Addr("programs")
	if a := r.Ask("POST", "/", "hi"); a.Text != "hi" || a.Header.Get("Content-Security-Policy") != "" {
		t.Errorf("/: %v %v", a, a.Header)
	}
	if a := r.Ask("POST", "/v2/models/svc/infer", "{}"); a.StatusCode != 404 ||
		!strings.Contains(a.Text, "program svc has nothing at") {
		t.Errorf("a route of the server's: %v", a)
	}
}

// TestPageInBrowser: in Chromium, a program's page on the address http has no origin, so that it gets at nothing of
// the server; at the address of programs it has one, where it may call the program.
func TestPageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a browser")
	}
	chromium := testneeds.Program(t, "chromium")
	r := start(t, func(c *server.Config) { c.Apps.Address = "127.0.0.1:0" }, "svc")
	own := "http://" + r.Addr("programs")
	for base, want := range map[string]string{
		r.Base: "origin=null cookies=SecurityError storage=SecurityError models=TypeError post=TypeError",
		own:    "origin=" + own + " cookies=app.svc.sid=1; mine=1 storage=yes models=404 post=200",
	} {
		home := t.TempDir()
		c := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--no-first-run", "--user-data-dir="+home, "--virtual-time-budget=10000", "--dump-dom",
			base+"/apps/svc/page")
		c.Env = append(os.Environ(), "TMPDIR="+home, "HOME="+home)
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), "<title>"+want+"</title>") {
			t.Errorf("%s: %.600s, want %s", base, out, want)
		}
	}
}
