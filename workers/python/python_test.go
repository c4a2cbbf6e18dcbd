package python

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/child"
	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

const interpreter = testneeds.Interpreter

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logText keeps what is logged.
type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type sink struct {
	results chan *stream.Result
	done    chan stream.CloseReason
}

func (s sink) Push(r *stream.Result)       { s.results <- r }
func (s sink) Done(why stream.CloseReason) { s.done <- why }

// rig has a manager of models and a folder for programs.
type rig struct {
	*testing.T
	m   *workers.Manager
	log *logText
	dir string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, log: &logText{}, dir: t.TempDir()}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	mem := buf.NewPool(0)
	r.m = workers.NewManager(workers.ManagerOptions{Memory: mem, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	t.Cleanup(func() {
		if err := r.m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if s := mem.Stats(); s.Leases != 0 || s.Leased != 0 || s.Reserved != 0 {
			t.Errorf("memory was not given back: %+v", s)
		}
		if n := child.LiveChildren(); n != 0 {
			t.Errorf("%d children are left", n)
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// write writes a file below the folder and returns its path.
func (r *rig) write(name, text string) string {
	r.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
	return path
}

// load loads a program as the model m.
func (r *rig) load(source string, params stream.Params) (*workers.Group, error) {
	all := stream.Params{"python": interpreter}
	for k, v := range params {
		if v == nil {
			delete(all, k)
			continue
		}
		all[k] = v
	}
	if _, err := r.m.LoadConfig(r.Context(), workers.Config{Name: "m", Source: source, Kind: "python", Params: all},
		true); err != nil {
		return nil, err
	}
	return r.m.Group("m", "")
}

func (r *rig) mustLoad(source string, params stream.Params) *workers.Group {
	r.Helper()
	g, err := r.load(source, params)
	if err != nil {
		r.Fatal(err)
	}
	return g
}

// run runs one frame and returns its result.
func (r *rig) run(g *workers.Group, f stream.Frame) *stream.Result {
	r.Helper()
	s := sink{make(chan *stream.Result, 4), make(chan stream.CloseReason, 1)}
	st, err := g.Open(stream.Options{OneShot: true, Policy: stream.Policy{Mode: stream.Every}}, s)
	if err != nil {
		r.Fatal(err)
	}
	defer func() {
		st.Close(stream.ByClient)
		<-s.done
	}()
	if err := st.Submit(f); err != nil {
		r.Fatal(err)
	}
	select {
	case res := <-s.results:
		return res
	case <-time.After(time.Minute):
		r.Fatal("there was no result")
		return nil
	}
}

// text runs a frame of bytes, and returns the only element of the only output or the error.
func (r *rig) text(g *workers.Group, payload string) string {
	r.Helper()
	res := r.run(g, stream.Frame{Codec: stream.Opaque, Payload: []byte(payload)})
	if res.Err != nil {
		return res.Err.Error()
	}
	defer res.Release()
	return string(res.Outputs[0].Data[4:])
}

// TestSources loads programs by each form of a source.
func TestSources(t *testing.T) {
	const text = "class A:\n    def infer(self, x: str) -> str:\n        return 'A ' + x\nclass B(A):\n    def " +
		"infer(self, x: str) -> str:\n        return 'B ' + x\n"
	t.Run("file", func(t *testing.T) {
		r := newRig(t)
		if got := r.text(r.mustLoad(r.write("service.py", text), nil), "x"); got != "B x" {
			t.Error(got)
		}
	})
	t.Run("file and class", func(t *testing.T) {
		r := newRig(t)
		source := r.write("service.py", text) + ":A"
		if !loads(source) {
			t.Errorf("%s is not loaded by its form", source)
		}
		if got := r.text(r.mustLoad(source, nil), "x"); got != "A x" {
			t.Error(got)
		}
	})
	t.Run("setting class", func(t *testing.T) {
		r := newRig(t)
		if got := r.text(r.mustLoad(r.write("service.py", text), stream.Params{"class": "A"}), "x"); got != "A x" {
			t.Error(got)
		}
	})
	t.Run("module", func(t *testing.T) {
		r := newRig(t)
		r.write("package/module.py", text)
		r.write("package/__init__.py", "")
		if !loads("package.module:A") {
			t.Error("package.module:A is not loaded by its form")
		}
		if got := r.text(r.mustLoad("package.module:A", stream.Params{"dir": r.dir}), "x"); got != "A x" {
			t.Error(got)
		}
		if left, _ := filepath.Glob(filepath.Join(r.dir, "package", "*")); len(left) != 2 {
			t.Errorf("the program's folder has %v", left)
		}
	})
}

// TestSettings looks at what the program gets of its settings.
func TestSettings(t *testing.T) {
	r := newRig(t)
	source := r.write("service.py", `
import os, sys
class Service:
    def setup(self, parameters):
        self.parameters = parameters
    def infer(self, x: str) -> str:
        return repr((x, sys.argv[1:], self.parameters, os.environ.get("A"), os.getcwd()))
`)
	dir := r.TempDir()
	g := r.mustLoad(source, stream.Params{"args": `["--v","1"]`, "parameters": `["n=0.5","name=x y"]`,
		"env": `["A=b"]`, "dir": dir})
	if got, want := r.text(g, "x"), "('x', ['--v', '1'], {'n': 0.5, 'name': 'x y'}, 'b', '"+dir+"')"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestFaultsOfStart looks at the errors of programs that cannot start.
func TestFaultsOfStart(t *testing.T) {
	// pyenv's interpreter of a version, or one that says that it is.
	versioned := func(version string) string {
		if path := "/root/.pyenv/versions/" + version + "/bin/python"; exec.Command(path, "-V").Run() == nil {
			return path
		}
		dir := t.TempDir()
		site := filepath.Join(dir, "sitecustomize.py")
		path := filepath.Join(dir, "python")
		for name, text := range map[string]string{
			site: "import sys\nsys.version_info = (" + strings.ReplaceAll(version, ".", ", ") + ")\n",
			path: "#!/bin/sh\nPYTHONPATH=" + dir + " exec " + interpreter + ` "$@"` + "\n",
		} {
			testneeds.WriteProgram(t, name, text)
		}
		return path
	}
	for _, c := range []struct {
		name, text string
		params     stream.Params
		want       []string
	}{
		{"interpreter missing", "", stream.Params{"python": "no-such-python"},
			[]string{"python", "no-such-python was not found: install Python 3.9 or newer, or set python or venv to " +
				"where it is: in the configuration of the model, or at millrace serve"}},
		{"interpreter in a wrong folder", "", stream.Params{"python": "/nowhere/python"},
			[]string{"/nowhere/python was not found"}},
		{"venv missing", "", stream.Params{"python": nil, "venv": "/nowhere"},
			[]string{"venv", "/nowhere has no bin/python: make it with python3 -m venv /nowhere"}},
		{"both", "", stream.Params{"venv": "/nowhere"}, []string{"venv", "is set, and so is python"}},
		{"Python 3.8", "", stream.Params{"python": versioned("3.8.18")},
			[]string{"is Python 3.8.18: Millrace needs 3.9 or newer", "`python` or `venv`"}},
		{"Python 2.7", "", stream.Params{"python": versioned("2.7.18")},
			[]string{"is Python 2.7.18: Millrace needs 3.9 or newer"}},
		{"not Python", "", stream.Params{"python": "/bin/true"}, []string{"did not start"}},
		{"syntax", "def infer(:\n", nil, []string{"service.py, line 1: SyntaxError"}},
		{"import", "x = 1\nraise RuntimeError('at import')\n", nil,
			[]string{"RuntimeError: at import", "raise RuntimeError('at import')"}},
		{"package", "import no_such_package_1\n", nil, []string{"no_such_package_1, which is not installed",
			"-m pip install no_such_package_1"}},
		{"exit at import", "import os\nos._exit(3)\n", nil, []string{"ended with status 3"}},
		{"nothing to serve", "x = 1\n", nil, []string{
			"want a class with a method infer or predict, or such a function"}},
		{"setup raises", "class A:\n    def setup(self):\n        raise OSError('no weights')\n    def infer(self): " +
			"...\n", nil, []string{"setup: OSError: no weights"}},
		{"setup exits", "import os\nclass A:\n    def setup(self):\n        os._exit(4)\n    def infer(self): ...\n",
			nil, []string{"ended with status 4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			_, err := r.load(r.write("service.py", c.text), c.params)
			if err == nil {
				t.Fatal("it started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) && !strings.Contains(r.log.String(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}

// TestSetupHangs loads a program whose setup does not end: the error says which limit it passed.
func TestSetupHangs(t *testing.T) {
	r := newRig(t)
	cfg := workers.Config{Name: "m", Kind: "python", Params: stream.Params{"python": interpreter}}
	cfg.Source = r.write("service.py", "import time\nclass A:\n    def setup(self):\n        time.sleep(3600)\n    "+
		"def infer(self): ...\n")
	cfg.Limits.Start = time.Second
	if _, err := r.m.LoadConfig(t.Context(), cfg, true); err == nil || !strings.Contains(err.Error(), "limits.start") {
		t.Error(err)
	}
}

// TestFaultsOfRun looks at what a frame is answered when the code fails.
func TestFaultsOfRun(t *testing.T) {
	r := newRig(t)
	g := r.mustLoad(r.write("service.py", `
import os, sys
def infer(x: str):
    if x == "raise":
        raise ValueError("no")
    if x == "nan":
        return {"a": [float("nan")]}
    if x == "object":
        return object()
    if x == "garbage":
        os.write(1, b"\xff\x00garbage\n" * 100)
        print("printed", file=sys.stderr)
    if x == "fork":
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    return x
`), nil)
	for _, c := range []struct{ payload, want string }{
		{"x", "x"}, {"raise", "ValueError: no"}, {"nan", "a[0] is nan, which JSON does not have"},
		{"object", "is of type object"}, {"garbage", "garbage"}, {"fork", "fork"},
		{"x", "x"},
	} {
		if got := r.text(g, c.payload); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.payload, got, c.want)
		}
	}
	if log := r.log.String(); !strings.Contains(log, "raise ValueError") || !strings.Contains(log, "printed") ||
		!strings.Contains(log, "is of type object") {
		t.Error("the log lacks the traceback, what was printed, or why a result was refused")
	}
}

// TestUndeclaredParameters: load parameters that nobody declares reach setup and the metadata, of which spans have
// their attributes; one that resembles a setting is a mistake.
func TestUndeclaredParameters(t *testing.T) {
	r := newRig(t)
	source := r.write("service.py", `
class Service:
    def setup(self, parameters):
        self.parameters = parameters
    def infer(self, x: str) -> str:
        return repr(sorted(self.parameters.items()))
`)
	if err := r.m.Define(workers.Config{Name: "m", Source: source, Kind: "python",
		Params: stream.Params{"python": interpreter, "parameters": `["n=0.5","greeting=before"]`}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		params stream.Params
		want   string // or of the error
	}{
		{stream.Params{"greeting": "5", "count": int64(3), "loud": true},
			"[('count', 3), ('greeting', '5'), ('loud', True), ('n', 0.5)]"},
		{stream.Params{"greeting": `"]`, "rate": 0.25, "instances": int64(1), "swap": true},
			`[('count', 3), ('greeting', '"]'), ('loud', True), ('n', 0.5), ('rate', 0.25)]`},
		{stream.Params{"instnaces": int64(2), "swap": true}, "instnaces: is not a parameter of python"},
		{stream.Params{"batching.max_sise": int64(2), "swap": true}, "batching.max_sise: is not a parameter of python"},
		{stream.Params{"a=b": "c", "swap": true}, "a=b: is not a parameter of python"},
	} {
		_, err := r.m.Load(t.Context(), "m", workers.Load{Params: c.params})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, want %s", c.params, err, c.want)
			}
			continue
		}
		g, err := r.m.Group("m", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.text(g, "x"); got != c.want {
			t.Errorf("%v: %s, want %s", c.params, got, c.want)
		}
		if got := g.Model().Params["greeting"]; got != c.params["greeting"] {
			t.Errorf("%v: the metadata have %v", c.params, got)
		}
	}
}
