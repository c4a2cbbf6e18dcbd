package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/ingest/access"
	grpcadapter "millrace/ingest/grpc"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/stream"
)

// TestAudit: each route and call with the role manage, and each login and logout, writes a line with the principal
// and the result, also when refused, and the line has neither secrets nor line breaks nor control bytes of terminals.
func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	k := startKeyed(t, func(c *Config) { c.Audit, c.Sources.AllowPrivate = file, true })
	lines := func() (out []map[string]any) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range text {
			if b < ' ' && b != '\n' || b == 0x7f {
				t.Fatalf("the file has the byte %#x", b)
			}
		}
		for _, key := range k.keys {
			if strings.Contains(string(text), key) {
				t.Fatal("the file has a key")
			}
		}
		for line := range strings.Lines(string(text)) {
			var one map[string]any
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			out = append(out, one)
		}
		return out
	}
	n := 0
	want := func(verb, principal, outcome, code string) map[string]any {
		t.Helper()
		all := lines()
		if n++; len(all) != n {
			t.Fatalf("%s: %d lines, want %d: %v", verb, len(all), n, all[len(all)-1:])
		}
		got := all[n-1]
		if got["verb"] != verb || got["principal"] != principal || got["outcome"] != outcome || got["code"] != code ||
			got["address"] != "127.0.0.1" || got["time"] == nil {
			t.Errorf("%v, want %s of %s: %s %s", got, verb, principal, outcome, code)
		}
		return got
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	for _, r := range k.routes() {
		if r.Role != role.Manage {
			continue
		}
		for _, path := range r.Paths() {
			k.request(t, r.Method, samples.Replace(path), "")
			want(r.Method+" "+path, "", "refused", "unauthenticated")
			k.request(t, r.Method, samples.Replace(path), "api_key: "+k.keys["infer"]+"\r\n")
			if got := want(r.Method+" "+path, "infer", "refused",
				"permission_denied"); !strings.HasPrefix(got["authenticated"].(string), "key:k") {
				t.Errorf("%v", got)
			}
		}
	}
	if n < 40 {
		t.Errorf("%d lines of routes", n)
	}
	b := newBrowser(t, k.URL("http"))
	b.ask(t, "POST", "/v2/repository/models/echo/load", k.keys["all"])
	if got := want("POST /v2/repository/models/:model/load", "all", "done", ""); got["target"] != "echo" {
		t.Errorf("%v", got)
	}
	name := "x\r\n{\"time\":1}\x1b[31m\u009b1m\x7f"
	b.ask(t, "POST", "/v2/repository/models/"+url.PathEscape(name)+"/load", k.keys["all"])
	if got := want("POST /v2/repository/models/:model/load", "all", "failed", "not_found"); got["target"] != name {
		t.Errorf("%q", got["target"])
	}
	made, err := http.NewRequest("POST", k.URL("http")+"/v2/streams",
		strings.NewReader(`{"name":"cam.1","source":"http://127.0.0.1:1/x","model":"echo","paused":true}`))
	if err != nil {
		t.Fatal(err)
	}
	made.Header.Set(access.KeyName, k.keys["all"])
	r, err := b.Do(made)
	if err != nil || r.StatusCode != 201 || r.Header.Get("Location") != "../v2/streams/cam.1" {
		t.Fatalf("a stream: %v %v", r, err)
	}
	_ = r.Body.Close()
	if got := want("POST /v2/streams", "all", "done", ""); got["target"] != "cam.1" {
		t.Errorf("%v", got)
	}
	b.ask(t, "POST", "/login", "wrong")
	want("POST /login", "", "refused", "unauthenticated")
	b.ask(t, "POST", "/login", k.keys["all"])
	want("POST /login", "all", "done", "")
	k.AuditSignal(stream.Errorf(stream.InvalidArgument, "hosts", "is wrong"))
	signal := lines()
	if n++; len(signal) != n || signal[n-1]["verb"] != "SIGHUP" || signal[n-1]["outcome"] != "failed" ||
		signal[n-1]["code"] != "invalid_argument" {
		t.Errorf("a signal: %v", signal[n-1:])
	}
	b.ask(t, "POST", "/logout", "")
	want("POST /logout", "all", "done", "")

	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for method, needed := range grpcadapter.Roles {
		if needed != role.Manage {
			continue
		}
		in, out := new(inferencepb.RepositoryModelLoadRequest), new(raw)
		_ = conn.Invoke(metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["watch"]), method, in, out)
		if got := want(method, "watch", "refused", "permission_denied"); got["protocol"] != "grpc" {
			t.Errorf("%v", got)
		}
	}
	client := inferencepb.NewGRPCInferenceServiceClient(conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["all"])
	if _, err := client.RepositoryModelLoad(ctx,
		&inferencepb.RepositoryModelLoadRequest{ModelName: "none"}); err == nil {
		t.Error("a model that is not there was loaded")
	}
	if got := want("/inference.GRPCInferenceService/RepositoryModelLoad", "all", "failed",
		"not_found"); got["target"] != "none" {
		t.Errorf("%v", got)
	}
	through := metadata.AppendToOutgoingContext(ctx, "x-forwarded-for", "192.0.2.1, 192.0.2.7") // loopback is a proxy
	_, _ = client.RepositoryModelLoad(through, &inferencepb.RepositoryModelLoadRequest{ModelName: "none"})
	if all := lines(); len(all) != n+1 || all[n]["address"] != "192.0.2.7" {
		t.Errorf("through a proxy: %v", all[n:])
	}
	n++
	if _, err := client.LogSettings(ctx, &inferencepb.LogSettingsRequest{}); err != nil { // reading is not audited
		t.Error(err)
	}
	if got := len(lines()); got != n {
		t.Errorf("%d lines, want %d", got, n)
	}
}

