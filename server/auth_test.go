package server

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/ingest/access"
	grpcadapter "millrace/ingest/grpc"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/workers"
)

// keyed is a server with keys of each role, and the keys by name.
type keyed struct {
	*Server
	at   string // the listener to which request sends; "" = http
	file string
	keys map[string]string
	all  []access.Key
}

// add adds a key with a name; the key is valid once the server has read the file again.
func (k *keyed) add(t *testing.T, name string, roles role.Set, expires time.Time) {
	t.Helper()
	entry, text := access.NewKey(name, access.Grant{Roles: roles.Names(), Expires: expires})
	k.all = append(k.all, entry)
	k.keys[name] = text
}

func (k *keyed) write(t *testing.T) {
	t.Helper()
	if err := access.WriteKeys(k.file, k.all); err != nil {
		t.Fatal(err)
	}
}

// startKeyed starts a server with named keys, one for each role; change modifies the configuration.
func startKeyed(t *testing.T, change func(*Config)) *keyed {
	t.Helper()
	k := &keyed{file: filepath.Join(t.TempDir(), "keys.yaml"), keys: map[string]string{}}
	for _, name := range role.Names() {
		set, err := role.Parse([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		k.add(t, name, set, time.Time{})
	}
	k.add(t, "all", role.All, time.Time{})
	entry, text := access.NewKey("door", access.Grant{Roles: role.All.Names(), Models: []string{"door-*"}})
	k.all, k.keys["door"] = append(k.all, entry), text
	k.add(t, "old", role.All, time.Now().Add(-time.Hour))
	k.write(t)
	cfg := Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: config.Log{Level: "error"},
		Auth: config.Auth{Keys: k.file, Metrics: "role"}, Models: []workers.Config{{Name: "echo", Source: "identity"}}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	k.Server = s
	done := make(chan error, 1)
	ctx, stop := contextOf(t)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return k
}

// dialListener connects to a listener, also at a unix socket.
func dialListener(t *testing.T, s *Server, name string) net.Conn {
	t.Helper()
	network, addr := "tcp", s.Addr(name)
	if path, ok := accept.SocketPath(addr); ok {
		network, addr = "unix", path
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request sends a request without most of the announced body, so that an answer shows that the server refused the
// request before reading the body.
func (k *keyed) request(t *testing.T, method, path, header string) (status int, head http.Header) {
	t.Helper()
	c := dialListener(t, k.Server, cmp.Or(k.at, "http"))
	defer c.Close()
	body := ""
	if method != "GET" && method != "HEAD" {
		body = "Content-Length: 1048576\r\nContent-Type: application/json\r\n"
	}
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n", method, path, header, body)
	if body != "" {
		fmt.Fprint(c, strings.Repeat(" ", 8<<10)) // read together with the head, before the route is found
	}
	return answer(t, c, method)
}

var samples = strings.NewReplacer(":model", "echo", ":version", "1", ":name", "door", ":region", "r", ":repository",
	"other", ":trace", "x", "*", "x")

// TestRoutesNeedRoles: every route refuses a request without a key, with a wrong, an expired and a revoked key, and
// with keys of all other roles, before reading the body; also at the management address.
func TestRoutesNeedRoles(t *testing.T) {
	t.Run("http", func(t *testing.T) { testRoutesNeedRoles(t, "http", nil) })
	t.Run("management", func(t *testing.T) {
		testRoutesNeedRoles(t, management, func(c *Config) { c.Management.Address = "unix:" + socketPath(t) })
	})
}

func testRoutesNeedRoles(t *testing.T, at string, change func(*Config)) {
	k := startKeyed(t, func(c *Config) {
		if change != nil {
			change(c)
		}
		c.GRPC = Off
		c.Streams = []streams.Config{{Name: "door", Source: "http://127.0.0.1:1/x", Model: "echo"}}
	})
	k.at = at
	k.add(t, "revoked", role.All, time.Time{}) // is in no file
	stranger := "mr_k00000000000_" + strings.Repeat("A", 26)
	rows := 0
	for _, r := range k.routes() {
		if r.Role == 0 {
			t.Errorf("%s %s has no role", r.Method, r.Path)
		}
		for _, path := range r.Paths() {
			for _, method := range append(strings.Split(r.Method, "|"), headOf(r.Method)...) {
				at := samples.Replace(path)
				refused := func(what, header string, want int) {
					t.Helper()
					rows++
					status, head := k.request(t, method, at, header)
					if r.Role == role.Open {
						if status == 401 && !strings.Contains(path, "login") && path != "/session_status" ||
							status == 403 {
							t.Errorf("%s %s %s: %d, and it is open", method, at, what, status)
						}
						return
					}
					if status != want || (want == 401) != (head.Get("WWW-Authenticate") != "") {
						t.Errorf("%s %s %s: %d %v, want %d", method, at, what, status, head, want)
					}
				}
				refused("without a key", "", 401)
				refused("with a wrong key", "api_key: x\r\n", 401)
				refused("with an unknown key", "Authorization: Bearer "+stranger+"\r\n", 401)
				refused("with an expired key", "Authorization: Bearer "+k.keys["old"]+"\r\n", 401)
				refused("with a revoked key", "Cookie: api_key="+k.keys["revoked"]+"\r\n", 401)
				refused("with Basic", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("a:b"))+"\r\n",
					401)
				if !r.WebSocket {
					refused("with a ticket", "Sec-WebSocket-Protocol: millrace.ticket.x\r\n", 401)
				}
				for _, name := range role.Names() {
					if name != r.Role.String() {
						refused("with the role "+name, "api_key: "+k.keys[name]+"\r\n", 403)
					}
				}
				if !r.Limited {
					refused("for another model", "api_key: "+k.keys["door"]+"\r\n", 403)
				}
			}
		}
	}
	if rows < 500 {
		t.Errorf("%d rows", rows)
	}
}

// TestSlashes: a path with a trailing slash is not a route, so that a proxy's rule for a path cannot be bypassed with
// a slash.
func TestSlashes(t *testing.T) {
	k := startKeyed(t, nil)
	rows := 0
	for _, r := range k.routes() {
		for _, path := range r.Paths() {
			// these are routes with the slash, too
			if strings.HasSuffix(path, "/") || strings.HasSuffix(path, "*") || path == "/console" || path == "/docs" ||
				path == "/apps/:name" {
				continue
			}
			rows++
			method, _, _ := strings.Cut(r.Method, "|")
			at := samples.Replace(path) + "/"
			if status, _ := k.request(t, method, at, "api_key: "+k.keys["all"]+"\r\n"); status != 404 {
				t.Errorf("%s %s: %d, want 404", method, at, status)
			}
		}
	}
	if rows < 50 {
		t.Errorf("%d rows", rows)
	}
}

// contextOf returns a context of the test with a cancel function.
func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(context.WithoutCancel(t.Context()))
}

// answer reads the head of an answer.
func answer(t *testing.T, c net.Conn, method string) (int, http.Header) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header
}

func headOf(methods string) []string {
	if strings.Contains(methods, "GET") {
		return []string{"HEAD"}
	}
	return nil
}

// TestHealthOfModels: only clients with access to a model see whether the model exists; everybody sees the health of
// the server.
func TestHealthOfModels(t *testing.T) {
	for _, open := range []bool{false, true} {
		k := startKeyed(t, func(c *Config) {
			if open {
				c.Auth.Health = "open"
			}
		})
		want := func(path, header string, status int) {
			t.Helper()
			if open && status != 404 && strings.Contains(path, "models") {
				status = map[bool]int{true: 404, false: 200}[strings.Contains(path, "none")]
			}
			if got, _ := k.request(t, "GET", path, header); got != status {
				t.Errorf("open %v: %s with %q is %d, want %d", open, path, header, got, status)
			}
		}
		for _, path := range []string{"/v2/health/live", "/v2/health/ready", "/health/startup"} {
			want(path, "", 200)
		}
		for _, path := range []string{"/v2/models/echo/ready", "/v2/models/none/ready",
			"/v2/models/echo/versions/1/ready", "/v2/models/%65cho/ready"} {
			want(path, "", 401)
		}
		want("/v2/models/echo/ready", "api_key: "+k.keys["infer"]+"\r\n", 200)
		want("/v2/models/none/ready", "api_key: "+k.keys["infer"]+"\r\n", 404)

		conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		keyed := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["infer"])
		check := func(ctx context.Context, model string) codes.Code {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx,
				&grpc_health_v1.HealthCheckRequest{Service: model})
			return status.Code(err)
		}
		watch := func(ctx context.Context, model string) codes.Code {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			call, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx,
				&grpc_health_v1.HealthCheckRequest{Service: model})
			if err == nil {
				_, err = call.Recv()
			}
			return status.Code(err)
		}
		ready := func(ctx context.Context, model string) codes.Code {
			_, err := inferencepb.NewGRPCInferenceServiceClient(conn).ModelReady(ctx,
				&inferencepb.ModelReadyRequest{Name: model})
			return status.Code(err)
		}
		refused := codes.Unauthenticated
		if open {
			refused = codes.OK
		}
		if got := check(t.Context(), ""); got != codes.OK {
			t.Errorf("open %v: the server's health is %v", open, got)
		}
		for name, ask := range map[string]func(context.Context, string) codes.Code{"check": check, "watch": watch,
			"ready": ready} {
			if got := ask(t.Context(), "echo"); got != refused {
				t.Errorf("open %v: %s without a key: %v", open, name, got)
			}
			if got := ask(keyed, "echo"); got != codes.OK {
				t.Errorf("open %v: %s with a key: %v", open, name, got)
			}
			if got := ask(t.Context(), "none"); !open && got != refused {
				t.Errorf("%s of another model without a key: %v", name, got)
			}
		}
	}
}

