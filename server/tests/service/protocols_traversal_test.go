package service_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// TestTraversal: no path and no model name leads out of the served folders, neither to files next to the model
// repository nor to files of the machine.
func TestTraversal(t *testing.T) {
	dir := t.TempDir()
	const secret = "the contents of a file beside the folder"
	models := filepath.Join(dir, "models")
	for name, text := range map[string]string{
		"secret.txt": secret, "config.yaml": "name: stolen\nsource: identity # " + secret, "model.onnx": secret,
		"outside/config.yaml": "source: identity", "outside/1/model.onnx": secret,
		"models/inside/config.yaml": "source: identity",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "outside"), filepath.Join(models, "link")); err != nil {
		t.Fatal(err)
	}
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Log: config.Log{Level: "error"},
		Repository: config.Repository{Dir: models, Mode: config.LoadExplicit},
		Models:     []workers.Config{{Name: "echo", Source: "identity"}}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	raw := func(method, path, body string) (int, string) {
		c, err := net.Dial("tcp", s.Addr("http"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\nConnection: close\r\n\r\n%s", method, path, len(body), body)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(text)
	}
	if code, text := raw("POST", "/v2/repository/models/inside/load", "{}"); code != http.StatusOK {
		t.Fatalf("a model of the folder: %d %s", code, text)
	}
	ups := []string{"..", "%2e%2e", ".%2e", "%2E.", "..%00", "..;", "..%5c", "....//..", "%252e%252e", "%c0%ae%c0%ae",
		"..%2f..", "%2f..%2f.."}
	for _, up := range ups {
		for _, root := range []string{"/", "/console/", "/docs/", "/console/assets/", "/v2/models/",
			"/v2/repository/models/", "/v2/streams/", "/apps/", "/v2/systemsharedmemory/region/"} {
			for _, file := range []string{"etc/passwd", "secret.txt", "config.yaml", "outside/config.yaml"} {
				path := root + strings.Repeat(up+"/", 12) + file
				code, text := raw("GET", path, "")
				if strings.Contains(text, "root:") || strings.Contains(text, secret) {
					t.Errorf("%s is served: %d %.100q", path, code, text)
				}
			}
		}
		for _, name := range []string{up, up + "%2foutside", up + "%2Foutside%2F", "inside%2f" + up + "%2f" + up +
			"%2foutside", "%2fetc", "inside%00", "link", "link%2f1"} {
			code, text := raw("POST", "/v2/repository/models/"+name+"/load", "{}")
			if code < 400 || strings.Contains(text, secret) {
				t.Errorf("a load of %s: %d %.200s", name, code, text)
			}
			if _, text := raw("GET", "/v2/models/"+name, ""); strings.Contains(text, secret) {
				t.Errorf("the model %s: %.200s", name, text)
			}
		}
	}
	for _, file := range []string{"../../secret.txt", "/etc/passwd", "1/../../../secret.txt", "..\\\\secret.txt",
		"1/\\u0000"} {
		code, text := raw("POST", "/v2/repository/models/sent/load",
			fmt.Sprintf(`{"parameters":{"config":"{\"backend\":\"onnx\"}","file:%s":"c2VjcmV0"}}`, file))
		if code < 400 || strings.Contains(text, secret) {
			t.Errorf("a load with the file %s: %d %.200s", file, code, text)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "secret.txt")); err != nil || string(got) != secret {
		t.Errorf("the file beside the folder: %q, %v", got, err)
	}
}

// TestNoProgramBesideModelsNotLoaded: a missing program is a 404 also with unloaded models in the folder.
func TestNoProgramBesideModelsNotLoaded(t *testing.T) {
	models := t.TempDir()
	if err := os.MkdirAll(filepath.Join(models, "waits"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(models, "waits", "config.yaml"), []byte("source: identity"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Log: config.Log{Level: "error"},
		Repository: config.Repository{Dir: models, Mode: config.LoadExplicit}})
	for path, want := range map[string]int{"/apps/nobody": 404, "/apps/waits/x": 404, "/apps": 200} {
		if code, text := servertest.Get(t, s, path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
