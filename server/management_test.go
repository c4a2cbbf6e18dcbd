package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/client"
	"millrace/config"
	grpcadapter "millrace/ingest/grpc"
	"millrace/ingest/streams"
	"millrace/internal/httpd"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/workers"
)

// socketPath returns a path for a unix socket: a test's folder may have too long a path.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// ask sends a request with a body to a listener.
func (k *keyed) ask(t *testing.T, at, method, path, key string) (status int, allow, body string) {
	t.Helper()
	c := dialListener(t, k.Server, at)
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return c, nil
	}}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("api_key", key)
	}
	a, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header.Get("Allow"), string(text)
}

// TestManagementApart: with management.address, every route with the role manage is served only there; at the address
// http the route seems not to exist, for any client and method.
func TestManagementApart(t *testing.T) {
	k := startKeyed(t, func(c *Config) {
		c.GRPC = Off
		c.Management.Address = "unix:" + socketPath(t)
		c.Streams = []streams.Config{{Name: "door", Source: "http://127.0.0.1:1/x", Model: "echo"}}
	})
	visible := map[string][]string{} // methods of the address http, by path
	for _, r := range k.routes() {
		for _, path := range r.Paths() {
			if r.Role != role.Manage {
				visible[path] = append(append(visible[path], strings.Split(r.Method, "|")...), headOf(r.Method)...)
			}
		}
	}
	rows := 0
	for _, r := range k.routes() {
		if r.Role != role.Manage {
			continue
		}
		for _, path := range r.Paths() {
			at := samples.Replace(path)
			want := nothingAt(at)
			for _, method := range append(strings.Split(r.Method, "|"), "GET", "PUT") {
				if method == "GET" && len(visible[path]) > 0 {
					continue // the route exists
				}
				for _, key := range []string{"", "x", k.keys["manage"], k.keys["all"]} {
					rows++
					got, allow, body := k.ask(t, "http", method, at, key)
					switch {
					case len(visible[path]) == 0 && (got != 404 || allow != "" || body != want):
						t.Errorf("%s %s: %d %q %s, want 404 %s", method, at, got, allow, body, want)
					case len(visible[path]) > 0 && (got != 405 || !sameMethods(allow, visible[path])):
						t.Errorf("%s %s: %d %q, want 405 with %v", method, at, got, allow, visible[path])
					}
				}
			}
			for _, method := range strings.Split(r.Method, "|") {
				rows++
				got, _, body := k.ask(t, management, method, at, k.keys["manage"])
				if got == 401 || got == 403 || got == 405 || body == want {
					t.Errorf("%s %s at the management address: %d %s", method, at, got, body)
				}
			}
		}
	}
	if rows < 100 {
		t.Errorf("%d rows", rows)
	}
	for at, want := range map[string]bool{"http": false, management: true} {
		_, _, text := k.ask(t, at, "GET", "/openapi.json", k.keys["all"])
		var doc struct {
			Paths map[string]map[string]any `json:"paths"`
		}
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		if _, load := doc.Paths["/v2/repository/models/{model}/load"]; load != want {
			t.Errorf("openapi.json at %s has the route of loads: %v", at, load)
		}
		if logging := doc.Paths[loggingRoute]; logging["get"] == nil || (logging["post"] != nil) != want {
			t.Errorf("openapi.json at %s has %v at %s", at, logging, loggingRoute)
		}
		if _, _, text := k.ask(t, at, "GET", "/console/console.json", ""); strings.Contains(text,
			`"manage":true`) != want {
			t.Errorf("the console at %s is told %s", at, text)
		}
	}
}

// nothingAt returns the answer to a request for a missing route.
func nothingAt(path string) string {
	return string(httpd.AppendError(nil, stream.Errorf(stream.NotFound, "",
		"there is nothing at %q: models are at /v2/models/NAME/infer, and routes of programs below /apps/NAME/", path)))
}

func sameMethods(allow string, want []string) bool {
	got := map[string]bool{}
	for m := range strings.SplitSeq(allow, ", ") {
		got[m] = true
	}
	for _, m := range want {
		if !got[m] {
			return false
		}
	}
	return len(got) == len(want)
}

