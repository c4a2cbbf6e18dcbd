package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Added keys open a server, revoked keys do not, and the list shows no key.
func TestKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	key, stderr, code := millrace(t, "keys", "add", file, "cam-1")
	if key = strings.TrimSpace(key); code != 0 || !strings.HasPrefix(key, "mr_") {
		t.Fatalf("%d %s %s", code, key, stderr)
	}
	out, stderr, code := millrace(t, "keys", "add", file, "boss", "--role", "manage,watch", "--expires", "1h", "--json")
	var boss struct {
		Key, Name, ID, Expires string
		Roles                  []string
	}
	if err := json.Unmarshal([]byte(out), &boss); code != 0 || err != nil || boss.Expires == "" ||
		strings.Join(boss.Roles, " ") != "watch manage" {
		t.Fatalf("%d %s %s %v", code, out, stderr, err)
	}
	_, addr := serve(t, "--model", "m=identity", "--auth-keys", file)
	for path, want := range map[string][3]int{"/v2/models/m": {401, 200, 403}, "/v2/status": {401, 403, 200},
		"/v2/health/live": {200, 200, 200}, "/metrics": {200, 200, 200}} {
		for i, k := range []string{"", key, boss.Key} {
			req, err := http.NewRequest("GET", "http://"+addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if k != "" {
				req.Header.Set("Authorization", "Bearer "+k)
			}
			r, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != want[i] {
				t.Errorf("%s with key %d: %s, want %d", path, i, r.Status, want[i])
			}
		}
	}
	if out, stderr, code := millrace(t, "keys", "add", file, "public", "--quota", "requests=2.5", "--quota",
		"bytes=2MiB,streams=0"); code != 0 {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	for _, quota := range []string{"frame=1", "frames", "frames=-1", "frames=1MiB", "frames=nan"} {
		if out, stderr, code := millrace(t, "keys", "add", file, "x", "--quota", quota); code != 2 ||
			!strings.Contains(stderr, "--quota: ") {
			t.Errorf("%s: %d %s %s", quota, code, out, stderr)
		}
	}
	list, _, code := millrace(t, "keys", "list", file)
	if !strings.Contains(list, "bytes=2097152,requests=2.5,streams=0") || strings.Count(list, "default") != 2 {
		t.Error(list)
	}
	if code != 0 || !strings.Contains(list, "cam-1") || !strings.Contains(list, "watch,manage") ||
		strings.Contains(list, key) {
		t.Errorf("%d %s", code, list)
	}
	if out, stderr, code := millrace(t, "keys", "revoke", file, boss.ID); code != 0 || out != "1 revoked\n" {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	if list, _, _ := millrace(t, "keys", "list", file, "--json"); strings.Contains(list, "boss") ||
		!strings.Contains(list, "cam-1") || strings.Contains(list, "sha256") {
		t.Errorf("%s", list)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("keys: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"keys revoke " + file + " nobody", 1, `no key with the name or id "nobody"`},
		{"keys add " + file + " x --role root", 2, `--role: "root" is not a role`},
		{"keys add " + file + " .x", 2, "NAME: name:"},
		{"keys add " + file + " x --expires -1h", 2, "--expires:"},
		{"keys list " + bad + ".none", 1, "FILE:"},
		{"serve --auth-keys " + bad, 1, "--auth-keys:"},
	} {
		if _, stderr, code := millrace(t, strings.Fields(c.args)...); code != c.code ||
			!strings.Contains(stderr, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.args, code, stderr, c.code, c.want)
		}
	}
}
