package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// addKey adds a key to a file and returns the key.
func addKey(t *testing.T, file, name, roles string) string {
	t.Helper()
	key, stderr, code := millrace(t, "keys", "add", file, name, "--role", roles)
	if code != 0 {
		t.Fatalf("exit status %d\n%s", code, stderr)
	}
	return strings.TrimSpace(key)
}

// A command takes the server's key from a file, the variable or a flag, in the reverse order of precedence. The
// commands' variable for the address takes precedence over the server's variable.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	keys, file, empty := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	key := addKey(t, keys, "all", "infer,watch,manage")
	viewer := addKey(t, keys, "viewer", "watch")
	for name, text := range map[string]string{file: key + "\n", empty: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, addr := serve(t, "--model", "same=identity", "--auth-keys", keys)
	env := func(values ...string) []string { return values }
	token, at := "MILLRACE_TOKEN=", "MILLRACE_ADDR="+addr
	for _, c := range []struct {
		env  []string
		args string
		code int
		want string
	}{
		{nil, "models --addr ADDR", 1, "the key is missing: send the header api_key, or Authorization: Bearer KEY; " +
			"give a key of the server with --token-file FILE or the variable MILLRACE_TOKEN"},
		{env(at, token+key), "models", 0, "READY"},
		{env(at, token+key, "MILLRACE_HTTP=127.0.0.1:1", "MILLRACE_TLS_CERT=x"), "models", 0, "READY"},
		{env(at), "models --token-file " + file, 0, "READY"},
		{env(at), "models --token " + key, 0, "READY"},
		{env(at, token+"wrong"), "models --token-file " + file, 0, "READY"},
		{env(at, token+key), "models --token wrong", 1, "the key or token is wrong"},
		{env(at, token+key), "models --addr 127.0.0.1:1", 1, "connection refused"},
		{env(at), "models --token-file " + file + " --token x", 2, "--token: and --token-file exclude each other"},
		{env(at), "models --token-file " + file + ".none", 1, "--token-file: cannot be read: open "},
		{env(at), "models --token-file " + empty, 1, "--token-file: " + empty + " is empty"},
		{env(at, token+"a b"), "models", 2, "the API key: has other characters than"},
		{env(at, token+viewer), "models unload same", 1, "viewer has not the role manage"},
		{env(at, token+key), "models show same", 0, "same"},
		{env(at, token+key), "infer same " + picture(t), 0, "same version 1"},
		{env(at, token+key), "bench --model same --frames 3", 0, "3 answered"},
		{env(at, token+key), "bench --model same --frames 3 --protocol v1", 0, "3 answered"},
		{env(at, token+key), "bench --model same --frames 3 --protocol rest", 0, "3 answered"},
		{env(at, token+key), "log-level", 0, "info"},
		{env(at, token+key), "streams", 0, ""},
		{env(at, token+key), "top --once", 0, "same"},
		{env(at, token+key), "api-schema", 0, `"openapi"`},
		{env(at, token+key), "doctor --addr ADDR --grpc off", 0, "is ready"},
		{env(at), "doctor --addr ADDR --grpc off", 1, "give a key that has the role watch, with --token-file FILE"},
		{env(at, token+key), "models load delay", 0, "delay"},
		{env(at, token+key), "__complete models unload ", 0, "delay"},
	} {
		cmd := command(t, strings.Split(strings.ReplaceAll(c.args, "ADDR", addr), " ")...)
		cmd.Env = append(cmd.Env, c.env...)
		stdout, stderr, code := finish(t, cmd)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s with %q: exit status %d, want %d and %q\n%s%s", c.args, c.env, code, c.code, c.want, stdout,
				stderr)
		}
		if strings.Contains(stdout+stderr, key) {
			t.Errorf("%s: the output has the key", c.args)
		}
	}
	for _, format := range exampleFormats {
		c := command(t, "examples", "same", "--format", format)
		c.Env = append(c.Env, at, token+key)
		text, stderr, code := finish(t, c)
		if code != 0 || strings.Contains(text, key) {
			t.Fatalf("%s: exit status %d\n%s%s", format, code, text, stderr)
		}
		t.Setenv("MILLRACE_TOKEN", key)
		root, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		if out := runExample(t, format, dir, root, text); !strings.Contains(out, "x") {
			t.Errorf("%s\n%s", text, out)
		}
	}
}

// Programs started by a command do not get the variable with the key.
func TestTokenStaysHere(t *testing.T) {
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		testneeds.WriteProgram(t, filepath.Join(dir, name), "#!/bin/sh\nenv >> "+seen+"\nexit 1\n")
	}
	_, addr := serve(t, "--model", "eyes=motion")
	for _, args := range [][]string{{"doctor", "--addr", addr}, {"stream", filepath.Join(dir, "seen"), "--model",
		"eyes", "--addr", addr}} {
		c := command(t, args...)
		c.Env = slices.DeleteFunc(c.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") })
		c.Env = append(c.Env, "PATH="+dir+":/usr/bin:/bin", "MILLRACE_TOKEN=planted", "MILLRACE_NAME=seen")
		_ = os.Remove(seen)
		_, stderr, _ := finish(t, c)
		text, err := os.ReadFile(seen)
		if err != nil || !strings.Contains(string(text), "PATH=") {
			t.Fatalf("%q has started nothing: %v\n%s", args, err, stderr)
		}
		if strings.Contains(string(text)+stderr, "planted") || strings.Contains(stderr, "is not a setting") {
			t.Errorf("%q: a program has the key\n%s%s", args, text, stderr)
		}
	}
	interpreter := filepath.Join(dir, "python3")
	testneeds.WriteProgram(t, interpreter, "#!/bin/sh\nenv\n")
	c := exec.Command(os.Args[0], "octoai", "run")
	c.Env = append(command(t).Env, "PATH="+dir+":/usr/bin:/bin", "MILLRACE_TOKEN=planted", "MILLRACE_API_KEY=kept")
	if out, err := c.CombinedOutput(); err != nil || strings.Contains(string(out), "planted") ||
		!strings.Contains(string(out), "kept") {
		t.Errorf("%v\n%s", err, out)
	}
}
