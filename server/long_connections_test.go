package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/ingest/streams"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/workers"
)

// TestLongConnectionsEnd: a client's open connections end over each protocol, with the reason, when the client's key
// is revoked; other clients' connections stay.
func TestLongConnectionsEnd(t *testing.T) {
	k := startKeyed(t, func(c *Config) {
		c.Streams = []streams.Config{{Name: "door", Source: "http://127.0.0.1:1/x", Model: "echo"}}
	})
	k.add(t, "gone", role.All, time.Time{})
	k.write(t)
	k.access.Recheck()
	web := func(path, key string, protocols ...string) *websocket.Conn {
		t.Helper()
		d := websocket.Dialer{Subprotocols: protocols}
		c, _, err := d.Dial("ws"+strings.TrimPrefix(k.URL("http"), "http")+path, http.Header{"api_key": {k.keys[key]}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	sockets := map[string]*websocket.Conn{
		"plain": web("/v2/models/echo/stream", "gone"), "v1": web("/v2/stream", "gone", wire.Subprotocol),
		"results": web("/v2/streams/door/results", "gone"),
	}
	other := web("/v2/models/echo/stream", "all")
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call, err := inferencepb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(
		metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["gone"]))
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&inferencepb.ModelInferRequest{ModelName: "none"}); err != nil {
		t.Fatal(err)
	}
	if _, err := call.Recv(); err != nil { // the answer shows that the call has begun
		t.Fatal(err)
	}
	req, err := http.NewRequest("GET", k.URL("http")+"/v2/streams/door/results", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("api_key", k.keys["gone"])
	req.Header.Set("Accept", "text/event-stream")
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	for k.access.Pending() < 6 { // until each connection has begun
		time.Sleep(time.Millisecond)
	}
	k.all, _ = access.WithoutKey(k.all, "gone")
	k.write(t)
	k.access.Recheck()
	for name, c := range sockets {
		last := ""
		for {
			_, text, err := c.ReadMessage()
			var closed *websocket.CloseError
			if errors.As(err, &closed) {
				if closed.Code != int(wire.CloseUnauthenticated) || !strings.Contains(last, "gone was removed") {
					t.Errorf("%s: %v, after %s", name, closed, last)
				}
				break
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			last = string(text)
		}
	}
	if _, err := call.Recv(); status.Code(err) != codes.Unauthenticated ||
		!strings.Contains(err.Error(), "gone was removed") {
		t.Errorf("the call: %v", err)
	}
	text, err := io.ReadAll(bufio.NewReader(events.Body))
	if err != nil || !strings.Contains(string(text), "gone was removed") ||
		!strings.Contains(string(text), `"unauthenticated"`) {
		t.Errorf("events: %s %v", text, err)
	}
	if err := other.WriteMessage(websocket.BinaryMessage, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	if _, _, err := other.ReadMessage(); err != nil {
		t.Errorf("the connection of another key: %v", err)
	}
}

// TestUnreadCallsEnd: gRPC calls end when the client's key is revoked, also without reads or writes: a
// ModelStreamInfer with answers waiting for the client, and a reflection call.
func TestUnreadCallsEnd(t *testing.T) {
	k := startKeyed(t, nil)
	k.add(t, "gone", role.All, time.Time{})
	k.write(t)
	k.access.Recheck()
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["gone"])
	asked, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	call, err := inferencepb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(metadata.AppendToOutgoingContext(ctx,
		"millrace-stream-policy", "every", "millrace-stream-window", "1"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20 // more than the transport buffers for a client that does not read
	for range 2 {        // the second request is read after the first answer
		if err := call.Send(&inferencepb.ModelInferRequest{
			ModelName: "echo", Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8",
				Shape: []int64{size}}}, RawInputContents: [][]byte{make([]byte, size)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := k.access.Identify(t.Context(), access.Credentials{Keys: []string{k.keys["gone"]}})
	of := k.access.AccountOf(p, access.Credentials{})
	eventually(t, func() bool {
		g, err := k.models.Group("echo", "")
		return err == nil && g.Stats().Frames.Results == 2 && of.Used(stream.QuotaStreams) == 1 &&
			k.access.Pending() == 2
	})
	k.all, _ = access.WithoutKey(k.all, "gone")
	k.write(t)
	k.access.Recheck()
	eventually(t, func() bool { return of.Used(stream.QuotaStreams) == 0 && k.access.Pending() == 0 })
	if _, err := asked.Recv(); status.Code(err) != codes.Unauthenticated ||
		!strings.Contains(err.Error(), "gone was removed") {
		t.Errorf("reflection: %v", err)
	}
	for err = nil; err == nil; { // skip earlier answers
		_, err = call.Recv()
	}
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "gone was removed") {
		t.Errorf("the call: %v", err)
	}
}

// TestMessagesThatComeLate: a gRPC call whose message arrives after the revocation of its key is refused, and the
// audit log has refused management calls.
func TestMessagesThatComeLate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	k := startKeyed(t, func(c *Config) { c.Audit = file })
	k.add(t, "gone", role.All, time.Time{})
	k.write(t)
	k.access.Recheck()
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["gone"])
	type message struct {
		method string
		in     any
	}
	late := []message{
		{inferencepb.GRPCInferenceService_RepositoryModelUnload_FullMethodName,
			&inferencepb.RepositoryModelUnloadRequest{ModelName: "echo"}},
		{inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, &inferencepb.ModelInferRequest{
			ModelName: "echo", Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8",
				Shape: []int64{1}}}, RawInputContents: [][]byte{{1}},
		}},
	}
	var calls []grpc.ClientStream
	for _, m := range late {
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, m.method)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	p, _ := k.access.Identify(t.Context(), access.Credentials{Keys: []string{k.keys["gone"]}})
	of := k.access.AccountOf(p, access.Credentials{})
	eventually(t, func() bool { return of.Used(stream.QuotaRequests) == int64(len(late)) })
	k.all, _ = access.WithoutKey(k.all, "gone")
	k.write(t)
	k.access.Recheck()
	for i, call := range calls {
		if err := call.SendMsg(late[i].in); err != nil {
			t.Fatal(err)
		}
		_ = call.CloseSend()
		if err := call.RecvMsg(new(inferencepb.ModelInferResponse)); status.Code(err) != codes.Unauthenticated ||
			!strings.Contains(err.Error(), "gone was removed") {
			t.Errorf("%s: %v", late[i].method, err)
		}
	}
	if g, err := k.models.Group("echo", ""); err != nil || g.Stats().Frames.Results != 0 {
		t.Errorf("the model: %v", err)
	}
	if text := string(must(os.ReadFile(file))); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, `"principal":"gone"`) ||
		!strings.Contains(text, `"target":"echo","outcome":"refused","code":"unauthenticated"`) {
		t.Errorf("the audit log has %s", text)
	}
}

// TestBodiesThatComeLate: a request whose body arrives after the revocation of its key is refused on every route, and
// the audit log has refused management requests.
func TestBodiesThatComeLate(t *testing.T) {
	file, program := filepath.Join(t.TempDir(), "audit.log"), filepath.Join(t.TempDir(), "svc.staged")
	write(t, program, "route\nnull")
	k := startKeyed(t, func(c *Config) {
		c.Audit, c.Models = file, append(c.Models, workers.Config{Name: "svc", Source: program})
		c.Streams = []streams.Config{{Name: "door", Source: "http://127.0.0.1:1/x", Model: "echo"}}
	})
	k.add(t, "gone", role.All, time.Time{})
	k.write(t)
	k.access.Recheck()
	var conns []net.Conn
	manage := []string{
		"POST /v2/repository/models/echo/load", "POST /v2/repository/models/echo/unload",
		"POST /v2/workers/echo/scale", "POST /v2/systemsharedmemory/region/x/register",
		"POST /v2/streams", "PATCH /v2/streams/door", "POST /v2/trace/setting", "POST /v2/logging",
	}
	late := append(manage, "POST /v2/models/echo/infer", "POST /v2/models/echo/generate",
		"POST /v2/models/echo/infer_stream", "POST /v2/repository/index", "POST /apps/svc/route")
	for i, request := range late {
		c := dialListener(t, k.Server, "http")
		defer c.Close()
		body := "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
		if i == 0 {
			body = "Content-Length: 40000\r\n\r\n{" + strings.Repeat(" ", 20000)
		}
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\napi_key: %s\r\n%s",
			request, k.keys["gone"], body)
		conns = append(conns, c)
	}
	p, _ := k.access.Identify(t.Context(), access.Credentials{Keys: []string{k.keys["gone"]}})
	of := k.access.AccountOf(p, access.Credentials{})
	eventually(t, func() bool { return of.Used(stream.QuotaRequests) == int64(len(late)) })
	k.all, _ = access.WithoutKey(k.all, "gone")
	k.write(t)
	k.access.Recheck()
	for i, c := range conns {
		rest := "1\r\n}\r\n0\r\n\r\n"
		if i == 0 {
			rest = strings.Repeat(" ", 40000-20000-2) + "}"
		}
		if _, err := io.WriteString(c, rest); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusUnauthorized || r.Header.Get("WWW-Authenticate") == "" ||
			!strings.Contains(string(text), "gone was removed") {
			t.Errorf("%s: %s %s %v", late[i], r.Status, text, err)
		}
	}
	for _, model := range []string{"echo", "svc"} {
		if g, err := k.models.Group(model, ""); err != nil || g.Stats().Frames.Results != 0 {
			t.Errorf("the model %s: %v", model, err)
		}
	}
	if text := string(must(os.ReadFile(file))); strings.Count(text, `"principal":"gone"`) != len(manage) ||
		strings.Count(text, `"outcome":"refused","code":"unauthenticated"`) != len(manage) {
		t.Errorf("the audit log has %s", text)
	}
}

