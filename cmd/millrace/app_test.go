package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"millrace/internal/gittest"
)

// newAppRepository makes a repository with an application of each form.
func newAppRepository(t *testing.T) *gittest.Repository {
	t.Helper()
	r := gittest.New(t)
	config := ssfApplication(t, "", `  - {id: Double, version: 1, desc: d, inputs: [{id: x, type: Integer, desc: d}],
     outputs: [{id: y, type: Integer, desc: d}]}
`, "        return {'y': 2 * params['x']}\n")
	files := map[string]string{"service/millrace.yaml": "models:\n  - name: twice\n    source: ./twice.py\n",
		"service/twice.py": "def infer(x: int) -> int:\n    return 2 * x\n"}
	for _, name := range []string{"ssf_config.yaml", "app.py"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(config), name))
		if err != nil {
			t.Fatal(err)
		}
		files["examples/double/"+name] = string(text)
	}
	r.Commit(files)
	return r
}

// appCommandOf prepares a run of millrace app with Debian's Python in the working directory dir.
func appCommandOf(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	c := ssfCommandOf(t)
	c.Args = append(c.Args[:1], args...)
	c.Dir = dir
	return c
}

// TestSSFRepository runs an application by the address of its repository, with a branch and with a commit.
func TestSSFRepository(t *testing.T) {
	r := newAppRepository(t)
	commit := r.Git("rev-parse", "HEAD")
	r.Git("branch", "team/stable")
	url := "file://" + r.Bare()
	dir := t.TempDir()
	for _, ref := range []string{"", "@team/stable", "@" + commit} {
		c := appCommandOf(t, dir, "ssf", "--config", url+ref+"|examples/double/ssf_config.yaml", "--port", "0", "--key",
			"abc", "init", "build", "run")
		s := &octoaiServer{process: begin(t, c)}
		s.base = httpAddr.FindString(s.until("millrace is ready: "))
		if code, text := s.post("/v1/Double", `{"x": 21}`); code != http.StatusUnauthorized &&
			code != http.StatusForbidden {
			t.Errorf("without a key: %d %s", code, text)
		}
		out, err := http.Post(s.base+"/v1/Double?api_key=abc", "application/json", strings.NewReader(`{"x": 21}`))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Y int }
		err = errors.Join(json.NewDecoder(out.Body).Decode(&answer), out.Body.Close())
		if err != nil || answer.Y != 42 {
			t.Errorf("%s: %+v %v", ref, answer, err)
		}
		if ref == "" { // a clone in use is not replaced
			busy := appCommandOf(t, dir, "ssf", "--config", url+"|examples/double/ssf_config.yaml", "init")
			if _, stderr, code := finish(t, busy); code != 13 || !strings.Contains(stderr, "another process uses") {
				t.Errorf("init beside run: %d %s", code, stderr)
			}
		}
		s.signal(os.Interrupt)
	}
	stop := appCommandOf(t, t.TempDir(), "ssf", "--config", url+"|examples/double/ssf_config.yaml", "run")
	if _, stderr, code := finish(t, stop); code != 1 || !strings.Contains(stderr, "add the command init") {
		t.Errorf("run without init: %d %s", code, stderr)
	}
}

// TestApp clones and serves applications of both forms.
func TestApp(t *testing.T) {
	r := newAppRepository(t)
	dir := t.TempDir()
	out, stderr, code := finish(t, appCommandOf(t, dir, "app", "--config", "file://"+r.Dir+"|service/millrace.yaml",
		"init",
		"--json"))
	var got appInitResult
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Name != "app" ||
		got.Format != "millrace" ||
		got.Root != filepath.Join(dir, ".repo", "app") || got.Clone.Ref != "refs/heads/main" || got.Clone.Files != 4 {
		t.Errorf("init: %d %s %s %v", code, out, stderr, err)
	}
	p, addr := readyServer(t, appCommandOf(t, dir, "app", "--config", "file://"+r.Dir+"|service/millrace.yaml",
		"run", "--",
		"--http", "127.0.0.1:0", "--grpc", "off"))
	body, err := http.Post("http://"+strings.TrimPrefix(addr, "http://")+"/apps/twice/infer", "application/json",
		strings.NewReader(`{"x": 4}`))
	if err != nil || body.StatusCode != http.StatusOK {
		t.Errorf("%v %v", body, err)
	}
	p.signal(os.Interrupt)
	// a folder in place, with the form of another system
	c := appCommandOf(t, dir, "app", "--config", r.Dir+"|examples/double/ssf_config.yaml", "run", "init", "--",
		"--port", "0")
	s := &octoaiServer{process: begin(t, c)}
	s.base = httpAddr.FindString(s.until("millrace is ready: "))
	if code, text := s.post("/v1/Double", `{"x": 1}`); code != 200 || text != `{"y":2}` {
		t.Errorf("%d %s", code, text)
	}
	s.signal(os.Interrupt)
	if status := r.Git("status", "--porcelain", "--ignored"); status != "" {
		t.Errorf("the folder was changed: %s", status)
	}
}