// TestRolesSuffice: a key with the role of a route is let in, in each place where a key can be.
func TestRolesSuffice(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.GRPC = Off })
	for path, name := range map[string]string{
		"/v2": "infer", "/v2/models/echo": "infer", "/v2/status": "watch", "/v2/models/stats": "watch",
		"/metrics": "metrics", "/v2/streams": "watch", "/openapi.json": "infer", "/apps": "infer",
	} {
		for _, header := range []string{"api_key: ", "Authorization: Bearer ", "Authorization: bearer ",
			"Cookie: a=b; api_key="} {
			if status, _ := k.request(t, "GET", path, header+k.keys[name]+"\r\n"); status != 200 {
				t.Errorf("%s with %s%s: %d", path, header, name, status)
			}
		}
	}
	if got := k.access.Outcomes(); got["allowed"] != 32 || got["missing"]+got["wrong"]+got["expired"]+got["denied"]+
		got["limited"] != 0 {
		t.Errorf("counted %v", got)
	}
	for name, header := range map[string]string{"missing": "", "wrong": "api_key: x\r\n",
		"expired": "api_key: " + k.keys["old"] + "\r\n", "denied": "api_key: " + k.keys["metrics"] + "\r\n"} {
		k.request(t, "GET", "/v2", header)
		if got := k.access.Outcomes(); got[name] != 1 {
			t.Errorf("%s is counted %v", name, got)
		}
	}
	if status, _ := k.request(t, "GET", "/v2?api_key="+k.keys["all"], ""); status != 401 {
		t.Errorf("a key in the query: %d", status)
	}
	status, head := k.request(t, "GET", "/login?api_key="+k.keys["infer"], "")
	if cookie := head.Get("Set-Cookie"); status != 307 || !strings.Contains(cookie, "HttpOnly") ||
		!strings.Contains(cookie, "SameSite=Lax") {
		t.Errorf("login: %d %v", status, head)
	}
}

