package service_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// forged is a name with a log line, a header, and control sequences of terminals.
const forged = "a\r\nX-Forged: 1\r\ntime=2026-01-01 level=ERROR msg=forged\x1b[2J\x07\u2028\u009b31m\x00b"

// hostile sends forged wherever clients name something, by each protocol, and returns the headers of the answers.
func hostile(t *testing.T, s *server.Server, key string) (answers []http.Header) {
	t.Helper()
	addr := s.Addr("http")
	in := url.PathEscape(forged)
	text, _ := json.Marshal(forged)
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/v2/models/" + in, ""},
		{"GET", "/" + in, ""},
		{"GET", "/console/" + in, ""},
		{"GET", "/docs/" + in, ""},
		{"GET", "/v2/models/echo/versions/" + in, ""},
		{"POST", "/v2/models/" + in + "/infer", `{"inputs":[]}`},
		{"POST", "/v2/models/echo/infer?codec=" + url.QueryEscape(forged), "x"},
		{"POST", "/v2/models/echo/infer?" + url.QueryEscape(forged) + "=1", "x"},
		{"POST", "/v2/models/echo/infer", fmt.Sprintf(`{"id":%s,"inputs":[{"name":%s,"shape":[1],"datatype":%s,`+
			`"data":[1]}]}`, text, text, text)},
		{"POST", "/v2/models/echo/generate", fmt.Sprintf(`{%s:%s}`, text, text)},
		{"POST", "/v2/repository/models/" + in + "/load", `{}`},
		{"POST", "/v2/repository/models/x/load", fmt.Sprintf(`{"parameters":{%s:%s}}`, text, text)},
		{"POST", "/v2/repository/models/x/load", fmt.Sprintf(`{"parameters":{"config":%s}}`, text)},
		{"POST", "/v2/workers/" + in + "/load", `{}`},
		{"POST", "/v2/streams", fmt.Sprintf(`{"name":%s,"source":%s,"model":"echo"}`, text, text)},
		{"POST", "/v2/streams", fmt.Sprintf(`{"name":"x","source":%s,"model":%s}`, text, text)},
		{"DELETE", "/v2/streams/" + in, ""},
		{"POST", "/v2/logging", fmt.Sprintf(`{%s:1}`, text)},
		{"POST", "/v2/systemsharedmemory/region/" + in + "/register",
			fmt.Sprintf(`{"key":%s,"offset":0,"byte_size":1}`, text)},
		{"GET", "/login?api_key=" + url.QueryEscape(forged) + "&next=" + url.QueryEscape("//evil.example/"+forged), ""},
		{"POST", "/session_login", ""},
		{"POST", "/v2/tickets", string(text)},
	} {
		for _, with := range []string{key, ""} {
			q, err := http.NewRequestWithContext(t.Context(), r.method, "http://"+addr+r.path,
				strings.NewReader(r.body))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Content-Type", "application/json")
			if with != "" {
				q.Header.Set("Authorization", "Bearer "+with)
			} else {
				q.SetBasicAuth(forged, forged)
			}
			c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}
			a, err := c.Do(q)
			if err != nil {
				t.Errorf("%s %q: %v", r.method, r.path, err)
				continue
			}
			_ = a.Body.Close()
			answers = append(answers, a.Header)
		}
	}
	// Control bytes in a head, which net/http would not send.
	for _, name := range []string{"User-Agent", "X-Request-Id", "Traceparent", "Tracestate", "Origin",
		"X-Forwarded-For", "Api_key", "Cookie", "Inference-Header-Content-Length", "Host"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		host := "127.0.0.1"
		if name == "Host" {
			host = "evil\x1b[2J\x07.example"
		}
		fmt.Fprintf(c, "GET /v2/models/echo HTTP/1.1\r\nHost: %s\r\n%s: a\x1b[2J\x07b\x7f\r\nAuthorization: Bearer "+
			"%s\r\nConnection: close\r\n\r\n", host, strings.Replace(name, "Host", "X", 1), key)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			answers = append(answers, a.Header)
			_ = a.Body.Close()
		}
		_ = c.Close()
	}
	ws, a, err := websocket.DefaultDialer.Dial("ws://"+addr+"/v2/models/echo/stream?codec=opaque&policy="+
		url.QueryEscape(forged), http.Header{"Authorization": {"Bearer " + key}})
	if err == nil {
		_, _, _ = ws.ReadMessage()
		_ = ws.Close()
	}
	if a != nil {
		answers = append(answers, a.Header)
	}
	d := websocket.Dialer{Subprotocols: []string{"millrace.v1"}}
	ws, _, err = d.Dial("ws://"+addr+"/v2/stream", http.Header{"Authorization": {"Bearer " + key}})
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range []string{forged, fmt.Sprintf(`{"type":%s}`, text),
		fmt.Sprintf(`{"type":"open","sid":1,"model":%s,"codec":%s}`, text, text)} {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(msg)); err != nil {
			break // the connection was closed for the previous message
		}
	}
	_, _, _ = ws.ReadMessage()
	_ = ws.Close()
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, with := range []string{key, "wrong"} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+with, "x-bin", forged)
		in := inferencepb.NewGRPCInferenceServiceClient(conn)
		name := strings.ReplaceAll(forged, "\u009b", "")
		_, _ = in.ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: name, Id: name, ModelVersion: name})
		_, _ = in.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: name})
		_, _ = in.RepositoryModelLoad(ctx, &inferencepb.RepositoryModelLoadRequest{ModelName: name,
			RepositoryName: name})
		_ = conn.Invoke(ctx, "/inference.GRPCInferenceService/"+asMethod(name), &inferencepb.ServerLiveRequest{},
			&inferencepb.ServerLiveResponse{})
	}
	return answers
}

