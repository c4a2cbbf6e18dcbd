package source

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/gittest"
	"millrace/internal/nginxtest"
	"millrace/internal/testneeds"
)

// TestFetchNginx fetches from git http-backend behind nginx, with and without the password of nginx.
func TestFetchNginx(t *testing.T) {
	r, first, second := history(t)
	files := map[string]string{} // a pack larger than the buffers of nginx
	for i := range 40 {
		files[fmt.Sprintf("big/%d.txt", i)] = strings.Repeat(fmt.Sprintln(i*i, first), 400) + random()
	}
	r.Commit(files)
	r.Git("branch", "-f", "before", second)
	root := filepath.Dir(r.Bare())
	at := serveNginx(t, root)
	dir, _ := mustFetch(t, at+"/open/app.git", Options{})
	if text, err := os.ReadFile(filepath.Join(dir, "big", "39.txt")); err != nil || len(text) < 400*40 {
		t.Errorf("the last file: %d bytes, %v", len(text), err)
	}
	for _, ref := range []string{"before", first} {
		dir, _ := mustFetch(t, at+"/open/app.git@"+ref, Options{})
		want := first
		if ref == "before" {
			want = second
		}
		if got := gittest.At(t, dir).Git("rev-parse", "HEAD"); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
	refuses(t, at+"/open/none.git", Options{}, "has no such repository")
	refuses(t, at+"/open/app.git", Options{MaxSize: 1000}, "too large", "--max-size")
	closed := strings.Replace(at, "http://", "http://me@", 1) + "/closed/app.git"
	mustFetch(t, closed, Options{Token: "pass word"})
	refuses(t, closed, Options{}, "wants a password", EnvToken)
	refuses(t, closed, Options{Token: "wrong"}, "refuses the token")
}

// random returns 16 KiB that no compression makes smaller than half.
func random() string {
	b := make([]byte, 8<<10)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// serveNginx serves the repositories of a folder below /open, and below /closed for the user me with the password
// "pass word".
func serveNginx(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	socket, users := filepath.Join(dir, "cgi"), filepath.Join(dir, "users")
	startCGI(t, socket)
	if err := os.WriteFile(users, []byte("me:{PLAIN}pass word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(gittest.At(t, dir).Git("--exec-path"), "git-http-backend")
	params := ""
	for name, value := range map[string]string{"SCRIPT_FILENAME": backend, "GIT_PROJECT_ROOT": root,
		"GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": "$1", "REQUEST_METHOD": "$request_method",
		"QUERY_STRING": "$query_string", "CONTENT_TYPE": "$content_type", "CONTENT_LENGTH": "$content_length",
		"REMOTE_USER": "$remote_user", "REMOTE_ADDR": "$remote_addr", "GIT_PROTOCOL": "$http_git_protocol",
		"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
		"GIT_CONFIG_VALUE_0": "*"} {
		params += fmt.Sprintf("fastcgi_param %s %q;\n", name, value)
	}
	return nginxtest.Start(t, "", fmt.Sprintf(`%s
		location ~ ^/open(/.*)$ { fastcgi_pass unix:%s; }
		location ~ ^/closed(/.*)$ {
			auth_basic git;
			auth_basic_user_file %s;
			fastcgi_pass unix:%s;
		}`, params, socket, users, socket))
}

// startCGI runs fcgiwrap on a socket until the test ends.
func startCGI(t *testing.T, socket string) {
	t.Helper()
	c := exec.Command(testneeds.Program(t, "fcgiwrap"), "-s", "unix:"+socket)
	var out bytes.Buffer
	c.Stderr = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait() // ends by the signal
		if t.Failed() && out.Len() > 0 {
			t.Logf("fcgiwrap: %s", &out)
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
