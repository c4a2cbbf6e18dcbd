package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// A user added with a password can log in with the password, but not after the removal. The password is in no file
// and no list.
func TestUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.yaml")
	run := func(stdin string, args ...string) (string, int) {
		t.Helper()
		c := command(t, args...)
		c.Stdin = strings.NewReader(stdin)
		out, stderr, code := finish(t, c)
		return out + stderr, code
	}
	if out, code := run("wrong horse\n", "users", "add", file, "eva", "--role", "infer", "--model",
		"door-*"); code != 0 {
		t.Fatal(out)
	}
	if out, code := run("", "users", "add", file, "cam", "--no-password"); code != 0 {
		t.Fatal(out)
	}
	if out, code := run("correct horse", "users", "passwd", file, "eva"); code != 0 {
		t.Fatal(out)
	}
	out, code := run("", "users", "list", file)
	if code != 0 || !strings.Contains(out, "eva   set       infer  door-*  default  never") ||
		!strings.Contains(out, "cam   none") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := run("", "users", "list", file, "--json"); code != 0 || strings.Contains(out, "argon2") ||
		!strings.Contains(out, `"name":"eva"`) || !strings.Contains(out, `"password":true`) {
		t.Errorf("%d %s", code, out)
	}
	_, addr := serve(t, "--model", "door-1=identity", "--auth-users", file)
	for password, want := range map[string]int{"correct horse": 200, "wrong horse": 401} {
		req, err := http.NewRequest("POST", "http://"+addr+"/session_login", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("eva", password)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("with %s: %s", password, r.Status)
		}
	}
	if out, code := run("", "users", "remove", file, "eva"); code != 0 || out != "eva removed\n" {
		t.Errorf("%d %s", code, out)
	}
	for _, c := range []struct {
		args, stdin string
		code        int
		want        string
	}{
		{"users add " + file + " cam", "12345678", exitUsage, "NAME: cam is in the file"},
		{"users add " + file + " eva", "1234567\n", exitFailure, "the password has 7 bytes: want 8"},
		{"users add " + file + " eva", "", exitFailure, "no password"},
		{"users add " + file + " eva --role root", "", exitUsage, "--role:"},
		{"users add " + file + " eva --model a[", "", exitUsage, "--model:"},
		{"users passwd " + file + " eva", "12345678", exitFailure, `no user "eva"`},
		{"users remove " + file + " eva", "", exitFailure, `no user "eva"`},
		{"users list " + file + ".none", "", exitFailure, "FILE:"},
	} {
		if out, code := run(c.stdin, strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.args, code, out, c.code, c.want)
		}
	}
}

// TestUsersExamples runs the examples of the help in a shell. The password set by users passwd is valid for the
// login.
func TestUsersExamples(t *testing.T) {
	const password = `a longer \n password 100%`
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\"\n", os.Args[0])
	testneeds.WriteProgram(t, filepath.Join(dir, "millrace"), script)
	logsIn := func() bool {
		t.Helper()
		_, addr := serve(t, "--model", "find=identity", "--auth-users", filepath.Join(dir, "users.yaml"))
		req, err := http.NewRequest("POST", "http://"+addr+"/session_login", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("eva", password)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode == 200
	}
	ran := 0
	for line := range strings.Lines(usersExamples) {
		if strings.Contains(line, "millrace serve") {
			continue // runs until stopped: tested above
		}
		c := command(t)
		c.Path, c.Args = "/bin/sh", []string{"sh", "-c", line}
		c.Dir, c.Stdin = dir, strings.NewReader("the first password\n")
		c.Env = append(c.Env, "PATH="+dir+":"+os.Getenv("PATH"), "PASSWORD="+password)
		if out, stderr, code := finish(t, c); code != 0 {
			t.Fatalf("%s: %d %s %s", line, code, out, stderr)
		}
		if ran++; strings.Contains(line, "users passwd") && !logsIn() {
			t.Errorf("the password that was given to %s is another one", line)
		}
	}
	if ran != 5 {
		t.Errorf("%d examples", ran)
	}
}
