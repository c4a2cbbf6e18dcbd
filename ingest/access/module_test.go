package access

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/testneeds"
)

// lines are the lines written by a logger.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestModule: the module's function determines the users; errors of the function contain no password, and a call that
// ends the process fails alone.
func TestModule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.py")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log lines
	open := func() (*Module, error) {
		return OpenModule(t.Context(), ModuleOptions{Python: testneeds.Python(t), File: file,
			Env: []string{"PATH=/usr/bin:/bin"}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	}
	for text, want := range map[string]string{"x = 1\n": "has no function authenticate_user",
		"import nothing_of_that_name\n": "ModuleNotFoundError", "def f(:\n": "SyntaxError"} {
		write(text)
		if m, err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v %v, want %s", text, m, err, want)
		}
	}
	write(`
import os
print("loaded")

def authenticate_user(username, password):
    if username == "end":
        os._exit(3)
    if username == "raise":
        raise ValueError("wrong " + password)
    if username == "spaces":
        return "a b"
    if (username, password) == ("eva", "sécret"):
        print("eva is here")
        return 7
    return None
`)
	m, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	for _, c := range []struct{ name, password, id, err string }{
		{"eva", "sécret", "7", ""},
		{"eva", "secret", "", ""},
		{"end", "hidden", "", "did not answer"},
		{"eva", "sécret", "7", ""},
		{"raise", "hidden", "", "authenticate_user failed: ValueError, " + file + ", line 9"},
		{"spaces", "hidden", "", `"a b" is not a name`},
		{"\n\"{", "sécret", "", ""},
	} {
		id, err := m.Authenticate(t.Context(), c.name, c.password)
		if id != c.id || (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) ||
			strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%q: %q %v, want %q %s", c.name, id, err, c.id, c.err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Authenticate(ended, "eva", "sécret"); err == nil {
		t.Error("a call of a request that has ended")
	}
	if id, err := m.Authenticate(t.Context(), "eva", "sécret"); id != "7" || err != nil {
		t.Errorf("after a call that was given up: %q %v", id, err)
	}
	for wait := time.Millisecond; !strings.Contains(log.String(), "eva is here"); wait *= 2 {
		if wait > 10*time.Second {
			t.Fatalf("what it prints is not in the log: %s", log.String())
		}
		time.Sleep(wait)
	}
	if strings.Contains(log.String(), "hidden") {
		t.Errorf("a password is in the log: %s", log.String())
	}
}
