package service_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"millrace/internal/servertest"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/workers"
)

// TestExamplesOfREST runs the calls of docs/rest.md.
func TestExamplesOfREST(t *testing.T) {
	testneeds.Program(t, "curl")
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Models: []workers.Config{{Name: "echo", Source: "identity"}, {Name: "count", Source: "repeat"}}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	text, err := os.ReadFile("../../../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, block := range strings.Split(string(text), "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "sh\n") {
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(block[3:]), "\n") {
			call := strings.ReplaceAll(strings.ReplaceAll(line, "curl ", "curl -sS --fail-with-body "),
				"localhost:8000", s.Addr("http"))
			if out, err := exec.Command("bash", "-c", call).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			n++
		}
	}
	if n < 20 {
		t.Errorf("only %d calls", n)
	}
}