// TestCallsOfManagementApart: with management.grpc, every gRPC method with the role manage is answered only there,
// and is an unknown method elsewhere; so are changes of settings by methods that also read settings.
func TestCallsOfManagementApart(t *testing.T) {
	k := startKeyed(t, func(c *Config) {
		c.HTTP = Off
		c.Management = config.Management{Address: Off, GRPC: "unix:" + socketPath(t)}
	})
	conns := map[string]*grpc.ClientConn{}
	for _, at := range []string{"grpc", "management_grpc"} {
		conn, err := grpc.NewClient(k.Addr(at), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[at] = conn
	}
	with := func(key string) context.Context { return metadata.AppendToOutgoingContext(t.Context(), "api_key", key) }
	call := func(at, method, key string) *status.Status {
		t.Helper()
		ctx, cancel := context.WithCancel(with(key))
		defer cancel()
		s, err := conns[at].NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.CloseSend()
		return status.Convert(s.RecvMsg(new(raw)))
	}
	rows := 0
	for method, needed := range grpcadapter.Roles {
		if needed != role.Manage {
			continue
		}
		rows++
		for _, key := range []string{"infer", "all"} { // keys that may call unknown methods
			unknown := call("grpc", method+"x", k.keys[key])
			if got := call("grpc", method, k.keys[key]); got.Code() != codes.Unimplemented ||
				got.Message() != strings.Replace(unknown.Message(), "x for service", " for service", 1) {
				t.Errorf("%s with %s: %v, and an unknown method: %v", method, key, got, unknown)
			}
		}
		if got := call("grpc", method, "x"); got.Code() != codes.Unauthenticated {
			t.Errorf("%s with a wrong key: %v", method, got)
		}
		if got := call("management_grpc", method, k.keys["manage"]); got.Code() == codes.Unauthenticated ||
			got.Code() == codes.PermissionDenied || strings.HasPrefix(got.Message(), "unknown method") {
			t.Errorf("%s at the management address: %v", method, got)
		}
	}
	if rows < 6 {
		t.Errorf("%d methods", rows)
	}
	traces := &inferencepb.TraceSettingRequest{Settings: map[string]*inferencepb.TraceSettingRequest_SettingValue{
		"trace_level": {Value: []string{"OFF"}}}}
	logs := &inferencepb.LogSettingsRequest{Settings: map[string]*inferencepb.LogSettingsRequest_SettingValue{
		"log_warning": {ParameterChoice: &inferencepb.LogSettingsRequest_SettingValue_BoolParam{BoolParam: true}}}}
	for at, want := range map[string]codes.Code{"grpc": codes.Unimplemented, "management_grpc": codes.OK} {
		api := inferencepb.NewGRPCInferenceServiceClient(conns[at])
		if _, err := api.TraceSetting(with(k.keys["all"]), traces); status.Code(err) != want {
			t.Errorf("a change of traces at %s: %v, want %v", at, err, want)
		}
		if _, err := api.LogSettings(with(k.keys["all"]), logs); status.Code(err) != want {
			t.Errorf("a change of the log at %s: %v, want %v", at, err, want)
		}
		if _, err := api.TraceSetting(with(k.keys["all"]), &inferencepb.TraceSettingRequest{}); err != nil {
			t.Errorf("the settings of traces at %s: %v", at, err)
		}
	}
}

// TestManagementOff: with management.address off, nobody can manage the server, whatever the protocol.
func TestManagementOff(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.Management.Address = Off })
	if got, _, body := k.ask(t, "http", "POST", "/v2/repository/models/echo/load", k.keys["all"]); got != 404 ||
		body != nothingAt("/v2/repository/models/echo/load") {
		t.Errorf("%d %s", got, body)
	}
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["all"])
	if _, err := inferencepb.NewGRPCInferenceServiceClient(conn).RepositoryModelLoad(ctx,
		&inferencepb.RepositoryModelLoadRequest{ModelName: "echo"}); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// speak opens at most most connections to a listener until the listener refuses a connection, and returns the number
// of answered connections. The connections stay open until the end of the test.
func (k *keyed) speak(t *testing.T, at string, most int) (spoken int) {
	t.Helper()
	for ; spoken < most; spoken++ {
		c := dialListener(t, k.Server, at)
		t.Cleanup(func() { _ = c.Close() })
		_, err := io.WriteString(c, "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err == nil {
			_, err = http.ReadResponse(bufio.NewReader(c), nil)
		}
		if err != nil {
			break
		}
	}
	return spoken
}

