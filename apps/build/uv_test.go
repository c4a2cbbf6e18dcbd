package build

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/testneeds"
	"millrace/internal/wheeltest"
)

// TestUnreadSettings: settings of uv in the application, in the folders above it, in variables and in the user's
// folder change nothing. Notes name the files in the application.
func TestUnreadSettings(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	const settings = "python-downloads = 'automatic'\nindex-url = 'http://127.0.0.1:9/simple'\nno-such-setting = 1\n"
	p := newPlace(t, map[string]string{"requirements.txt": "greeting\n", "uv.toml": settings,
		".python-version": "3.7\n", "uv.lock": "version = 1\n", "pyproject.toml": "[project]\nname = 'x'\n" +
			"version = '1'\nrequires-python = '>=3.99'\n[tool.uv]\nindex-url = 7\n"})
	p.o.Python = testneeds.Python(t, "ensurepip")
	p.uv()
	p.wheels()
	home := t.TempDir()
	for _, name := range []string{filepath.Join(p.o.Dir, "uv.toml"), filepath.Join(home, ".config/uv/uv.toml")} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cache := filepath.Join(home, "cache")
	for name, value := range map[string]string{"HOME": home, "UV_CACHE_DIR": cache, "UV_LINK_MODE": "symlink",
		"UV_INDEX_URL": "http://127.0.0.1:9/simple", "UV_PYTHON": "3.7"} {
		t.Setenv(name, value)
	}
	var notes []string
	p.o.OnNote = func(note string) { notes = append(notes, note) }
	env := p.build().Environment
	if len(env.Packages) != 2 || !strings.HasPrefix(env.Installer, "uv ") {
		t.Errorf("%+v", env)
	}
	if _, err := os.Stat(cache); err == nil {
		t.Error("uv has written a cache")
	}
	err := filepath.WalkDir(env.Path, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSymlink != 0 && strings.Contains(path, "site-packages") {
			t.Errorf("%s is a link", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if compiled, _ := filepath.Glob(filepath.Join(env.Path,
		"lib/python3*/site-packages/__pycache__/greeting.*.pyc")); len(compiled) != 1 {
		t.Error("each start would compile the packages again")
	}
	slices.Sort(notes)
	want := []string{"the tables tool.uv of pyproject.toml are not read: write indexes into requirements.txt",
		"uv.lock is not read: build lock writes the versions into millrace.lock",
		"uv.toml is not read: write indexes into requirements.txt"}
	if !slices.Equal(notes, want) {
		t.Errorf("%q", notes)
	}
}

// TestIndexOfRequirements: packages come from the index and the folder named in the requirements, also with a lock
// file.
func TestIndexOfRequirements(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	t.Run("pip", func(t *testing.T) { testIndexOfRequirements(t, (*place).pip, "No matching distribution") })
	t.Run("uv", func(t *testing.T) { testIndexOfRequirements(t, (*place).uv, "was not found in the package registry") })
}

func testIndexOfRequirements(t *testing.T, installer func(*place), missing string) {
	served := t.TempDir()
	wheeltest.Wheel{Name: "greeting", Version: "1.0", Files: map[string]string{"greeting.py": ""},
		Requires: []string{"deep-thing"}}.Write(t, served)
	files := http.StripPrefix("/files/", http.FileServer(http.Dir(served)))
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/files/"):
			files.ServeHTTP(w, r)
		case r.URL.Path == "/simple/greeting/":
			name := "greeting-1.0-py3-none-any.whl"
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprintf(w, "<!DOCTYPE html><html><body><a href=\"/files/%s\">%s</a></body></html>", name, name)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(index.Close)
	p := newPlace(t, map[string]string{"requirements.txt": "--index-url " + index.URL + "/simple\n" +
		"--find-links 'my wheels'\ngreeting\n"})
	if err := os.Mkdir(p.path("my wheels"), 0o700); err != nil {
		t.Fatal(err)
	}
	wheeltest.Wheel{Name: "deep_thing", Version: "2.0", Files: map[string]string{"deep_thing.py": ""}}.Write(t,
		p.path("my wheels"))
	p.o.Python = testneeds.Python(t, "ensurepip")
	installer(p)
	env := p.build().Environment
	left, err := filepath.Glob(filepath.Join(env.Path, "*.txt"))
	if err != nil || len(left) > 0 {
		t.Errorf("the environment has files of the build: %q %v", left, err)
	}
	lock, err := WriteLock(p.app, env)
	if err != nil || len(lock.Packages) != 2 {
		t.Fatalf("%+v %v", lock, err)
	}
	p.o.Rebuild = true
	if again := p.build(); len(again.Environment.Packages) != 2 {
		t.Errorf("by the lock file: %+v", again.Environment)
	}
	if err := os.Remove(p.path("millrace.lock")); err != nil {
		t.Fatal(err)
	}
	p.write("requirements.txt", "--index-url "+index.URL+"/simple\nmissing-thing\n")
	p.refuses("the requirements of requirements.txt cannot be installed", "missing-thing", missing,
		"without an index: --wheels FOLDER; another index: --pass")
}

// backend builds the package lib-one of its own folder, without other packages.
const backend = `import zipfile
def build_wheel(folder, *more):
    name, info = "lib_one-0.3-py3-none-any.whl", "lib_one-0.3.dist-info/"
    files = {"lib_one.py": "X = 1\n", info + "METADATA": "Metadata-Version: 2.1\nName: lib_one\nVersion: 0.3\n",
             info + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[info + "RECORD"] = "".join(f + ",,\n" for f in files) + info + "RECORD,,\n"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as z:
        for f, text in files.items():
            z.writestr(f, text)
    return name
build_editable = build_wheel
`

// TestFoldersByUV: packages in the application have their name, their version and no hash, so that lock refuses them.
func TestFoldersByUV(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	for _, line := range []string{"./lib", "-e ./lib"} {
		p := newPlace(t, map[string]string{"requirements.txt": line + "\n", "lib/backend.py": backend,
			"lib/pyproject.toml": "[project]\nname = 'lib_one'\nversion = '0.3'\n[build-system]\nrequires = []\n" +
				"build-backend = 'backend'\nbackend-path = ['.']\n"})
		p.o.Python = testneeds.Python(t, "ensurepip")
		p.uv()
		p.wheels()
		env := p.build().Environment
		want := Package{Name: "lib-one", Version: "0.3", URL: "file://" + p.path("lib")}
		if len(env.Packages) != 1 || env.Packages[0].Name != want.Name || env.Packages[0].Version != want.Version ||
			env.Packages[0].URL != want.URL {
			t.Errorf("%s: %+v", line, env.Packages)
		}
		if _, err := WriteLock(p.app, env); err == nil || !strings.Contains(err.Error(), "which has no hash") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestProjectByUV: both installers take the dependencies of a pyproject.toml, and no package of an index in place of a
// source of uv.
func TestProjectByUV(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	const text = "[project]\nname = 'x'\nversion = '1'\ndependencies = ['deep-thing<2.1']\n"
	p := newPlace(t, map[string]string{"pyproject.toml": text})
	p.o.Python = testneeds.Python(t, "ensurepip")
	p.uv()
	p.wheels()
	if r := p.build(); len(r.Environment.Packages) != 1 || r.Environment.Packages[0].Version != "2.0" {
		t.Errorf("%+v", r.Environment)
	}
	p.write("pyproject.toml", text+"[tool.uv.sources]\nDeep_Thing = {path = 'lib'}\n")
	p.refuses("tool.uv.sources is not read: write the address of deep-thing into project.dependencies, as NAME @ URL")
	p.o.SystemSite, p.o.Tool = true, "uv"
	p.refuses("--installer: uv does not see the packages of --system-site-packages: take pip")
}

// TestResolved reads the hashes of the packages that uv has chosen.
func TestResolved(t *testing.T) {
	got := resolvedHashes("# comment\n--index-url https://x.test\nDeep_Thing[x]==2.1 \\\n    --hash=sha256:aa \\\n"+
		"    --hash=sha256:bb\nother @ https://x.test/o.whl \\\n    --hash=sha256:cc\nhttps://x.test/p.whl \\\n"+
		"    --hash=sha256:dd\n./my wheels/q.whl \\\n    --hash=sha256:ee\n-e ./lib\n", "/app")
	want := map[string][]string{"deep-thing": {"sha256:aa", "sha256:bb"}, "other": {"sha256:cc"},
		"https://x.test/p.whl": {"sha256:dd"}, "file:///app/my%20wheels/q.whl": {"sha256:ee"}}
	if len(got) != len(want) {
		t.Errorf("%q", got)
	}
	for name, hashes := range want {
		if !slices.Equal(got[name], hashes) {
			t.Errorf("%s: %q", name, got[name])
		}
	}
}
