package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
)

// TestHelpWithSettings: --help of commands with settings fits on a screen, --help-all has every setting, and no line
// is long.
func TestHelpWithSettings(t *testing.T) {
	for _, name := range []string{"serve", "run", "check", "doctor"} {
		short, _, code := executed(t, name, "--help")
		if lines := strings.Count(short, "\n"); code != 0 || lines > 70 ||
			!strings.Contains(short, "--model-repository") {
			t.Errorf("%s --help: exit status %d, %d lines\n%s", name, code, lines, short)
		}
		if strings.Contains(short, "--tracing-") {
			t.Errorf("%s --help has settings of tracing", name)
		}
		all, stderr, code := executed(t, name, "--help-all")
		if code != 0 || stderr != "" {
			t.Errorf("%s --help-all: exit status %d\n%s", name, code, stderr)
		}
		for _, s := range config.Settings() {
			if !strings.Contains(all, "      --"+s.Flag+" ") {
				t.Errorf("%s --help-all lacks --%s", name, s.Flag)
			}
		}
		for line := range strings.Lines(all) {
			if len(line) > 120 {
				t.Errorf("%s --help-all: %q", name, line)
			}
		}
	}
}

// TestSourceWithSettings: SOURCE takes settings as --model does, and --python is the interpreter of SOURCE.
func TestSourceWithSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.py")
	if err := os.WriteFile(file, []byte("def infer(n: int) -> int:\n    return n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"serve motion,batching.max_size=oops", "SOURCE.batching.max_size"},
		{"serve motion,size", "SOURCE: \"size\" is not key=value"},
		{"serve " + file + ",pyton=y", "did you mean python?"},
		{"serve motion --python python3", "--python: \"motion\" takes no interpreter"},
		{"serve " + file + ",python=a --python b", "--python: SOURCE has python already"},
		{"serve --python b", "SOURCE, which is missing"},
	} {
		_, stderr, code := executed(t, strings.Fields(c.args)...)
		if code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit status %d\n%s", c.args, code, stderr)
		}
	}
	_, addr := serve(t, "delay,fixed=2ms,instances=2")
	if out, stderr, code := millrace(t, "models", "swap", "delay", "fixed=3ms", "batching.max_size=2", "--addr",
		addr); code != 0 || out != "delay\n" ||
		stderr != "changed: batching.max_size=2, fixed=3ms; all other settings stay\n" {
		t.Errorf("exit status %d, %q, %q", code, out, stderr)
	}
	if out, _, code := millrace(t, "models", "swap", "delay", "--json", "--addr", addr); code != 0 ||
		out != "{\n  \"changed\": [],\n  \"endpoint\": \"delay\",\n  \"result\": \"reloaded\"\n}\n" {
		t.Errorf("exit status %d, %q", code, out)
	}
	if _, stderr, code := millrace(t, "models", "swap", "delay", "fixed=soon", "--addr", addr); code != 1 ||
		!strings.Contains(stderr, "fixed") {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
	doctor := withoutPrograms(t, command(t, "doctor", "--json", "--http", addr, "--grpc", "off"))
	doctor.Env = append(doctor.Env, config.EnvAddr+"="+freeAddr(t))
	found, code := diagnose(t, doctor)
	if code != 1 {
		t.Errorf("exit status %d of doctor for %s, where no server is", code, config.EnvAddr)
	}
	wantSymptom(t, found, "server", fails, "refused")
}
