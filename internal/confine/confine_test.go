package confine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/child"
)

// write writes files and returns their paths.
func write(t *testing.T, dir string, names ...string) (paths []string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// Private files are in no allowed folder, however the folder is named; the rest of the folder stays.
func TestWithout(t *testing.T) {
	dir := real(t.TempDir())
	write(t, dir, "model/service.py", "model/weights/one", "model/weights/two", "model/keys.yaml",
		"model/state/deep/streams.yaml", "model/state/deep/other", "elsewhere/key.pem", "model-keys/x")
	at := func(names ...string) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(dir, n))
		}
		return paths
	}
	for _, link := range [][2]string{{"model", "link"}, {"elsewhere", "model/linked"}, {"model/keys.yaml", "keys"}} {
		if err := os.Symlink(filepath.Join(dir, link[0]), filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name                            string
		paths, private, read, listsOnly []string
	}{
		{"nothing private", at("model"), at("elsewhere"), at("model"), nil},
		{"a name that begins alike", at("model"), at("model-keys"), at("model"), nil},
		{"a file", at("model"), at("model/keys.yaml"), at("model/service.py", "model/state", "model/weights"),
			at("model")},
		{"by a link to it", at("model"), at("keys"), at("model/service.py", "model/state", "model/weights"),
			at("model")},
		{"in a folder by a link", at("link"), at("model/keys.yaml"),
			at("model/service.py", "model/state", "model/weights"), at("model")},
		{"a link that leads out", at("model/linked"), at("elsewhere/key.pem"), nil, at("elsewhere")},
		{"deeper", at("model"), at("model/keys.yaml", "model/state/deep/streams.yaml"),
			at("model/service.py", "model/state/deep/other", "model/weights"),
			at("model", "model/state", "model/state/deep")},
		{"itself, and what is in it", append(at("elsewhere", "elsewhere/key.pem"), ""), at("elsewhere"), nil, nil},
		{"one that is not there yet", at("elsewhere"), at("elsewhere/new"), at("elsewhere/key.pem"), at("elsewhere")},
	} {
		read, list := without(c.paths, c.private)
		slices.Sort(read)
		if !slices.Equal(read, c.read) || !slices.Equal(list, c.listsOnly) {
			t.Errorf("%s: %q, names of %q", c.name, read, list)
		}
	}
	p := &Programs{Write: at("model/weights"), Private: at("keys", "elsewhere/key.pem")}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for _, dir := range at("link", "model/keys.yaml", "elsewhere/key.pem/below") {
		p.Write = []string{dir}
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "key") {
			t.Error(err)
		}
	}
}

// The folder of a program is neither the user's home nor a parent of the home.
func TestFolder(t *testing.T) {
	home := filepath.Join(real(t.TempDir()), "home")
	t.Setenv("HOME", home)
	files := write(t, home, "service.py", "app/service.py")
	for path, want := range map[string]string{
		files[0]: "", home: "", filepath.Dir(home): "", "/": "", "/file": "", files[1]: filepath.Dir(files[1]),
		filepath.Dir(files[1]): filepath.Dir(files[1]), filepath.Join(home, "app", "none.py"): filepath.Join(home,
			"app"),
	} {
		if got := Folder(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// A program may read its installation, and the files named by its command line.
func TestApply(t *testing.T) {
	dir := real(t.TempDir())
	files := write(t, dir, "base/bin/interpreter", "venv/bin/other", "script", "secret")
	if err := os.Chmod(files[0], 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	link := filepath.Join(dir, "venv", "bin", "python")
	if err := os.Symlink(files[0], link); err != nil {
		t.Fatal(err)
	}
	p := &Programs{Read: []string{filepath.Join(dir, "more")}, Files: 100, Private: []string{files[3]}}
	spec := child.Spec{Path: link, Args: []string{"-c", "script", dir, files[3]}, Dir: dir}
	p.Apply(&spec, Arguments(&spec)...)
	if spec.Sandbox == nil || !spec.Temp || spec.Limits.Files != 100 || spec.Sandbox.Network ||
		!spec.Sandbox.NoCapabilities {
		t.Fatalf("%+v", spec)
	}
	for _, name := range []string{"base/lib", "venv/lib", "venv/pyvenv.cfg", "script", "more"} {
		if !slices.Contains(spec.Sandbox.Read, filepath.Join(dir, name)) {
			t.Errorf("it may not read %s", name)
		}
	}
	for _, name := range []string{"", "base", "venv", "secret"} {
		if slices.Contains(spec.Sandbox.Read, filepath.Join(dir, name)) {
			t.Errorf("it may read %s", name)
		}
	}
	var none *Programs
	spec = child.Spec{Path: link}
	if none.Apply(&spec); spec.Sandbox != nil || spec.Temp {
		t.Errorf("%+v", spec)
	}
}

// A confined program starts.
func TestCheck(t *testing.T) {
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	p := &Programs{Files: 1024}
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	p.Private = []string{"/usr"}
	if err := p.Check(t.Context()); err == nil {
		t.Error("it starts without the system's files")
	}
}