// TestAppUsage: each mistake names the flag or the word.
func TestAppUsage(t *testing.T) {
	for args, want := range map[string]string{
		"init":                                              "--config: is missing",
		"logs --target a":                                   "--config: is missing: want the application, or --name NAME",
		"logs init --target a --name b":                     "--config: is missing: want REPO",
		"--config ./x":                                      "app takes",
		"--config ./x fly":                                  `"fly" is not a command of app: there are init, build, lock, run, test, package, publish`,
		"--config ftp://h/x init":                           `--config: ftp://h/x: "ftp" is not a way`,
		"--config ./x init --xyz":                           "--xyz: is not a flag of app",
		"--config h@h:x|../y init":                          "leads out of the repository",
		"--config ./x --timeout 0s":                         "app takes",
		"--config ./x init --with-ffmpeg":                   "--with-ffmpeg: is for the command package",
		"--config ./x publish --base b":                     "--base: is for the command package",
		"--config ./x package --discard":                    "--discard: is for the command init",
		"--config ./x init -- --http off":                   `"--http" behind -- is for the command run`,
		"--config ./x build --installer conda":              `--installer: "conda" is not one of auto, pip, uv`,
		"--config ./x build --pass MILLRACE_TOKEN":          "--pass: MILLRACE_TOKEN is a variable of the server",
		"--config ./x build --build-timeout 0s":             "--build-timeout: 0s is not a duration above 0",
		"--config ./x publish":                              "--image: is missing: want REGISTRY/NAME:TAG",
		"--config ./x --timeout 0s init":                    "--timeout: 0s is not a duration above 0",
		"--config ./x --max-size 0 init":                    `--max-size: "0" is not a size`,
		"--config ./x --add-ssh-key NONE init":              "--add-ssh-key: want NAME:VARIABLE",
		"--config ./x --add-ssh-key me:NO_SUCH_KEY_X init":  "the variable NO_SUCH_KEY_X for the key me is not set",
		"--config https://me:secret@h.example/x init":       "https://***@h.example/x has a password",
		"--config file:///srv/x --known-hosts ./none3 init": "--known-hosts: stat ./none3",
	} {
		_, stderr, code := executed(t, append([]string{"app"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(stderr, want) || strings.Contains(stderr, "secret") {
			t.Errorf("%s: %d %s, want %q", args, code, stderr, want)
		}
	}
}

// TestAppHelp: help of a command has the flags that the command reads, and the text of a flag names the same commands.
func TestAppHelp(t *testing.T) {
	flags := func(args ...string) (lines map[string]string) {
		t.Helper()
		out, stderr, code := executed(t, append(append([]string{"app"}, args...), "--help")...)
		if code != 0 {
			t.Fatalf("%q: %d %s", args, code, stderr)
		}
		lines = map[string]string{}
		for line := range strings.Lines(out) {
			if m := regexp.MustCompile(`^ +(?:-\w, )?--([a-z-]+)(?: \w+)? +(.*)`).FindStringSubmatch(line); m != nil {
				lines[m[1]] = m[2]
			}
		}
		return lines
	}
	all := flags()
	for _, add := range appSteps {
		step := add(pflag.NewFlagSet("", pflag.ContinueOnError))
		shown := flags("--config", "./x", step.name)
		for name, usage := range all {
			names, _, _ := strings.Cut(usage, ": ")
			of := strings.Split(names, ", ")
			if at := appFetchSteps[name]; at != nil {
				of = at
			}
			_, has := shown[name]
			common := slices.Contains([]string{"config", "json", "help"}, name)
			if want := common || slices.Contains(of, step.name); has != want {
				t.Errorf("%s --help has --%s (%s): %v", step.name, name, usage, has)
			}
		}
	}
	both, one := flags("init", "build"), flags("init")
	if both["discard"] == "" || both["rebuild"] == "" || both["target"] != "" || one["rebuild"] != "" {
		t.Errorf("%q", both)
	}
	if out, _, _ := executed(t, "app", "build", "--help"); !strings.Contains(out, "make the Python environment") ||
		strings.Contains(out, "push the image") {
		t.Error(out)
	}
}

// TestAppSecrets: keys and tokens reach the server of the repository, and neither the application, nor a file, nor a
// message.
func TestAppSecrets(t *testing.T) {
	sshd := gittest.NewSSH(t)
	r := gittest.New(t)
	r.Commit(map[string]string{"millrace.yaml": "models:\n  - name: env\n    source: ./env.py\n",
		"env.py": "import os\ndef infer(x: int) -> str:\n    return repr(dict(os.environ))\n"})
	dir := t.TempDir()
	run := func(c *exec.Cmd, secret string) {
		t.Helper()
		p, addr := readyServer(t, c)
		answer, err := http.Post("http://"+strings.TrimPrefix(addr, "http://")+"/apps/env/infer", "application/json",
			strings.NewReader(`{"x": 4}`))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		err = answer.Write(&text)
		if err != nil || !strings.Contains(text.String(), "PATH") || strings.Contains(text.String(), secret) {
			t.Errorf("the environment of the application: %v %.300s", err, text.String())
		}
		p.signal(os.Interrupt)
		if strings.Contains(p.stderr.String(), secret) {
			t.Errorf("a message has the secret: %s", p.stderr.String())
		}
		err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if strings.Contains(string(data), secret) {
				t.Errorf("%s has the secret", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	key := strings.TrimSpace(string(sshd.Key))
	c := appCommandOf(t, dir, "app", "--config", sshd.URL(r.Bare()), "--known-hosts", sshd.KnownHosts, "--add-ssh-key",
		"me:MY_KEY", "init", "run", "--", "--http", "127.0.0.1:0", "--grpc", "off")
	c.Env = append(c.Env, "MY_KEY="+key, "SSH_AUTH_SOCK=")
	run(c, strings.Split(key, "\n")[2])

	const token = "token-of-nobody-else"
	git := httptest.NewServer(gittest.HTTP(t, filepath.Dir(r.Dir), token))
	defer git.Close()
	url := strings.Replace(git.URL, "http://", "http://me@", 1) + "/app"
	c = appCommandOf(t, dir, "app", "--config", url, "--discard", "init", "run", "--", "--http", "127.0.0.1:0",
		"--grpc", "off")
	c.Env = append(c.Env, "MILLRACE_GIT_TOKEN="+token)
	run(c, token)
}

// TestAppKilled: an init that is killed in the middle leaves nothing that the next init does not remove.
func TestAppKilled(t *testing.T) {
	r := newAppRepository(t)
	git := gittest.HTTP(t, filepath.Dir(r.Dir), "")
	asked, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			git.ServeHTTP(w, req)
			return
		}
		whole := httptest.NewRecorder()
		git.ServeHTTP(whole, req)
		half := whole.Body.Bytes()
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		stall := false
		once.Do(func() { stall = true })
		if !stall {
			_, _ = w.Write(half)
			return
		}
		_, _ = w.Write(half[:len(half)/2])
		w.(http.Flusher).Flush()
		close(asked)
		<-resume
	}))
	defer s.Close()
	defer close(resume)
	dir := t.TempDir()
	args := []string{"app", "--config", s.URL + "/app|service/millrace.yaml", "init"}
	p := begin(t, appCommandOf(t, dir, args...))
	<-asked
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.end()
	if _, err := os.Stat(filepath.Join(dir, ".repo", "app")); err == nil {
		t.Error("a killed init left a clone")
	}
	if _, stderr, code := finish(t, appCommandOf(t, dir, args...)); code != 0 {
		t.Fatalf("init after a killed init: %d %s", code, stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".repo", ".millrace", "*")); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// TestAppTLS: the certificate of the server is checked, and a redirect does not end the encryption.
func TestAppTLS(t *testing.T) {
	r := newAppRepository(t)
	git := gittest.HTTP(t, filepath.Dir(r.Dir), "")
	plain := httptest.NewServer(git)
	defer plain.Close()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/moved/") {
			http.Redirect(w, req, plain.URL+strings.TrimPrefix(req.URL.RequestURI(), "/moved"), http.StatusFound)
			return
		}
		git.ServeHTTP(w, req)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that the client ends
	s.StartTLS()
	defer s.Close()
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(trusted, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ca, path, want string }{
		{trusted, "/app", ""},
		{"/dev/null", "/app", "certificate signed by unknown authority"},
		{trusted, "/moved/app", `changes scheme from "https" to "http"`},
	} {
		run := appCommandOf(t, t.TempDir(), "app", "--config", s.URL+c.path+"|service/millrace.yaml", "init")
		run.Env = append(run.Env, "SSL_CERT_FILE="+c.ca, "SSL_CERT_DIR=/nowhere")
		_, stderr, code := finish(t, run)
		if (code == 0) != (c.want == "") || !strings.Contains(stderr, c.want) {
			t.Errorf("%s with %s: %d %s, want %q", c.path, c.ca, code, stderr, c.want)
		}
	}
}