// TestAuditAddressIsNotForged: the audit log has the real address of a gRPC client that is no proxy, whatever address
// its metadata names.
func TestAuditAddressIsNotForged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	k := startKeyed(t, func(c *Config) { c.Audit, c.Proxies = file, []string{"192.0.2.1"} })
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["all"], "x-forwarded-for", "192.0.2.7")
	_, _ = inferencepb.NewGRPCInferenceServiceClient(conn).RepositoryModelLoad(ctx,
		&inferencepb.RepositoryModelLoadRequest{ModelName: "none"})
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 1 ||
		!strings.Contains(string(text), `"address":"127.0.0.1"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestAuditOfQuotas: requests refused by a quota are audited over each protocol, also where clients need no
// credentials.
func TestAuditOfQuotas(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		file := filepath.Join(t.TempDir(), "audit.log")
		k := startKeyed(t, func(c *Config) {
			c.Audit, c.Quotas = file, access.Quotas{Requests: perHour(1), Burst: time.Hour}
			if !keyed {
				c.Auth = config.Auth{}
			}
		})
		conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := inferencepb.NewGRPCInferenceServiceClient(conn)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["all"])
		if _, err := client.RepositoryIndex(ctx, &inferencepb.RepositoryIndexRequest{}); err != nil {
			t.Fatal(err)
		}
		// not audited
		if _, err := client.RepositoryIndex(ctx,
			&inferencepb.RepositoryIndexRequest{}); status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		if _, err := client.RepositoryModelLoad(ctx,
			&inferencepb.RepositoryModelLoadRequest{ModelName: "echo"}); status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		newBrowser(t, k.URL("http")).ask(t, "POST", "/v2/repository/models/echo/load", k.keys["all"])
		var got [][4]any
		for line := range strings.Lines(string(must(os.ReadFile(file)))) {
			var one map[string]any
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			got = append(got, [4]any{one["verb"], one["principal"], one["outcome"], one["code"]})
		}
		name := map[bool]string{true: "all", false: ""}[keyed]
		want := [][4]any{
			{"/inference.GRPCInferenceService/RepositoryModelLoad", name, "failed", "flow_control"},
			{"POST /v2/repository/models/:model/load", name, "failed", "flow_control"},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestAuditBoundsStrangers: clients without credentials cannot fill the log, whatever the results of their requests,
// and lines of clients with credentials are still written.
func TestAuditBoundsStrangers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	k := startKeyed(t, func(c *Config) { c.GRPC, c.Audit = Off, file })
	begun := time.Now()
	for range 2 * access.UnauthenticatedBurst {
		// done, refused and then flow_control, unsupported
		for _, path := range []string{"/logout", "/login", "/session_login"} {
			newBrowser(t, k.URL("http")).ask(t, "POST", path, "")
		}
	}
	most := access.UnauthenticatedBurst + int(access.UnauthenticatedRate*time.Since(begun).Seconds()) + 1
	text := string(must(os.ReadFile(file)))
	if n := strings.Count(text, "\n"); n < access.UnauthenticatedBurst || n > most {
		t.Errorf("%d lines, want between %d and %d", n, access.UnauthenticatedBurst, most)
	}
	for _, code := range []string{`"code":""`, `"code":"unauthenticated"`, `"code":"flow_control"`,
		`"code":"unsupported"`} {
		if !strings.Contains(text, code) {
			t.Errorf("there is no line with %s", code)
		}
	}
	before := strings.Count(text, `"principal":"all"`)
	for range 2 * access.UnauthenticatedBurst {
		newBrowser(t, k.URL("http")).ask(t, "POST", "/v2/repository/models/echo/load", k.keys["all"])
	}
	if n := strings.Count(string(must(os.ReadFile(file))), `"principal":"all"`); n !=
		before+2*access.UnauthenticatedBurst {
		t.Errorf("%d lines of a client with a key, want %d", n, before+2*access.UnauthenticatedBurst)
	}
}

// TestAuditCannotBeWritten: the metrics count audit lines lost to a full disk, and the server's log reports the loss.
// Failed logins with a password name the user.
func TestAuditCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	users, log := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "log")
	writeUsers(t, users)
	k := startKeyed(t, func(c *Config) { c.GRPC, c.Audit, c.Log.File, c.Auth.Users = Off, "/dev/full", log, users })
	b := newBrowser(t, k.URL("http"))
	for range 3 {
		if r, text := b.ask(t, "POST", "/v2/repository/models/echo/load", k.keys["all"]); r.StatusCode != 200 {
			t.Errorf("%s %s", r.Status, text)
		}
	}
	if lost, _ := k.access.AuditLost(); lost != 3 {
		t.Errorf("%d lines were lost, want 3", lost)
	}
	if n := strings.Count(string(must(os.ReadFile(log))), "a line of the audit log could not be written"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	file := filepath.Join(dir, "audit.log")
	k = startKeyed(t, func(c *Config) { c.GRPC, c.Audit, c.Auth.Users = Off, file, users })
	b = newBrowser(t, k.URL("http"))
	b.ask(t, "POST", "/session_login", "eva:wrong")
	if text := string(must(os.ReadFile(file))); !strings.Contains(text, `"target":"eva"`) ||
		strings.Contains(text, "wrong") {
		t.Errorf("%s", text)
	}
}

// TestAuditTrailersAreNoHeaders: behind a trusted proxy, a trailer is not where the audit log has the client's
// address from.
func TestAuditTrailersAreNoHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	k := startKeyed(t, func(c *Config) { c.Audit = file })
	c := dialListener(t, k.Server, "http")
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST /v2/repository/models/echo/load HTTP/1.1\r\nHost: localhost\r\nAuthorization: "+
		"Bearer %s\r\nX-Forwarded-For: 192.0.2.1\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"2\r\n{}\r\n0\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n", k.keys["all"]); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	text, err := os.ReadFile(file)
	if err != nil || r.StatusCode != 400 || !strings.Contains(string(text), `"address":"192.0.2.1"`) ||
		strings.Contains(string(text), "192.0.2.7") {
		t.Errorf("%d, %v: %s", r.StatusCode, err, text)
	}
}