// asMethod returns the characters of s that a gRPC method name may have.
func asMethod(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}

// TestNothingIsForged: names from clients add no log line, no control bytes, and no header to an answer.
func TestNothingIsForged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			file, keys := filepath.Join(dir, "log"), filepath.Join(dir, "keys.yaml")
			entry, key := access.NewKey("tester", access.Grant{Roles: []string{"infer", "watch", "manage", "metrics"}})
			if err := access.WriteKeys(keys, []access.Key{entry}); err != nil {
				t.Fatal(err)
			}
			s, end := servertest.RunWith(t, server.Config{
				HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: config.Log{File: file, Format: format, Level: "debug",
					DebugRate: 100000},
				Auth: config.Auth{Keys: keys}, Models: []workers.Config{{Name: "echo", Source: "identity"}},
			})
			answers := hostile(t, s, key)
			if err := end(); err != nil {
				t.Error(err)
			}
			for _, h := range answers {
				if h.Get("X-Forged") != "" {
					t.Errorf("a forged header: %v", h)
				}
				if at := h.Get("Location"); at != "" && !strings.HasPrefix(at, "./") && !strings.HasPrefix(at,
					"../") || strings.Contains(at, "evil") {
					t.Errorf("a redirect to %q", at)
				}
			}
			log, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(string(log), "\n"), "\n")
			if len(lines) < 40 {
				t.Fatalf("%d lines: the requests are not logged", len(lines))
			}
			named := 0
			for _, l := range lines {
				if strings.Contains(l, "forged") {
					named++
				}
				if i := strings.IndexFunc(l, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
					t.Errorf("a byte of control at %d of %q", i, l)
				}
				if format == "json" && !json.Valid([]byte(l)) ||
					format == "text" && !(strings.HasPrefix(l, "time=20") && strings.Contains(l, "level=")) ||
					strings.HasPrefix(l, "time=2026-01-01 ") {
					t.Errorf("not a line of the server: %q", l)
				}
			}
			if named < 5 {
				t.Errorf("%d lines name what was sent: nothing was tried", named)
			}
		})
	}
}
