package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// The service written by init passes its own test, and init overwrites nothing.
func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "hello")
	out, stderr, code := millrace(t, "init", dir)
	if code != 0 || !strings.Contains(out, "millrace serve ./service.py --watch") || !strings.Contains(out, "cd "+dir) {
		t.Fatalf("exit status %d, %q\n%s", code, out, stderr)
	}
	test := exec.CommandContext(t.Context(), testneeds.Python(t), "-B", "-m", "unittest")
	test.Dir = dir
	if text, err := test.CombinedOutput(); err != nil || !strings.Contains(string(text), "Ran 3 tests") {
		t.Errorf("%v\n%s", err, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "service.py"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "test_service.py")); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := millrace(t, "init", dir); code != 1 ||
		!strings.Contains(stderr, "service.py exists already: choose another folder") {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "service.py")); err != nil || string(text) != "mine" {
		t.Errorf("service.py has %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "test_service.py")); err == nil {
		t.Error("test_service.py was written beside a service.py that was there")
	}
	other := filepath.Join(t.TempDir(), "other")
	out, _, _ = millrace(t, "init", other, "--json")
	var written struct{ Files []string }
	if err := json.Unmarshal([]byte(out), &written); err != nil || len(written.Files) != 2 {
		t.Errorf("%q, %v", out, err)
	}
}
