//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
)

// triesService tries the actions named in a request, and reports the outcome of each action. The service computes
// with numpy if available.
const triesService = `import os, resource, signal, socket, subprocess, sys, tempfile
try:
    import numpy as np
except ImportError:
    np = None
%s

def connect(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(10)
        s.connect(address)
        s.send(b"x")

def dump_core():
    pid = os.fork()
    if pid == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))
        except (ValueError, OSError):
            pass
        os.abort()
    _, status = os.waitpid(pid, 0)
    if not os.WCOREDUMP(status):
        raise OSError("no core")

def attempt(what, arg):
    if what == "read":
        with open(arg, "rb") as f:
            f.read(10)
    elif what == "list":
        os.listdir(arg)
    elif what == "write":
        with open(arg, "ab") as f:
            f.write(b"x")
    elif what == "remove":
        os.remove(arg)
    elif what == "tcp" or what == "udp":
        host, port = arg.rsplit(":", 1)
        connect(socket.AF_INET, socket.SOCK_STREAM if what == "tcp" else socket.SOCK_DGRAM, (host, int(port)))
    elif what == "unix":
        connect(socket.AF_UNIX, socket.SOCK_STREAM, arg)
    elif what == "listen":
        socket.create_server(("127.0.0.1", 0)).close()
    elif what == "signal":
        os.kill(os.getppid(), 0)
    elif what == "limit":
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, resource.prlimit(0, resource.RLIMIT_NOFILE))
    elif what == "core":
        dump_core()
    elif what == "run":
        subprocess.run(["/bin/cat", arg], check=True, capture_output=True)
    elif what == "temporary":
        with tempfile.TemporaryFile() as f:
            f.write(b"x")
    elif what == "numpy":
        assert np is None or float(np.linalg.norm(np.array([3.0, 4.0]))) == 5
    elif what == "parent":
        open(f"/proc/{os.getppid()}/{arg}", "rb").read(1)
    else:
        raise SystemExit(what)

def infer(attempts: list) -> dict:
    out = {}
    for line in attempts:
        what, _, arg = line.partition(" ")
        try:
            attempt(what, arg)
            out[line] = True
        except (OSError, ValueError, subprocess.CalledProcessError):
            out[line] = False
    return out
`

// confinedServer is a server with the model tries, in a folder with secrets of the server.
type confinedServer struct {
	t         *testing.T
	dir, addr string
	key       string
	may       []string // allowed to every program, confined or not
	mayNot    []string // forbidden to confined programs
	network   []string // allowed only with confine.network
	given     string   // a writable folder
}

// serveConfined starts the server. RESULTS in args is the folder given.
func serveConfined(t *testing.T, args ...string) *confinedServer {
	t.Helper()
	dir := t.TempDir()
	s := &confinedServer{t: t, dir: dir, given: filepath.Join(dir, "results")}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"app/weights", "other", "home/.ssh", "results", "models", "temp"} {
		if err := os.MkdirAll(at(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script := "for f in app/keys.yaml app/weights/one home/.ssh/id; do cat $DIR/$f >/dev/null && echo read $f; " +
		"done\necho x >$DIR/other/new && echo write other\nkill -0 $PPID && echo signal\necho x >$TMPDIR/x && echo " +
		"temporary\n"
	for name, text := range map[string]string{
		"app/service.py": fmt.Sprintf(triesService, "import beside"), "app/beside.py": "", "app/weights/one": "1",
		"other/secret": "x", "home/.ssh/id": "x", "app/key": "",
		"app/script": "{ " + script + "} >$DIR/results/seen 2>$DIR/results/errors\nmv $DIR/results/seen " +
			"$DIR/results/tried\nsleep 1000\n",
		"app/millrace.yaml": "models: [{name: tries, source: ./service.py, python: /usr/bin/python3}, {name: m, " +
			"source: motion}]\nauth: {keys: keys.yaml}\nmodel_repository: ../models\nmodel_control_mode: explicit\n" +
			"streams: [{name: door, model: m, source: 'exec:/bin/sh " + at("app/script") +
			"'}]\nmanagement: {address: 'unix:" + at("other/socket") + "'}\n",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.key = addKey(t, at("app/keys.yaml"), "all", "infer,watch,manage")
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	s.may = []string{"numpy", "temporary", "read " + at("app/service.py"), "read " + at("app/weights/one"),
		"run " + at("app/beside.py"), "list " + at("app"), "read /proc/cpuinfo", "read /dev/urandom", "write /dev/null"}
	s.mayNot = []string{
		"read " + at("app/keys.yaml"), "run " + at("app/keys.yaml"), "read " + at("app/millrace.yaml"),
		"write " + at("app/keys.yaml"), "write " + at("app/service.py"), "remove " + at("app/weights/one"),
		"write " + at("app/new"), "write " + at("tmp"),
		"read " + at("other/secret"), "list " + at("other"), "read " + at("home/.ssh/id"), "list " + at("home"),
		"write " + at("home/new"), "parent environ", "parent mem", "parent maps", "limit",
	}
	if child.LandlockABI() >= 6 {
		s.mayNot = append(s.mayNot, "signal")
	}
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "RESULTS", s.given)
	}
	c := command(t, append([]string{"serve", "--config", at("app/millrace.yaml"), "--http", "127.0.0.1:0", "--grpc",
		"off"}, args...)...)
	c.Args = append([]string{"sh", "-c", `ulimit -c unlimited 2>/dev/null; exec "$@"`, "sh", c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
	c.Env = append(c.Env, "HOME="+at("home"), "DIR="+dir, "TMPDIR="+at("temp")) // killed servers leave folders
	_, s.addr = readyServer(t, c)
	s.network = []string{"tcp " + s.addr, "udp " + udp.LocalAddr().String(), "unix " + at("other/socket"), "listen"}
	return s
}

// post sends JSON and returns the status and the answer.
func (s *confinedServer) post(path string, body any) (int, string) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	client := http.DefaultClient
	if strings.HasPrefix(path, "/v2/repository/") { // needs management.address
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.dir, "other", "socket"))
			}}}
	}
	r, err := http.NewRequest("POST", "http://"+s.addr+path, bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Content-Type", "application/json")
	a, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	said, err := io.ReadAll(a.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.StatusCode, string(said)
}

// tries checks the possible actions of a model.
func (s *confinedServer) tries(model string, want map[bool][]string) {
	s.t.Helper()
	var all []string
	for _, list := range want {
		all = append(all, list...)
	}
	code, said := s.post("/apps/"+model+"/infer", map[string]any{"attempts": all})
	got := map[string]bool{}
	if err := json.Unmarshal([]byte(said), &got); err != nil || code != 200 {
		s.t.Fatalf("%s: %d %s", model, code, said)
	}
	for can, list := range want {
		for _, what := range list {
			if got[what] != can {
				s.t.Errorf("%s: %s: %v, want %v", model, what, got[what], can)
			}
		}
	}
}

// tried returns the possible actions of the exec source's program.
func (s *confinedServer) tried() string {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // no event to wait for
		text, err := os.ReadFile(filepath.Join(s.given, "tried"))
		if err == nil {
			return string(text)
		}
		if time.Now().After(end) {
			errs, _ := os.ReadFile(filepath.Join(s.given, "errors"))
			s.t.Fatalf("the program of the source was not started: %s", errs)
		}
	}
}