// TestManagementIsNotShutOut: when clients use all connections of the other addresses, management over HTTP and gRPC
// still works.
func TestManagementIsNotShutOut(t *testing.T) {
	const most = 4
	k := startKeyed(t, func(c *Config) {
		c.Limits.MaxConnections = most
		c.Management = config.Management{Address: "unix:" + socketPath(t), GRPC: "unix:" + socketPath(t)}
	})
	if n := k.speak(t, "http", most+1); n != most {
		t.Fatalf("%d connections of %d", n, most)
	}
	silent := dialListener(t, k.Server, "grpc") // refused
	defer silent.Close()
	if got, _, body := k.ask(t, management, "POST", "/v2/repository/models/echo/load", k.keys["manage"]); got != 200 {
		t.Errorf("over HTTP: %d %s", got, body)
	}
	conn, err := grpc.NewClient(k.Addr("management_grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["manage"])
	if _, err := inferencepb.NewGRPCInferenceServiceClient(conn).RepositoryModelLoad(ctx,
		&inferencepb.RepositoryModelLoadRequest{ModelName: "echo"}); err != nil {
		t.Errorf("over gRPC: %v", err)
	}
	if all := k.connections.stats(); all["http"].Open != most || all["http"].Refused != 1 ||
		all["management_grpc"].Open != 1 || all[management].Refused != 0 {
		t.Errorf("%+v", all)
	}
}

// TestConnectionsOfManagement: management connections are bounded, and do not use the limit of the other addresses.
func TestConnectionsOfManagement(t *testing.T) {
	const most = 4
	k := startKeyed(t, func(c *Config) {
		c.Limits.MaxConnections, c.GRPC = most, Off
		c.Management = config.Management{Address: "unix:" + socketPath(t)}
	})
	for at, want := range map[string]int{management: leastManaging, "http": most} {
		if n := k.speak(t, at, want+1); n != want {
			t.Errorf("%d connections of %s, want %d", n, at, want)
		}
	}
}

// TestSocketOfManagement: a client of the Go package manages and uses the server over a unix socket without TLS while
// the addresses http and grpc have TLS; only the server's user can open the socket, forwarding headers do not
// disguise socket clients, and the end of the server removes the socket's file.
func TestSocketOfManagement(t *testing.T) {
	path, grpcPath, acts := socketPath(t), socketPath(t), filepath.Join(t.TempDir(), "acts.log")
	s, err := New(Config{
		HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", TLS: config.TLS{SelfSigned: true}, Audit: acts,
		Log:        config.Log{Level: "error"},
		Management: config.Management{Address: "unix:" + path, GRPC: "unix:" + grpcPath},
		Models:     []workers.Config{{Name: "echo", Source: "identity"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := contextOf(t)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	for _, at := range []string{path, grpcPath} {
		if file, err := os.Lstat(at); err != nil || file.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("%v %v", file.Mode(), err)
		}
	}
	if got, want := s.URL(management), "unix:"+path; got != want {
		t.Errorf("the URL is %s, want %s", got, want)
	}
	c, err := client.New(s.URL(management))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
	session, err := c.Session(t.Context(), client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	conn, err := grpc.NewClient("unix:"+grpcPath, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inferencepb.NewGRPCInferenceServiceClient(conn).RepositoryModelLoad(t.Context(),
		&inferencepb.RepositoryModelLoadRequest{ModelName: "echo"}); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	unix := &net.UnixAddr{Net: "unix"}
	if a := s.access.Address(unix, "192.0.2.7"); a.IsValid() {
		t.Errorf("a client of the socket has made itself %v", a)
	}
	if got := s.Addr("http"); !reachesTLS(t, got) {
		t.Errorf("%s is not encrypted", got)
	}
	c.Close()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(acts)
	if lines := strings.Count(string(text), "\n"); err != nil || lines != 2 ||
		strings.Count(string(text), `"address":"unix"`) != 2 || strings.Count(string(text), `"outcome":"done"`) != 2 {
		t.Errorf("%v, %d acts: %s", err, lines, text)
	}
	for _, at := range []string{path, grpcPath} {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", at, err)
		}
	}
}

// reachesTLS reports whether a server refuses an unencrypted request.
func reachesTLS(t *testing.T, addr string) bool {
	t.Helper()
	c, err := client.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = c.Server(ctx)
	return err != nil
}

// TestManagementOverTCP: a second TCP address is encrypted like the first, and serves the routes with the role
// manage.
func TestManagementOverTCP(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.GRPC, c.Management.Address = Off, "127.0.0.1:0" })
	if got, _, body := k.ask(t, management, "POST", "/v2/repository/models/echo/load", k.keys["manage"]); got != 200 {
		t.Errorf("%d %s", got, body)
	}
	if got, _, body := k.ask(t, "http", "POST", "/v2/repository/models/echo/load", k.keys["manage"]); got != 404 {
		t.Errorf("%d %s", got, body)
	}
	encrypted := startKeyed(t, func(c *Config) {
		c.GRPC, c.Management.Address, c.TLS.SelfSigned = Off, "127.0.0.1:0", true
	})
	if got, want := encrypted.URL(management), "https://"+encrypted.Addr(management); got != want ||
		!reachesTLS(t, encrypted.Addr(management)) {
		t.Errorf("%s is not encrypted, want %s", got, want)
	}
}

// TestManagementAddressInUse: a start fails at another server's socket, names the setting, and does not disturb the
// other server.
func TestManagementAddressInUse(t *testing.T) {
	cfg := Config{HTTP: "127.0.0.1:0", GRPC: Off, Management: config.Management{Address: "unix:" + socketPath(t)},
		Log: config.Log{Level: "error"}}
	first, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(cfg)
	if want := "management.address: "; stream.CodeOf(err) != stream.Unavailable ||
		!strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("%v, want %s", err, want)
	}
	dialListener(t, first, management).Close()
	first.abandon()
	second, err := New(cfg)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	second.abandon()
}
