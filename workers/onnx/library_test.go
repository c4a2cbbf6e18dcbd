//go:build cgo

package onnx

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// Every test needs the library, except the tests below that hide the library on purpose.
func TestLibraryIsFound(t *testing.T) {
	if _, err := Library(); err != nil {
		t.Fatal(err)
	}
}

// child runs this binary to load the library: a process can load only one library.
func child(t *testing.T, setting string, env ...string) (path, err string) {
	t.Helper()
	return childOf(t, os.Args[0], setting, env...)
}

// childOf is child with a copy of the binary, for libraries in the binary's folder.
func childOf(t *testing.T, program, setting string, env ...string) (path, err string) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH=", "GORACE=atexit_sleep_ms=0", EnvLibrary+"=",
		childSetting+"="+setting)
	cmd.Env = append(cmd.Env, env...)
	out, e := cmd.Output()
	if e != nil {
		t.Fatalf("%v: %s", e, out)
	}
	path, err, _ = strings.Cut(string(out), "\n")
	return path, strings.TrimSpace(err)
}

// cc compiles a shared library.
func cc(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "x.c"), filepath.Join(dir, "x.so")
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", so, c).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return so
}

func TestSearchPath(t *testing.T) {
	real, err := Library()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link := func(path string) string {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set, env := link(filepath.Join(dir, "set.so")), link(filepath.Join(dir, "env.so"))
	cached := link(filepath.Join(dir, "cache", "millrace", "onnxruntime-"+fetchedVersion, file))
	system := filepath.Dir(link(filepath.Join(dir, "system", file)))
	cache, empty := "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "XDG_CACHE_HOME="+filepath.Join(dir, "empty")
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "bin", "program")
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, beside := range []string{filepath.Join(dir, "lib", "millrace", file), filepath.Join(dir, "bin", file)} {
		link(beside)
		testneeds.WriteProgram(t, program, string(binary))
		path, msg := childOf(t, program, "", cache)
		if want, err := filepath.EvalSymlinks(filepath.Dir(beside)); err != nil || path != filepath.Join(want, file) {
			t.Errorf("loaded %q (%s), want %s beside the program, before the cache folder (%v)", path, msg, beside, err)
		}
	}
	for _, c := range []struct {
		name, setting string
		env           []string
		want          string
	}{
		{"the setting comes first", set, []string{EnvLibrary + "=" + env, cache}, set},
		{"then the variable", "", []string{EnvLibrary + "=" + env, cache}, env},
		{"then the cache folder", "", []string{"LD_LIBRARY_PATH=" + system, cache}, cached},
		{"then the system", "", []string{"LD_LIBRARY_PATH=" + system, empty}, file},
	} {
		t.Run(c.name, func(t *testing.T) {
			if path, err := child(t, c.setting, c.env...); path != c.want {
				t.Errorf("loaded %q (%s), want %s", path, err, c.want)
			}
		})
	}
}

func TestUnusableLibraries(t *testing.T) {
	dir := t.TempDir()
	missing, text := filepath.Join(dir, "missing.so"), filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := cc(t, "int answer(void) { return 42; }")
	old := cc(t, `
		typedef struct { const void *(*GetApi)(unsigned); const char *(*GetVersionString)(void); } Base;
		static const void *none(unsigned version) { return 0; }
		static const char *version(void) { return "1.16.3"; }
		static const Base base = { none, version };
		const Base *OrtGetApiBase(void) { return &base; }`)
	foreign := filepath.Join(dir, "foreign.so")
	elf, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	const machine = 18 // ELF header, e_machine
	if elf[machine] = 62; runtime.GOARCH == "amd64" {
		elf[machine] = 183
	}
	if err := os.WriteFile(foreign, elf, 0o600); err != nil {
		t.Fatal(err)
	}
	cached := func(so string) string {
		cache := t.TempDir()
		path := filepath.Join(cache, "millrace", "onnxruntime-"+fetchedVersion, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(so, path); err != nil {
			t.Fatal(err)
		}
		return "XDG_CACHE_HOME=" + cache
	}
	named := func(so string) string {
		dir := t.TempDir()
		if err := os.Symlink(so, filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, c := range []struct {
		name, setting string
		env           []string
		want          []string // in the message
	}{
		{"nowhere", "", []string{"XDG_CACHE_HOME=" + dir}, []string{
			"onnx.library: ", "was not found", "the setting onnx.library (not set)", "the variable " + EnvLibrary +
				" (not set)",
			"the program's folder and ../lib/millrace (none)", "the cache folder (" + dir, "no such file",
			"/usr/lib/millrace and /var/cache/millrace (none)", "the system's libraries (none)",
			"The archive of a release has it", "make onnxruntime", "1.24 or newer"}},
		{"no cache folder either", "", []string{"XDG_CACHE_HOME=", "HOME="},
			[]string{"was not found", "the cache folder (not set)"}},
		{"set and missing", missing, nil, []string{"the setting onnx.library",
			missing + ": no such file or directory"}},
		{"set without a folder and missing", "nothing.so", nil, []string{"the setting onnx.library", "nothing.so"}},
		{"in the variable and missing", "", []string{EnvLibrary + "=" + missing},
			[]string{"the variable " + EnvLibrary, missing + ": no such file or directory"}},
		{"a folder", dir, nil, []string{"the setting onnx.library", dir}},
		{"a text", text, nil, []string{"the setting onnx.library", text, "1.24 or newer"}},
		{"of another machine", foreign, nil, []string{"the setting onnx.library",
			foreign + " is for another kind of machine", "1.24 or newer for " + runtime.GOOS + "/" + runtime.GOARCH}},
		{"of another machine in the cache folder", "", []string{cached(foreign)},
			[]string{"the cache folder", "another kind of machine", "Remove it"}},
		{"another library", other, nil, []string{"the setting onnx.library", other + " is not ONNX Runtime"}},
		{"an old library", old, nil, []string{"the setting onnx.library", old + " is older than 1.24"}},
		{"another library in the cache folder", "", []string{cached(other)},
			[]string{"the cache folder", file + " is not ONNX Runtime", "Remove it"}},
		{"an old library of the system", "", []string{"XDG_CACHE_HOME=" + dir, "LD_LIBRARY_PATH=" + named(old)},
			[]string{
				"the system's libraries", file + " is older than 1.24", "make onnxruntime"}},
		{"another library, by its name", "libc.so.6", nil,
			[]string{"the setting onnx.library", "libc.so.6 is not ONNX Runtime"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, err := child(t, c.setting, c.env...)
			t.Log(err)
			if path != "" {
				t.Fatalf("loaded %s", path)
			}
			for _, w := range c.want {
				if !strings.Contains(err, w) {
					t.Errorf("%s\ndoes not say %q", err, w)
				}
			}
			if strings.Count(err, "Error ") > 0 || len(err) > 500+len(dir) {
				t.Errorf("the message is too long for a user: %s", err)
			}
		})
	}
}