// TestKeysAreReadAgain: an added key becomes valid and a removed key invalid without a restart; an unreadable file
// changes nothing.
func TestKeysAreReadAgain(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.GRPC = Off })
	ask := func(name string) int {
		k.access.Recheck()
		status, _ := k.request(t, "GET", "/v2", "api_key: "+k.keys[name]+"\r\n")
		return status
	}
	k.add(t, "new", role.All, time.Time{})
	if got := ask("new"); got != 401 {
		t.Errorf("before it is in the file: %d", got)
	}
	k.write(t)
	if got := ask("new"); got != 200 {
		t.Errorf("in the file: %d", got)
	}
	if err := os.WriteFile(k.file, []byte("keys: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask("new"); got != 200 {
		t.Errorf("with a file that cannot be read: %d", got)
	}
	k.all, _ = access.WithoutKey(k.all, "new")
	k.write(t)
	if got := ask("new"); got != 401 {
		t.Errorf("removed: %d", got)
	}
	if got := ask("all"); got != 200 {
		t.Errorf("one that stayed: %d", got)
	}
}

// TestCallsNeedRoles: every gRPC method refuses a call without a key, with a wrong and an expired key, and with keys
// of all other roles; also at the management address.
func TestCallsNeedRoles(t *testing.T) {
	t.Run("grpc", func(t *testing.T) { testCallsNeedRoles(t, "grpc", nil) })
	t.Run("management", func(t *testing.T) {
		testCallsNeedRoles(t, "management_grpc", func(c *Config) {
			c.Management = config.Management{Address: Off, GRPC: "unix:" + socketPath(t)}
		})
	})
}

