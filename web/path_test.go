package web_test

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

// atPath starts an nginx that passes requests below a path on to a server, without the path, and returns the address
// of the path.
func atPath(t *testing.T, path, server string) string {
	t.Helper()
	program := testneeds.Program(t, "nginx")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // root can read the folder
	}
	conf := filepath.Join(dir, "nginx.conf")
	write(t, conf, fmt.Appendf(nil, `daemon off;
%sworker_processes 1;
pid %s;
events {}
http {
	access_log off;
	%s
	map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
	server {
		listen %s;
		location %s/ {
			proxy_pass http://%s/;
			proxy_http_version 1.1;
			proxy_set_header Host $http_host;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
			proxy_buffering off;
		}
	}
}
`, user, filepath.Join(dir, "pid"), temp, ln.Addr(), path, server))
	// nginx takes over the listener, so that no other process can take the port meanwhile.
	socket, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := exec.Command(program, "-e", "stderr", "-p", dir, "-c", conf)
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
	return "http://" + ln.Addr().String() + path
}