// TestTicketsAndRefusalsAreCounted: a ticket is counted at its use, and a gRPC call for a forbidden model is counted
// as denied.
func TestTicketsAndRefusalsAreCounted(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.Log = config.Log{Level: "error"} })
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := inferencepb.NewGRPCInferenceServiceClient(conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api_key", k.keys["door"])
	if _, err := client.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: "echo"}); status.Code(
		err) != codes.PermissionDenied {
		t.Error(err)
	}
	if _, err := client.ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: "echo"}); status.Code(
		err) != codes.PermissionDenied {
		t.Error(err)
	}
	if _, err := client.RepositoryIndex(ctx, &inferencepb.RepositoryIndexRequest{}); err != nil {
		t.Error(err)
	}
	if got := k.access.Outcomes(); got["denied"] != 2 || got["allowed"] != 1 {
		t.Errorf("%v", got)
	}
	for i, want := range []string{"wrong", "wrong"} {
		header := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
			"AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: millrace.ticket.none\r\n"
		k.request(t, "GET", "/v2/models/echo/stream", header)
		if got := k.access.Outcomes()[want]; got != uint64(i+1) {
			t.Errorf("%s: %d", want, got)
		}
	}
}

// TestResumedSessionsHaveNoFormerRights: a session of millrace.v1 is resumed with its first rights, and refused when
// the key's rights have changed.
func TestResumedSessionsHaveNoFormerRights(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.GRPC = Off })
	entry, text := access.NewKey("cut", access.Grant{Roles: role.All.Names(), Models: []string{"echo", "other"}})
	k.all = append(k.all, entry)
	k.write(t)
	k.access.Recheck()
	type message struct {
		Type, Code string
		Token      string `json:"resume_token"`
	}
	connect := func(token string) message {
		t.Helper()
		d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
		c, _, err := d.Dial("ws"+strings.TrimPrefix(k.URL("http"), "http")+"/v2/stream", http.Header{"api_key": {text}})
		if err != nil {
			t.Fatal(err)
		}
		var m message
		if err := c.ReadJSON(&m); err != nil {
			t.Fatal(err)
		}
		if token != "" {
			if err := c.WriteJSON(map[string]string{"type": "attach", "token": token}); err != nil {
				t.Fatal(err)
			}
			if err := c.ReadJSON(&m); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		for k.access.Pending() > 0 { // until the server notices the lost connection
			time.Sleep(time.Millisecond)
		}
		return m
	}
	m := connect("")
	if m = connect(m.Token); m.Type != "attached" {
		t.Fatalf("with the same rights: %+v", m)
	}
	k.all[len(k.all)-1].Models = []string{"echo"}
	k.write(t)
	k.access.Recheck()
	if m = connect(m.Token); m.Type != "error" || m.Code != "not_found" {
		t.Errorf("with fewer models: %+v", m)
	}
}

// eventually waits for ok.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not come to be")
		}
	}
}
