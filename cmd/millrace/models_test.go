package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// For a model with a reason of several lines, the table of models has one line; show and --json have all lines.
// Errors name the file given by the user, not the file stored by the server.
func TestModelThatFails(t *testing.T) {
	t.Parallel()
	testneeds.Python(t)
	program := filepath.Join(t.TempDir(), "broken.py")
	if err := os.WriteFile(program, []byte("def infer(x: str) -> str:\n    return x\nraise "+
		"ValueError('first\\nsecond')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, "motion")
	_, stderr, code := millrace(t, "models", "load", program, "--addr", addr)
	if code != 1 || !strings.Contains(stderr, program+" cannot be imported: ValueError: first\nsecond\n") ||
		strings.Contains(stderr, "millrace-model-") {
		t.Errorf("load: exit status %d: %s", code, stderr)
	}
	out, _, _ := millrace(t, "models", "--addr", addr)
	if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[1], "broken ") ||
		!strings.HasSuffix(lines[1], "ValueError: first ...") {
		t.Errorf("models:\n%s", out)
	}
	if out, _, _ := millrace(t, "models", "--json", "--addr", addr); !strings.Contains(out,
		`ValueError: first\nsecond\n`) || strings.Contains(out, "millrace-model-") {
		t.Errorf("models --json:\n%s", out)
	}
	_, stderr, code = millrace(t, "models", "show", "broken", "--addr", addr)
	if code != 1 || !strings.HasPrefix(stderr, `millrace: model: "broken" is unavailable: `) ||
		!strings.Contains(stderr, "ValueError: first\nsecond\n") {
		t.Errorf("show: exit status %d: %s", code, stderr)
	}
}

// A model's configuration in Triton's form lists optional inputs.
func TestOptionalInputs(t *testing.T) {
	t.Parallel()
	testneeds.Python(t)
	program := filepath.Join(t.TempDir(), "part.py")
	if err := os.WriteFile(program, []byte("def infer(x: str, y: float = 2) -> str:\n    return x\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, program)
	r, err := http.Get("http://" + addr + "/v2/models/part/config")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	x, y, _ := strings.Cut(string(text), `"name":"y"`)
	if err != nil || !strings.Contains(x, `"optional":false`) || !strings.Contains(y, `"optional":true`) {
		t.Errorf("%v: %s", err, text)
	}
}
