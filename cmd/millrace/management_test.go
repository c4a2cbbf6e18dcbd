package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Commands manage a server over the unix socket, named by --addr, MILLRACE_ADDR or the server's own variable, and not
// at the address http. The socket of a killed server is replaced, the socket of a running server is not, and a server
// removes its socket at its end.
func TestManagement(t *testing.T) {
	dir, err := os.MkdirTemp("", "millrace") // the folder of a test may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "manage.sock")
	at := "unix:" + path
	args := []string{"--management-address", at, "--model", "echo=identity"}
	p, http := serve(t, args...)
	if out, errs, code := millrace(t, "models", "load", "echo", "--addr", at); code != 0 || out != "echo\n" {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if _, errs, code := millrace(t, "models", "load", "echo", "--addr", http); code != 1 ||
		!strings.Contains(errs, "there is nothing at") ||
		!strings.Contains(errs, "if the server has management.address, give that with --addr") {
		t.Errorf("at the address http: %d %s", code, errs)
	}
	for _, env := range []string{"MILLRACE_ADDR=" + at, "MILLRACE_MANAGEMENT_ADDRESS=" + at} {
		for _, words := range [][]string{{"models", "unload", "echo"}, {"models", "load", "echo"}, {"models"},
			{"health"}} {
			c := command(t, words...)
			c.Env = append(c.Env, env)
			if out, errs, code := finish(t, c); code != 0 {
				t.Errorf("%s millrace %s: %d %s%s", env, words, code, out, errs)
			}
		}
	}
	found, _ := diagnose(t, command(t, "doctor", "--json", "--http", http, "--grpc", "off", "--management-address", at,
		"--addr", at))
	wantSymptom(t, found, "server", healthy, at, "is ready")
	wantSymptom(t, found, "socket of management", healthy, at+" is in use")
	if _, errs, code := millrace(t, append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "off"},
		args...)...); code != 1 || !strings.Contains(errs, "--management-address: "+path+" is in use") {
		t.Errorf("a second server: %d %s", code, errs)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.end()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("a server that is killed leaves its socket: %v", err)
	}
	if _, errs, code := millrace(t, "health", "--addr", at); code != 1 ||
		!strings.Contains(errs, "the server at "+at+" cannot be reached") || !strings.Contains(errs, "start a server") {
		t.Errorf("without a server: %d %s", code, errs)
	}
	found, _ = diagnose(t, command(t, "doctor", "--json", "--http", "127.0.0.1:0", "--grpc", "off",
		"--management-address", at))
	wantSymptom(t, found, "socket of management", healthy, at+" is free")
	p, _ = serve(t, append(args, "--management-socket", "group")...)
	if file, err := os.Lstat(path); err != nil || file.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("%v %v", file.Mode(), err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("the server ends with %d", code)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	found, code := diagnose(t, command(t, "doctor", "--json", "--http", "127.0.0.1:0", "--grpc", "off",
		"--management-address", "unix:"+dir+"/none/s"))
	if wantSymptom(t, found, "socket of management", warns, "the folder of "+dir+"/none/s is not there",
		"RuntimeDirectory", "--management-address"); code != 0 {
		t.Errorf("without the folder, doctor ends with %d", code)
	}
	if out, errs, code := millrace(t, "check", "--http", "127.0.0.1:0", "--grpc", "off", "--management-address",
		"unix:"+dir+"/none/s"); code != 0 || !strings.Contains(out, "the folder of "+dir+"/none/s is not there") {
		t.Errorf("without the folder, check ends with %d: %s%s", code, out, errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "none"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found, code = diagnose(t, command(t, "doctor", "--json", "--http", "127.0.0.1:0", "--grpc", "off",
		"--management-address", "unix:"+dir+"/none/s"))
	if wantSymptom(t, found, "socket of management", fails, dir+"/none is not a folder"); code != 1 {
		t.Errorf("with a file in the place of the folder, doctor ends with %d", code)
	}
}
