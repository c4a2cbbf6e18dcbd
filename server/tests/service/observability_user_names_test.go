//go:build !notracing

package service_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"millrace/client"
	"millrace/config"
	"millrace/ingest/access"
	"millrace/ingest/native"
	"millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// TestUserIsTold: the code of a model learns the authenticated user over every protocol, and the log and the traces
// name the user.
func TestUserIsTold(t *testing.T) {
	dir := t.TempDir()
	file, keys, log := filepath.Join(dir, "service.py"), filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "log")
	if err := os.WriteFile(file, []byte("def infer(data: bytes, user_id) -> str:\n    return f\"user {user_id}.\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	entry, key := access.NewKey("camera-1", access.Grant{Roles: []string{"infer", "watch"}})
	if err := access.WriteKeys(keys, []access.Key{entry}); err != nil {
		t.Fatal(err)
	}
	traces := servertest.KeepAll()
	s, end := servertest.RunWith(t, server.Config{
		HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Auth: config.Auth{Keys: keys},
		Log: config.Log{File: log, Level: "debug", DebugRate: 1000}, Parts: []any{&traces},
		Models: []workers.Config{{Name: "service", Source: file, Params: stream.Params{"python": testneeds.Python(t)}}},
	})
	header := http.Header{"Authorization": {"Bearer " + key}}
	const want = "user camera-1."
	do := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr("http")+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header.Clone()
		r.Header.Set("Content-Type", "application/octet-stream")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode != 200 {
			t.Errorf("%s: %s %s, %v", path, a.Status, text, err)
		}
		return string(text)
	}
	for _, path := range []string{"/v2/models/service/infer?codec=opaque", "/apps/service/infer"} {
		if text := do("POST", path, "x"); !strings.Contains(text, want) {
			t.Errorf("%s: %s", path, text)
		}
	}
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+s.Addr("http")+
		"/v2/models/service/stream?codec=opaque&policy=every", header)
	if err != nil {
		t.Fatal(err)
	}
	if text := servertest.Ask(t, ws, websocket.BinaryMessage, []byte("x")); !strings.Contains(text, want) {
		t.Errorf("WebSocket: %s", text)
	}
	_ = ws.Close()
	c, err := client.NewWith(s.Addr("http"), client.Options{Token: key})
	if err != nil {
		t.Fatal(err)
	}
	session, err := c.Session(t.Context(), client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	st, err := session.Open(t.Context(), "service",
		client.StreamOptions{Codec: "opaque", OnReply: func(r client.Reply) {
			text := ""
			if r.Err != nil {
				text = r.Err.Error()
			} else if len(r.Outputs) > 0 {
				text = string(r.Outputs[0].Data)
			}
			got <- text
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Send(t.Context(), client.Frame{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if text := <-got; !strings.Contains(text, want) {
		t.Errorf("millrace.v1: %q", text)
	}
	_ = session.Close()
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := inferencepb.NewGRPCInferenceServiceClient(conn).ModelInfer(metadata.AppendToOutgoingContext(t.Context(),
		"authorization", "Bearer "+key), &inferencepb.ModelInferRequest{
		ModelName: "service", Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "data",
			Datatype: "BYTES", Shape: []int64{1},
			Contents: &inferencepb.InferTensorContents{BytesContents: [][]byte{[]byte("x")}}}},
	})
	if err != nil || !strings.Contains(r.String(), want) && !strings.Contains(string(r.GetRawOutputContents()[0]),
		want) {
		t.Errorf("gRPC: %v, %v", r, err)
	}
	keyed, err := s.Native().Authenticate(t.Context(), native.Credentials{Key: "Bearer " + key})
	if err != nil {
		t.Fatal(err)
	}
	user, err := s.Native().As(native.User{Name: "camera-1"}) // a user named by the program
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*native.Client{"key": keyed, "user": user} {
		r, err := c.InferBytes(t.Context(), "service", stream.Opaque, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(r.Outputs[0].Data); !strings.Contains(text, want) {
			t.Errorf("native call, %s: %q", name, text)
		}
		r.Release()
		r, err = c.Do(t.Context(), "service", "", stream.Frame{Codec: stream.Opaque, Payload: []byte("x"),
			Call: &stream.Call{Endpoint: "infer", Method: "POST", Path: "/infer",
				ContentType: "application/octet-stream"}})
		if err != nil {
			t.Fatal(err)
		}
		if text := string(r.Outputs[0].Data); !strings.Contains(text, want) {
			t.Errorf("native call of a route, %s: %q", name, text)
		}
		r.Release()
		st, err := c.Stream("service", stream.Options{}, func(r *stream.Result) {
			text := ""
			if len(r.Outputs) > 0 {
				text = string(r.Outputs[0].Data)
			}
			got <- text
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(1, stream.Opaque, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if text := <-got; !strings.Contains(text, want) {
			t.Errorf("native stream, %s: %q", name, text)
		}
		st.Close(stream.ByClient)
	}
	const frames = 11 // of 5 protocols, and natively 3 of each client
	servertest.Until(t, func() bool { return strings.Count(do("GET", "/v2/traces", ""), `"enduser.id"`) >= frames })
	if err := end(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "user=camera-1"); n < frames {
		t.Errorf("the log names the user of %d frames, want %d:\n%s", n, frames, text)
	}
	if strings.Contains(string(text), key) {
		t.Error("the log has the key")
	}
}