func testCallsNeedRoles(t *testing.T, at string, change func(*Config)) {
	k := startKeyed(t, func(c *Config) {
		if change != nil {
			change(c)
		}
		c.HTTP = Off
	})
	conn, err := grpc.NewClient(k.Addr(at), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(method string, md ...string) codes.Code {
		t.Helper()
		ctx, cancel := contextOf(t)
		defer cancel()
		s, err := conn.NewStream(metadata.AppendToOutgoingContext(ctx, md...),
			&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		if md[1] == "" || !strings.HasPrefix(method, "/grpc.health") || !strings.HasSuffix(method, "Watch") {
			_ = s.CloseSend()
			return status.Code(s.RecvMsg(new(raw)))
		}
		return codes.OK
	}
	for method, needed := range grpcadapter.Roles {
		if needed == role.Open {
			continue
		}
		for what, md := range map[string][]string{"none": {"x", "y"}, "wrong": {"api_key", "x"},
			"expired": {"authorization", "Bearer " + k.keys["old"]}, "empty": {"rpc-auth-header", ""}} {
			if got := call(method, md...); got != codes.Unauthenticated {
				t.Errorf("%s with %s: %v", method, what, got)
			}
		}
		for _, name := range role.Names() {
			if got := call(method, "api_key",
				k.keys[name]); (name == needed.String()) == (got == codes.PermissionDenied) {
				t.Errorf("%s with the role %s: %v", method, name, got)
			}
		}
	}
	if got := call("/no.Such/Method", "x", "y"); got != codes.Unauthenticated {
		t.Errorf("an unknown method: %v", got)
	}
	if got := call("/inference.GRPCInferenceService/ServerLive", "x", "y"); got == codes.Unauthenticated {
		t.Errorf("health: %v", got)
	}
}

// raw is an undecoded message.
type raw struct{}

func (*raw) Reset()         {}
func (*raw) String() string { return "" }
func (*raw) ProtoMessage()  {}

// TestTicketsAreOfPrincipals: only a client with a key gets a ticket; a ticket opens one WebSocket without a key.
func TestTicketsAreOfPrincipals(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.GRPC = Off })
	ask := func(method, path string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, k.URL("http")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range header {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		r, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if r.StatusCode == 101 {
			return 101, ""
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}
	const at = "/v2/models/echo/stream"
	if got, text := ask("GET", at, upgrade...); got != 401 {
		t.Errorf("without a key: %d %s", got, text)
	}
	if got, text := ask("GET", at, append(upgrade, "Sec-WebSocket-Protocol: millrace.ticket.none")...); got != 401 {
		t.Errorf("with an invented ticket: %d %s", got, text)
	}
	if got, text := ask("GET", "/v2/models/none/stream",
		append(upgrade, "Sec-WebSocket-Protocol: millrace.ticket.none")...); got != 401 {
		t.Errorf("with an invented ticket for a model that is not there: %d %s", got, text)
	}
	if got, text := ask("GET", at, append(upgrade, "api_key: "+k.keys["infer"])...); got != 101 {
		t.Errorf("with a key: %d %s", got, text)
	}
	got, text := ask("POST", "/v2/tickets", "api_key: "+k.keys["infer"])
	_, rest, _ := strings.Cut(text, `"protocol":"`)
	protocol, _, _ := strings.Cut(rest, `"`)
	if got != 200 || protocol == "" {
		t.Fatalf("%d %s", got, text)
	}
	if got, text := ask("GET", at, append(upgrade, "Sec-WebSocket-Protocol: "+protocol)...); got != 101 {
		t.Errorf("with a ticket: %d %s", got, text)
	}
	_, text = ask("POST", "/v2/tickets", "api_key: "+k.keys["infer"])
	_, rest, _ = strings.Cut(text, `"protocol":"`)
	later, _, _ := strings.Cut(rest, `"`)
	k.all, _ = access.WithoutKey(k.all, "infer")
	k.write(t)
	k.access.Recheck()
	if got, text := ask("GET", at, append(upgrade, "Sec-WebSocket-Protocol: "+later)...); got != 401 {
		t.Errorf("with the ticket of a key that was revoked: %d %s", got, text)
	}
	ended := &access.Principal{Key: "oidc:eva", Name: "eva", Roles: role.All, Expires: time.Now()}
	if err := unchanged(k.access, ended); stream.CodeOf(err) != stream.Unauthenticated {
		t.Errorf("with the ticket of a token that has expired: %v", err)
	}
	if got, text := ask("GET", at, append(upgrade, "Sec-WebSocket-Protocol: "+protocol)...); got != 401 {
		t.Errorf("with a ticket that was used: %d %s", got, text)
	}
}

// unchanged returns nil while the credentials of a principal are valid, with the same roles and models.
func unchanged(a *access.Access, p *access.Principal) error {
	now, err := a.Current(p)
	if err != nil {
		return err
	}
	return p.Changed(now)
}