// A confined program can compute, but not reach unneeded secrets, files, processes or addresses. No request lifts the
// confinement, not even a request with the program. The same holds for the program of an exec source.
func TestConfinedPrograms(t *testing.T) {
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	s := serveConfined(t, "--confine-programs", "require", "--confine-write", "RESULTS")
	refused := map[bool][]string{true: s.may, false: append(append(s.mayNot, s.network...), "core")}
	refused[true] = append(refused[true], "write "+filepath.Join(s.given, "new"))
	s.tries("tries", refused)

	for _, params := range []map[string]any{
		{"confine.programs": "off"}, {"confine": map[string]any{"programs": "off"}}, {"confine.network": true},
		{"dir": "/"}, {"env": []string{"HOME=/"}}, {"venv": "/"}, {"read": []string{"/"}},
	} {
		if code, said := s.post("/v2/repository/models/tries/load", map[string]any{"parameters": params}); code != 400 {
			t.Errorf("%v: %d %s", params, code, said)
		}
	}
	// Names that are no settings of Millrace become parameters of the program's setup, and change nothing else.
	for i, params := range []map[string]any{{"network": true}, {"sandbox": "off"}} {
		if code, said := s.post("/v2/repository/models/tries/load", map[string]any{"parameters": params}); code != 200 {
			t.Errorf("%v: %d %s", params, code, said)
		}
		s.tries(fmt.Sprint("tries-", i), refused)
	}
	if code, said := s.post("/v2/repository/models/tries/load",
		map[string]any{"parameters": map[string]any{"swap": true, "instances": 2}}); code != 200 {
		t.Fatalf("%d %s", code, said)
	}
	s.tries("tries", refused)

	// A program sent by a request is in a separate folder.
	sent := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, triesService, ""))
	code, said := s.post("/v2/repository/models/sent/load",
		map[string]any{"parameters": map[string]any{"config": `{"backend": "python"}`, "file:1/model.py": sent}})
	if code != 200 {
		t.Fatalf("%d %s", code, said)
	}
	others := append([]string{"read " + filepath.Join(s.dir, "app", "service.py"),
		"read " + filepath.Join(s.dir, "app", "weights", "one")}, refused[false]...)
	s.tries("sent", map[bool][]string{true: {"numpy", "temporary"}, false: others})

	if got := s.tried(); got != "temporary\n" {
		t.Errorf("the program of the source could do %q", got)
	}
	if left, _ := os.ReadDir(filepath.Join(s.dir, "other")); len(left) != 2 { // secret, socket
		t.Errorf("%v", left)
	}
}

// confine.network allows only the network.
func TestConfinedProgramsWithNetwork(t *testing.T) {
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	s := serveConfined(t, "--confine-programs", "auto", "--confine-network", "--confine-write", "RESULTS")
	s.tries("tries", map[bool][]string{true: append(s.may, s.network...), false: append(s.mayNot, "core")})
}

// Without the setting, programs may do everything the server may, except core dumps.
func TestUnconfinedPrograms(t *testing.T) {
	t.Parallel()
	s := serveConfined(t)
	s.tries("tries", map[bool][]string{true: append(append(s.may, s.network...),
		"read "+filepath.Join(s.dir, "other", "secret"), "write "+filepath.Join(s.dir, "other", "new"), "signal"),
		false: {"core"}})
	if got := s.tried(); !strings.Contains(got, "read home/.ssh/id\nwrite other\nsignal") {
		t.Errorf("the program of the source could do %q", got)
	}
}
