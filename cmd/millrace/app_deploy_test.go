package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/gittest"
	"millrace/internal/testneeds"
)

// The commands for hosts refuse wrong flags before they connect, take secrets out of the environment, and name a host
// without the application.
func TestAppDeploy(t *testing.T) {
	s := gittest.NewSSH(t)
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("millrace.yaml", []byte("models: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OF_ANN", "a-secret")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"deploy"}, exitUsage, "--target: is missing: want [USER@]HOST[:PORT]"},
		{[]string{"logs", "--target", "a:x"}, exitUsage, `"x" is no port`},
		{[]string{"deploy", "--target", "a", "--with", "docker"}, exitUsage, `--with: "docker" is neither podman nor systemd`},
		{[]string{"deploy", "--target", "a", "--secret", "A:NONE"}, exitUsage, "the variable NONE for the secret A is not " +
			"set"},
		{[]string{"deploy", "--target", "a", "--secret", "A:OF_ANN"}, 1, "there is no image"},
		{[]string{"run", "--target", "a"}, exitUsage, "--target: is for the command"},
		{[]string{"logs", "--target", "a", "--http", ":9"}, exitUsage, "--http: is for the command deploy"},
		{[]string{"remove", "--target", "a", "--with", "podman"}, exitUsage, "--with: is for the command deploy"},
		{[]string{"logs", "--target", "a", "--name", "A b"}, 1, `"A b" is no name for an application on hosts`},
		{[]string{"run", "--name", "a"}, exitUsage, "--name: is for the command remove or deploy or logs"},
		{[]string{"deploy", "--kubernetes", "k"}, exitUsage, "--image: is missing"},
		{[]string{"deploy", "--kubernetes", "k", "--image", "registry.example.org/a:v1", "--target", "a"}, exitUsage,
			"--target: is not for --kubernetes"},
	} {
		_, stderr, code := executed(t, append([]string{"app", "--config", dir}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "a-secret") {
			t.Errorf("%v: %d %s; want %s", c.args, code, stderr, c.want)
		}
	}
	if _, has := os.LookupEnv("OF_ANN"); has {
		t.Error("the secret is still in the environment")
	}
	app := filepath.Join(dir, "app")
	if err := os.Mkdir(app, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("millrace.yaml", filepath.Join(app, "millrace.yaml")); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := executed(t, "app", "--config", app, "--image", "registry.example.org/a:v1", "--kubernetes", "k",
		"--json", "deploy")
	if code != 0 || !strings.Contains(out, `"deployment.yaml"`) {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	if text, err := os.ReadFile("k/deployment.yaml"); err != nil || !strings.Contains(string(text),
		`image: "registry.example.org/a:v1"`) {
		t.Errorf("%v, %s", err, text)
	}
	out, stderr, code = executed(t, "app", "--config", app, "--target", s.User+"@127.0.0.1:"+s.Port, "--target-folder",
		filepath.Join(dir, "host"), "--ssh-key", s.Write("key", strings.TrimSpace(string(s.Key))), "--known-hosts",
		s.KnownHosts, "remove")
	if code != 1 || out != "" || !strings.Contains(stderr, ":"+s.Port+": there was no application app; "+dir+
		" has no applications. Compare --config, --name") {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	_, stderr, code = executed(t, "app", "--config", app, "--target", s.User+"@127.0.0.1:"+s.Port, "--target-folder",
		filepath.Join(dir, "host"), "--ssh-key", s.Write("key", strings.TrimSpace(string(s.Key))), "--known-hosts",
		s.KnownHosts, "logs")
	if code != 1 || !strings.Contains(stderr, "127.0.0.1:"+s.Port+": the application app is not there") {
		t.Errorf("%d %s", code, stderr)
	}
	for _, name := range []string{"greet", "twice"} {
		err := os.Mkdir(filepath.Join(dir, name), 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name, "state.json"), []byte("{}"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, stderr, code = executed(t, "app", "--name", "twize", "--target", s.User+"@127.0.0.1:"+s.Port, "--target-folder",
		filepath.Join(dir, "twize"), "--ssh-key", filepath.Join(s.Dir, "key"), "--known-hosts", s.KnownHosts, "remove")
	if code != 1 || !strings.Contains(stderr, "there was no application twize; the applications are greet, twice. ") {
		t.Errorf("a mistyped name: %d %s", code, stderr)
	}
	if _, err := os.Lstat(filepath.Join(dir, "twize")); err == nil {
		t.Error("remove has made a folder")
	}
	// Without a clone, the name finds the application on the host.
	testneeds.WriteProgram(t, filepath.Join(dir, "podman"), "#!/bin/sh\necho \"podman $*\"\n")
	s.Configure("SetEnv PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin")
	file := filepath.Join(dir, "host", "state.json")
	for _, args := range [][]string{{"--config", "file:///nowhere/App.git@v1"}, {"--name", "app"}} {
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte(`{"version": 1, "name": "app", "current": 2, "releases": [{"number": 2, `+
				`"with": "podman", "source": "file:///nowhere/App.git"}]}`), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--target", s.User+"@127.0.0.1:"+s.Port, "--target-folder", filepath.Join(dir, "host"),
			"--ssh-key", filepath.Join(s.Dir, "key"), "--known-hosts", s.KnownHosts)
		out, stderr, code := executed(t, append([]string{"app", "logs"}, args...)...)
		if code != 0 || out != "podman logs --tail 100 millrace-app-r2\n" {
			t.Errorf("logs %q: %d %s %s", args, code, out, stderr)
		}
		other := append([]string{"app", "remove", "--config", "file:///elsewhere/App.git"}, args[2:]...)
		_, stderr, code = executed(t, other...)
		const deployed = "app was deployed from file:///nowhere/App.git, and --config is file:///elsewhere/App.git"
		if code != 1 || !strings.Contains(stderr, deployed) {
			t.Errorf("remove of an application of another repository: %d %s", code, stderr)
		}
		out, stderr, code = executed(t, append([]string{"app", "remove"}, args...)...)
		if code != 0 || !strings.HasSuffix(out, ": removed app\n") {
			t.Errorf("remove %q: %d %s %s", args, code, out, stderr)
		}
		out, stderr, code = executed(t, append([]string{"app", "remove"}, args...)...) // podman has a volume
		if code != 0 || !strings.HasSuffix(out, ": app is not there any more\n") {
			t.Errorf("a second remove %q: %d %s %s", args, code, out, stderr)
		}
	}
	// The folder of another application is refused, and stays as it is.
	const state = `{"version": 1, "name": "other", "current": 0, "starting": 0, "releases": []}`
	if err := os.MkdirAll(filepath.Join(dir, "host"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"logs", "remove"} {
		_, stderr, code := executed(t, "app", "--config", app, "--target", s.User+"@127.0.0.1:"+s.Port,
			"--target-folder", filepath.Join(dir, "host"), "--ssh-key", filepath.Join(s.Dir, "key"), "--known-hosts",
			s.KnownHosts, step)
		if code != 1 || !strings.Contains(stderr, "belongs to the application other: give another by --target-folder") {
			t.Errorf("%s in the folder of another application: %d %s", step, code, stderr)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != state {
		t.Errorf("%s %v", text, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "host")); err != nil {
		t.Fatal(err)
	}
	// A failure on a later host: JSON names the hosts before.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := ln.Addr().String()
	_ = ln.Close()
	here := s.User + "@127.0.0.1:" + s.Port
	out, stderr, code = executed(t, "app", "--config", app, "--target", here+","+gone, "--target-folder",
		filepath.Join(dir, "host"), "--ssh-key", filepath.Join(s.Dir, "key"), "--known-hosts", s.KnownHosts, "--json",
		"remove")
	if code != 1 || !strings.Contains(out, `"`+here+`"`) || strings.Contains(out, gone) ||
		!strings.Contains(stderr, gone+": no SSH server answers at ") || strings.Contains(stderr, "--addr") ||
		!strings.Contains(stderr, here+" has nothing of the application") {
		t.Errorf("%d %s %s", code, out, stderr)
	}
}
