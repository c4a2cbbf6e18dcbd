package python_test

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWheel builds the wheel twice, and installs the package into a new environment, from
// which a client calls a service that runs in it. Nothing is asked of a registry.
func TestWheel(t *testing.T) {
	if testing.Short() {
		t.Skip("makes an environment with pip")
	}
	dir := t.TempDir()
	var wheels [2]string
	var data [2][]byte
	for i := range wheels {
		wheels[i] = strings.TrimSpace(output(t, interpreter, "-B", "build_backend.py",
			filepath.Join(dir, "wheel", string(rune('a'+i)))))
		var err error
		if data[i], err = os.ReadFile(wheels[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(data[0], data[1]) {
		t.Error("two wheels of the same sources differ")
	}
	checkWheel(t, wheels[0])

	env := filepath.Join(dir, "env")
	output(t, interpreter, "-m", "venv", env)
	python := filepath.Join(env, "bin", "python")
	output(t, python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", ".")
	output(t, python, "-I", "-c", `
import sys, millrace, millrace.client, millrace.aio
assert millrace.__file__.startswith(sys.prefix), millrace.__file__
for name in ("octoai", "mosec", "ssf", "build_backend", "tests"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(name + " was installed, too")
`)
	output(t, python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check",
		"--force-reinstall", wheels[0])

	// A service that the server runs with this environment, called by the client in it.
	service := filepath.Join(dir, "service.py")
	if err := os.WriteFile(service, []byte("import sys\n\ndef infer(text: str) -> dict:\n    return {'text': "+
		"text.upper(), 'prefix': sys.prefix}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := output(t, python, "-I", "-c", `
import subprocess, sys
from millrace.client import Client
program, service, venv = sys.argv[1:]
server = subprocess.Popen([program, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model", "upper=%s,venv=%s" % (service, venv)], stdout=subprocess.PIPE, text=True)
try:
    addr = next(line for line in server.stdout if "is ready" in line).split("http://")[1].split()[0].rstrip(",")
    with Client(addr) as client:
        answer = client.call("upper", json={"text": "a"}).json()
        assert answer == {"text": "A", "prefix": venv}, answer
        with client.open("upper", policy="every") as stream:
            print([r.type for r in stream.map([{"text": "b"}] * 3)])
finally:
    server.terminate()
    server.wait()
`, build(t), service, env)
	if strings.TrimSpace(said) != "['result', 'result', 'result']" {
		t.Errorf("the client said %q", said)
	}
}

// checkWheel checks the files of a wheel: the package's, and what describes them.
func checkWheel(t *testing.T, path string) {
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		if !strings.HasPrefix(f.Name, "millrace/") && !strings.HasPrefix(f.Name, "millrace-0.1.0.dist-info/") ||
			strings.Contains(f.Name, "__pycache__") {
			t.Errorf("the wheel has %s", f.Name)
		}
	}
	all := strings.Join(names, "\n")
	for _, want := range []string{"millrace/client.py", "millrace/aio.py", "millrace/__init__.py", "millrace/py.typed",
		"LICENSE", "METADATA", "RECORD"} {
		if !strings.Contains(all, want) {
			t.Errorf("the wheel lacks %s:\n%s", want, all)
		}
	}
}

// output runs a program without the variables that would lead Python elsewhere.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=", "PIP_CONFIG_FILE=/dev/null")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, said.String())
	}
	return string(out)
}
