package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/config"
	"millrace/internal/inferencepb"
	"millrace/server"
)

// writeRepository writes the files of a model repository, by their paths.
func writeRepository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// grpcOf returns a client of the protocol's gRPC service.
func grpcOf(t *testing.T, s *server.Server) inferencepb.GRPCInferenceServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return inferencepb.NewGRPCInferenceServiceClient(conn)
}

// The setting name is the name in the metadata of both protocols.
func TestNameOfTheServer(t *testing.T) {
	for set, want := range map[string]string{"": "millrace", "triton": "triton"} {
		s, stop := runWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Name: set})
		if _, text := get(t, s, "/v2"); !strings.HasPrefix(text, `{"name":"`+want+`"`) {
			t.Error(text)
		}
		if m, err := grpcOf(t, s).ServerMetadata(t.Context(), &inferencepb.ServerMetadataRequest{}); err != nil || m.Name != want {
			t.Error(m, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A model of the repository that cannot be loaded ends the start, as with Triton; with
// exit_on_error off the others are served, and the index has the reason.
func TestUnloadableModelOfTheRepository(t *testing.T) {
	dir := writeRepository(t, map[string]string{"good/config.pbtxt": `backend: "identity"`, "bad/config.pbtxt": `backend: "nothing"`})
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Repository: config.Repository{Dir: dir}}
	s, err := server.New(cfg)
	if err == nil {
		err = s.Run(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Fatal(err)
	}
	cfg.Repository.Exit = new(bool)
	s, stop := runWith(t, cfg)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	code, text := postJSON(t, "http://"+s.Addr("http")+"/v2/repository/index", "")
	if code != 200 || !strings.Contains(text, `{"name":"bad","version":"","state":"UNAVAILABLE","reason":"backend: \"nothing\"`) || !strings.Contains(text, `{"name":"good","version":"1","state":"READY"`) {
		t.Error(code, text)
	}
	if code, text := get(t, s, "/v2/models/good/ready"); code != 200 {
		t.Error(code, text)
	}
}
