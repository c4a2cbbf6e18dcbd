// Package nginxtest runs nginx for tests.
package nginxtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"millrace/internal/testneeds"
)

// Start runs nginx on a free port until the test ends, with directives of the blocks http and server, and returns the
// URL.
func Start(t testing.TB, http, server string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	temp, user := "", ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	if os.Getuid() == 0 {
		user = "user root;\n" // root can read the folders of the test
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off;
%sworker_processes 1;
pid %s;
events {}
http {
	access_log off;
	%s
	%s
	server {
		listen %s;
		%s
	}
}
`, user, filepath.Join(dir, "pid"), temp, http, ln.Addr(), server)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// nginx takes over the listener, so that no other process can take the port meanwhile.
	socket, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := exec.Command(testneeds.Program(t, "nginx"), "-e", "stderr", "-p", dir, "-c", conf)
	c.Env, c.ExtraFiles, c.Stderr = append(os.Environ(), "NGINX=3;"), []*os.File{socket}, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = socket.Close()
	_ = ln.Close()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("nginx: %v: %s", err, &out)
		}
	})
	return "http://" + ln.Addr().String()
}
