package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Each command that starts a server refuses, with advice, an address reachable from other machines without
// authentication. With a key or --insecure the command continues, in this test to an address that this machine lacks.
func TestExposed(t *testing.T) {
	const (
		refused = "can be reached from other machines, and nobody has to authenticate: set auth.keys (millrace keys " +
			"add keys.yaml NAME) or auth.users (millrace users add users.yaml NAME), or give --insecure"
		next = "192.0.2.1:1 is not an address of this machine"
	)
	const guessed = "can be reached from other machines, which could guess the key: set a random key (openssl rand " +
		"-hex 16), or auth.keys instead (millrace keys add keys.yaml NAME), or give --insecure to allow a short key"
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	addKey(t, keys, "one", "infer")
	app, err := filepath.Abs(ssfExample)
	if err != nil {
		t.Fatal(err)
	}
	words, err := filepath.Abs("../../examples/migrating/mosec/words.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, env, want string
	}{
		{"serve motion --http 192.0.2.1:1", "", "millrace: --http: 192.0.2.1:1 " + refused},
		{"serve motion --http 0.0.0.0:0 --grpc [::]:0 --metrics-address :0", "", "--grpc: [::]:0 " + refused +
			" to let everybody in\n--metrics-address: :0 " + refused},
		{"serve motion --http 0.0.0.0:0 --tls-self-signed", "", refused},
		{"serve motion --http 127.0.0.1:0 --grpc off --metrics-address 0.0.0.0:0", "",
			"--metrics-address: 0.0.0.0:0 " + refused},
		{"serve motion", "MILLRACE_GRPC=0.0.0.0:0", "grpc: 0.0.0.0:0 " + refused},
		{"serve motion --http 192.0.2.1:1 --insecure", "", next},
		{"serve motion --http 192.0.2.1:1 --auth-keys " + keys, "", next},
		{"serve motion --http 192.0.2.1:1", "MILLRACE_API_KEY=0123456789abcdef", next},
		{"serve motion --http 192.0.2.1:1", "MILLRACE_API_KEY=0123456789abcde",
			"api_key: has fewer than 16 characters, and http, 192.0.2.1:1, " + guessed},
		{"serve motion --http 192.0.2.1:1 --insecure", "MILLRACE_API_KEY=x", next},
		{"serve motion --http 192.0.2.1:1 --api-key x --auth-keys " + keys, "",
			"--api-key: has fewer than 16 characters, and "},
		{"serve motion --http 192.0.2.1:1", "MILLRACE_INSECURE=true", next},
		{"ssf --config " + app + " run --host 192.0.2.1 --port 1", "", "http: 192.0.2.1:1 " + refused},
		{"ssf --config " + app + " run --host 192.0.2.1 --port 1 --api grpc", "", "grpc: 192.0.2.1:1 " + refused},
		{"ssf --config " + app + " run --host 192.0.2.1 --port 1 --key 0123456789abcdef", "", next},
		{"ssf --config " + app + " run --host 192.0.2.1 --port 1 --key x", "",
			"api_key: has fewer than 16 characters, and http, 192.0.2.1:1, " + guessed},
		{"ssf --config " + app + " run --host 192.0.2.1 --port 1 --key x", "MILLRACE_INSECURE=true", next},
		{"ssf --config " + app + " run --host 192.0.2.1 --port 1", "MILLRACE_INSECURE=true", next},
		{"run " + words + " -- --address 192.0.2.1 --port 1", "", "http: 192.0.2.1:1 " + refused},
		{"run " + words + " --insecure -- --address 192.0.2.1 --port 1", "", next},
		{"demo --http 0.0.0.0:0", "", "--http: 0.0.0.0:0 can be reached from other machines"},
		{"check motion --http 192.0.2.1:1", "", "--http: 192.0.2.1:1 " + refused},
	} {
		cmd := command(t, strings.Split(c.args, " ")...)
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env)
		}
		stdout, stderr, code := finish(t, cmd)
		if code != 1 || !strings.Contains(stdout+stderr, c.want) || strings.Contains(stdout, "is ready") {
			t.Errorf("%s %s: exit status %d, want 1 and %q\n%s%s", c.env, c.args, code, c.want, stdout, stderr)
		}
	}
	for _, args := range []string{"run --port 1 --host 192.0.2.1", "run --port 1 --host 192.0.2.1 -- --insecure"} {
		c := octoai(t, filepath.Join(octoaiFolder, "hello"), nil, strings.Split(args, " ")...)
		_, stderr, code := finish(t, c)
		want := refused
		if strings.Contains(args, "insecure") {
			want = next
		}
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("octoai %s: exit status %d, want 1 and %q\n%s", args, code, want, stderr)
		}
	}
}
