package image

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"millrace/internal/ociimage"
	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
)

// put writes a file, and the folders above the file.
func put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// application makes an application with a service in Python.
func application(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "app")
	put(t, filepath.Join(dir, "millrace.yaml"), "models:\n  - {name: greet, source: ./greet.py}\n"+
		"  - {name: same, source: identity}\n")
	put(t, filepath.Join(dir, "greet.py"), `import importlib.metadata
import os
import ssl

import greeting


def infer(name: str) -> str:
    return f"{greeting.WORD} {name} {importlib.metadata.version('greeting')} {os.getuid()} {ssl.OPENSSL_VERSION[:7]}"
`)
	put(t, filepath.Join(dir, ".git/config"), "secret")
	put(t, filepath.Join(dir, "notes/todo.txt"), "not in the image")
	put(t, filepath.Join(dir, "__pycache__/greet.cpython-311.pyc"), "x")
	return dir
}

// excludeNotes is the Exclude of the tests.
func excludeNotes(name string) bool { return name == "notes/" }

// greetingWheel writes the package greeting, which has a script.
func greetingWheel(t testing.TB) (wheel string) {
	t.Helper()
	wheel = filepath.Join(t.TempDir(), "greeting-1.0-py3-none-any.whl")
	f, err := os.Create(wheel)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for _, e := range [][2]string{
		{"greeting.py", "WORD = 'Hello'\n\n\ndef main():\n    print(WORD)\n"},
		{"greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.4\nName: greeting\nVersion: 1.0\n" +
			"License-Expression: MIT\n\nName: not a field\n"},
		{"greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"greeting-1.0.dist-info/entry_points.txt", "[console_scripts]\ngreet = greeting:main\n"},
		{"greeting-1.0.dist-info/RECORD", "greeting.py,,\ngreeting-1.0.dist-info/METADATA,,\n" +
			"greeting-1.0.dist-info/WHEEL,,\ngreeting-1.0.dist-info/entry_points.txt,,\ngreeting-1.0.dist-info/RECORD,,\n"},
	} {
		part, err := w.Create(e[0])
		if err == nil {
			_, err = part.Write([]byte(e[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return wheel
}

// environmentOf makes a Python environment with the package greeting.
func environmentOf(t testing.TB, dir string) {
	t.Helper()
	run(t, testneeds.Python(t, "ensurepip"), "-m", "venv", dir)
	run(t, filepath.Join(dir, "bin/python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
		"--disable-pip-version-check", greetingWheel(t))
}

func run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return string(out)
}

// build builds an image that ends with the test.
func build(t testing.TB, o Options) *Image {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	img, err := Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := img.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("after Close: %v, %v", left, err)
		}
	})
	return img
}

// contents returns the entries of all layers, and the texts of files of at most 1 MiB.
func contents(t testing.TB, img v1.Image) (map[string]*tar.Header, map[string]string) {
	t.Helper()
	heads, texts := map[string]*tar.Header{}, map[string]string{}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for a := tar.NewReader(r); ; {
			h, err := a.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			heads[h.Name] = h
			if h.Size <= 1<<20 {
				text, err := io.ReadAll(a)
				if err != nil {
					t.Fatal(err)
				}
				texts[h.Name] = string(text)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return heads, texts
}

var commit = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// Equal applications and environments give equal images, whatever their folders and times are, and the image names no
// folder of this machine.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses four layers of Python")
	}
	first := application(t)
	environmentOf(t, filepath.Join(first, ".venv"))
	second := application(t)
	environmentOf(t, filepath.Join(second, ".venv"))
	old := time.Unix(1000000000, 0)
	if err := filepath.WalkDir(second, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSymlink == 0 {
			err = os.Chtimes(name, old, old)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	options := func(dir string) Options {
		return Options{Application: dir, Environment: filepath.Join(dir, ".venv"), Configuration: "millrace.yaml",
			Exclude: excludeNotes, Time: commit, Title: "greet", Version: "v1", Revision: "abc",
			Source: "https://x.test/r"}
	}
	a, b := build(t, options(first)), build(t, options(second))
	if a.Digest != b.Digest || !bytes.Equal(a.SBOM, b.SBOM) {
		t.Errorf("the images of equal applications have the digests %s and %s", a.Digest, b.Digest)
	}
	var archives [2]string
	for i, img := range []*Image{a, b} {
		name := filepath.Join(t.TempDir(), "greet.tar")
		if err := img.WriteArchive(name, "localhost/greet:v1"); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = fmt.Sprintf("%x", sha256.Sum256(text))
		if bill, err := os.ReadFile(strings.TrimSuffix(name, ".tar") + ".cdx.json"); err != nil ||
			!bytes.Equal(bill, img.SBOM) {
			t.Errorf("the bill of materials beside the archive: %v", err)
		}
	}
	if archives[0] != archives[1] {
		t.Error("the archives of equal images differ")
	}
	heads, texts := contents(t, a.image)
	checkEntries(t, heads)
	for name, text := range texts {
		if strings.Contains(text, filepath.Dir(first)) {
			t.Errorf("%s names a folder of this machine", name)
		}
	}
	checkEnvironment(t, texts)
	checkConfig(t, a)
	checkBill(t, a.SBOM, texts)

}

// Equal environments made by uv give equal layers, which name no folder of this machine.
func TestEnvironmentByUV(t *testing.T) {
	uv := testbuild.UV(t)
	python := testneeds.Python(t, "ensurepip")
	layer := func() map[string]string {
		t.Helper()
		root := t.TempDir()
		dir := filepath.Join(root, "venv")
		run(t, uv, "venv", "--no-config", "--python", python, dir)
		run(t, uv, "pip", "install", "--no-config", "--no-cache", "--no-index", "--link-mode", "copy",
			"--compile-bytecode", "--python", filepath.Join(dir, "bin/python"), greetingWheel(t))
		p, err := environmentPython(dir)
		if err != nil {
			t.Fatal(err)
		}
		libs := &libraries{tree: ociimage.Tree{}, from: map[string]string{}, done: map[string]bool{}}
		tree, err := environmentTree(&Options{Environment: dir, Application: root}, p, libs, &[]part{})
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		for name, e := range tree {
			text := e.Text
			if e.From != "" {
				if text, err = os.ReadFile(e.From); err != nil {
					t.Fatal(err)
				}
			}
			texts[name] = fmt.Sprint(e.Mode, " ", e.Link, " ", string(text))
			if strings.Contains(texts[name], root) || strings.HasSuffix(name, ".pyc") {
				t.Errorf("the layer has %s: %s", name, text)
			}
		}
		return texts
	}
	first, second := layer(), layer()
	if len(first) < 10 || !maps.Equal(first, second) {
		t.Errorf("equal environments give %q and %q", first, second)
	}
}

// Another commit changes only the layer of the application.
func TestOtherCommit(t *testing.T) {
	dir := application(t)
	program := testneeds.Program(t, "true")
	la := layersOf(t, build(t, Options{Application: dir, Program: program, Time: commit}))
	lb := layersOf(t, build(t, Options{Application: dir, Program: program, Time: commit.Add(time.Hour)}))
	for i := range la {
		if same := la[i] == lb[i]; same != (i < len(la)-1) {
			t.Errorf("layer %d of %d of another commit: equal %v", i, len(la), same)
		}
	}
}

func layersOf(t *testing.T, img *Image) (list []string) {
	t.Helper()
	m, err := img.image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range m.Layers {
		list = append(list, l.Digest.String())
	}
	return list
}

// checkEntries checks the rights, owners and times of files.
func checkEntries(t *testing.T, heads map[string]*tar.Header) {
	t.Helper()
	for name, h := range heads {
		if h.Mode&0o6000 != 0 || h.Typeflag != tar.TypeSymlink && h.Mode&0o022 != 0 && name != "tmp/" ||
			h.Uid != h.Gid || (h.Uid != 0) != (name == "var/lib/millrace/") || h.Uname+h.Gname != "" {
			t.Errorf("%s: mode %o, user %d %s, group %d %s", name, h.Mode, h.Uid, h.Uname, h.Gid, h.Gname)
		}
		if !h.ModTime.Equal(fixed) && !h.ModTime.Equal(commit) {
			t.Errorf("%s has the time %v", name, h.ModTime)
		}
	}
	for _, name := range []string{"app/greet.py", "app/millrace.yaml", "app/.venv", "usr/local/bin/millrace",
		"usr/local/python/bin/python3.11", "usr/local/venv/bin/python", "etc/passwd", "tmp/", "etc/ssl/certs/"} {
		if heads[name] == nil {
			t.Errorf("the image lacks %s", name)
		}
	}
	for name := range heads {
		for _, word := range []string{"app/.git", "app/notes", "__pycache__", ".pyc", "direct_url.json",
			"venv/bin/activate", "python3.11/test/"} {
			if strings.Contains(name, word) {
				t.Errorf("the image has %s", name)
			}
		}
	}
}

// checkEnvironment checks the files of the environment that name paths, and their digests in RECORD.
func checkEnvironment(t *testing.T, texts map[string]string) {
	t.Helper()
	const at = "usr/local/venv/"
	if got := texts[at+"pyvenv.cfg"]; got != "home = /usr/local/python/bin\ninclude-system-site-packages = false\n"+
		"version = 3.11\n" {
		t.Errorf("pyvenv.cfg: %s", got)
	}
	script := texts[at+"bin/greet"]
	if !strings.HasPrefix(script, "#!/usr/local/venv/bin/python\n") {
		t.Errorf("the script is %s", script)
	}
	packages := at + "lib/python3.11/site-packages/"
	record := texts[packages+"greeting-1.0.dist-info/RECORD"]
	files := 0
	for line := range strings.Lines(record) {
		f := strings.Split(strings.TrimSpace(line), ",")
		text, has := texts[path.Join(packages, f[0])]
		sum := sha256.Sum256([]byte(text))
		if want := "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]); !has || f[1] != "" && f[1] != want {
			t.Errorf("RECORD has %q, in the image: %v, %s", line, has, want)
		}
		files++
	}
	if files < 6 || !strings.Contains(record, "../../../bin/greet,sha256=") {
		t.Errorf("RECORD is %s", record)
	}
}

func checkConfig(t *testing.T, img *Image) {
	t.Helper()
	c, err := img.image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(c.Config.User, c.Config.Entrypoint, c.Config.Cmd, c.Config.Env, c.Config.WorkingDir,
		c.Config.Healthcheck.Test, c.Config.ExposedPorts)
	want := "65532:65532 [/usr/local/bin/millrace] [serve --config /app/millrace.yaml --http 0.0.0.0:8000 --grpc " +
		"0.0.0.0:8001] [PATH=/usr/local/venv/bin:/usr/local/python/bin:/usr/local/bin:/usr/bin " +
		"HOME=/var/lib/millrace] /app [CMD /usr/local/bin/millrace health] map[8000/tcp:{} 8001/tcp:{}]\n"
	if got != want {
		t.Errorf("the configuration is %s,\nwant %s", got, want)
	}
	for name, want := range map[string]string{"title": "greet", "version": "v1", "revision": "abc",
		"source": "https://x.test/r", "created": "2024-05-06T07:08:09Z"} {
		if got := c.Config.Labels["org.opencontainers.image."+name]; got != want {
			t.Errorf("the label %s is %q", name, got)
		}
	}
}

func checkBill(t *testing.T, text []byte, texts map[string]string) {
	t.Helper()
	if texts["usr/share/doc/millrace/sbom.cdx.json"] != string(text) {
		t.Error("the bill of materials in the image is another")
	}
	var bill struct {
		Components []struct {
			Ref      string `json:"bom-ref"`
			PURL     string
			Licenses []struct{ Expression string }
		}
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, c := range bill.Components {
		if found[c.Ref] != "" {
			t.Errorf("%s is there twice", c.Ref)
		}
		found[c.Ref] = fmt.Sprint(c.Licenses)
	}
	if found["pkg:pypi/greeting@1.0"] != "[{MIT}]" || found["pkg:generic/python@3.11"] == "" {
		t.Errorf("the bill of materials has %v", found)
	}
	for _, start := range []string{"pkg:pypi/pip@", "pkg:golang/std@go", "pkg:deb/debian/libc6@"} {
		if !strings.Contains(string(text), start) {
			t.Errorf("the bill of materials lacks %s", start)
		}
	}
}

// Bad options give errors that say what to do, and leave no files.
func TestBadOptions(t *testing.T) {
	dir := application(t)
	bad := application(t)
	if err := os.Symlink("../../etc/passwd", filepath.Join(bad, "notes/link")); err != nil {
		t.Fatal(err)
	}
	absolute := application(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(absolute, "link")); err != nil {
		t.Fatal(err)
	}
	noEnvironment, oldEnvironment := t.TempDir(), t.TempDir()
	put(t, filepath.Join(oldEnvironment, "pyvenv.cfg"), "home = /nowhere\nversion = 3.7.1\n")
	ofTwo := filepath.Join(t.TempDir(), "python")
	put(t, ofTwo, "#!/bin/sh\nexec python3\n")
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Application: filepath.Join(dir, "none")}, "is no folder"},
		{Options{Application: dir, Configuration: "../x.yaml"}, "not a path within the application"},
		{Options{Application: dir, Configuration: "other.yaml"}, "configuration: the application has no other.yaml"},
		{Options{Application: dir, Configuration: "notes/todo.txt", Exclude: excludeNotes}, "has no notes/todo.txt"},
		{Options{Application: bad}, "outside of the application: replace the link by a file, or exclude the link"},
		{Options{Application: absolute}, "the link link leads to /etc/passwd"},
		{Options{Application: dir, Environment: noEnvironment}, "no Python environment"},
		{Options{Application: dir, Environment: oldEnvironment}, "the Python 3.7"},
		{Options{Application: dir, Environment: dir, Python: "python3"}, "leave the interpreter out"},
		{Options{Application: dir, Python: "no-such-python"}, "PATH has no interpreter no-such-python"},
		{Options{Application: dir, Python: ofTwo}, "no interpreter, but perhaps a script"},
		{Options{Application: dir, Base: &Base{}, FFmpeg: true}, "take a base image that has ffmpeg"},
		{Options{Application: dir, HTTP: 80, GRPC: 80}, "two different ports"},
		{Options{Application: dir, HTTP: 70000}, "two different ports"},
		{Options{Application: dir, Program: ofTwo}, "is no program of Linux"},
		{Options{Application: dir, Certificates: ofTwo}, "no file with certificates in PEM"},
		{Options{Application: dir, search: func() ([]string, error) { return []string{t.TempDir()}, nil }},
			"which this machine does not have: install the package"},
	} {
		t.Setenv("TMPDIR", t.TempDir())
		img, err := Build(t.Context(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		if img != nil {
			t.Errorf("an image despite %v", err)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("%v: %v is left", err, left)
		}
	}
}

// Packages installed with -e are refused, unless their folder is in the application.
func TestEditable(t *testing.T) {
	dir := application(t)
	env := filepath.Join(dir, ".venv")
	run(t, testneeds.Python(t), "-m", "venv", "--without-pip", env)
	pth := filepath.Join(env, "lib/python3.11/site-packages/own.pth")
	put(t, pth, filepath.Join(dir, "src")+"\nimport sys\n")
	o := Options{Application: dir, Environment: env, Program: testneeds.Program(t, "true")}
	_, texts := contents(t, build(t, o).image)
	if got := texts["usr/local/venv/lib/python3.11/site-packages/own.pth"]; got != "/app/src\nimport sys\n" {
		t.Errorf("own.pth is %q", got)
	}
	put(t, pth, "/somewhere/else\n")
	if _, err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), "without -e") {
		t.Errorf("%v", err)
	}
	put(t, pth, "")
	put(t, filepath.Join(filepath.Dir(pth), "__editable___own_1_0_finder.py"), "MAPPING = {}\n")
	if _, err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), "without -e") {
		t.Errorf("%v", err)
	}
}

// Links out of an environment, which code of packages can make, are not followed.
func TestLinksOut(t *testing.T) {
	dir, secret := application(t), filepath.Join(t.TempDir(), "secret")
	put(t, secret, "secret")
	env := filepath.Join(dir, ".venv")
	python := testneeds.Python(t)
	run(t, python, "-m", "venv", "--without-pip", env)
	packages := filepath.Join(env, "lib/python3.11/site-packages")
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(packages, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(packages, "own.py"), "own")
	link("own.py", "same.py")
	o := Options{Application: dir, Environment: env, Program: testneeds.Program(t, "true")}
	_, texts := contents(t, build(t, o).image)
	if got := texts["usr/local/venv/lib/python3.11/site-packages/same.py"]; got != "own" {
		t.Errorf("a link within the environment: %q", got)
	}
	for _, name := range []string{"data.txt", "own.pth", "greeting-1.0.dist-info"} {
		to := secret
		if strings.HasSuffix(name, "-info") {
			to = filepath.Dir(secret)
		}
		link(to, name)
		if _, err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), "outside of the environment") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(filepath.Join(packages, name)); err != nil {
			t.Fatal(err)
		}
	}
	// an interpreter of the package's own, named by pyvenv.cfg
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(env, "own/bin/python3.11"), string(program))
	put(t, filepath.Join(env, "own/lib/python3.11/os.py"), "os")
	link(secret, "../../../own/lib/python3.11/data.py")
	put(t, filepath.Join(env, "pyvenv.cfg"), "home = "+env+"/own/bin\nversion = 3.11.2\n")
	if _, err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), "outside of the environment") {
		t.Errorf("an interpreter in the environment: %v", err)
	}
	libs := &libraries{tree: ociimage.Tree{}, from: map[string]string{}, done: map[string]bool{}}
	p := interpreter{prefix: filepath.Join(env, "own"), version: "3.11"}
	err = libs.copyPython(p, filepath.Join(p.prefix, "lib/python3.11"), "to", func(string) bool { return false })
	if _, has := libs.tree["to/data.py"]; err != nil || has || len(libs.tree) != 1 || len(libs.notes) != 1 {
		t.Errorf("%v %v %q", err, libs.tree, libs.notes)
	}
}

// Files with passwords and keys do not get into an image.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	key := "-----BEGIN PRIVATE KEY-----\nx\n"
	for name, text := range map[string]string{".env": "A=secret", "a/.env.local": "A=secret", ".ssh/config": "secret",
		"id_ed25519": "secret", "tls/server.key": key, "tls/both.pem": key, "b/.netrc": "secret"} {
		put(t, filepath.Join(dir, name), text)
	}
	kept := []string{".env.example", "tls/ca.pem", "id_ed25519.pub", "environment.py", "a/.envelope"}
	for _, name := range kept {
		put(t, filepath.Join(dir, name), "kept")
	}
	env := filepath.Join(dir, ".venv")
	run(t, testneeds.Python(t), "-m", "venv", "--without-pip", env)
	put(t, filepath.Join(env, "pip.conf"), "[global]\nindex-url = https://ann:secret@index.example.org\n")
	img := build(t, Options{Application: dir, Environment: env, Program: testneeds.Program(t, "true")})
	_, texts := contents(t, img.image)
	for name, text := range texts {
		if strings.HasPrefix(name, "app/") && text != "" && text != "kept" || strings.HasSuffix(name, "pip.conf") {
			t.Errorf("the image has %s", name)
		}
	}
	for _, name := range kept {
		if texts["app/"+name] == "" {
			t.Errorf("the image lacks %s", name)
		}
	}
	if len(img.Notes) != 1 || strings.Contains(img.Notes[0], "/config") || !strings.Contains(img.Notes[0],
		`".env", ".ssh/", "a/.env.local", "b/.netrc", "id_ed25519", "tls/both.pem", "tls/server.key"`) {
		t.Errorf("%q", img.Notes)
	}
}

// Programs of the application get their libraries, and notes name scripts that cannot start.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	python, err := filepath.EvalSymlinks(testneeds.Python(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(python)
	if err != nil {
		t.Fatal(err)
	}
	testneeds.WriteProgram(t, filepath.Join(dir, "tool"), string(text))
	testneeds.WriteProgram(t, filepath.Join(dir, "run.sh"), "#!/bin/sh\necho\n")
	put(t, filepath.Join(dir, "text.sh"), "#!/bin/sh\n") // not executable
	img := build(t, Options{Application: dir, Program: testneeds.Program(t, "true")})
	if len(img.Notes) != 1 || !strings.Contains(img.Notes[0], `"run.sh" needs "/bin/sh", which the image lacks`) {
		t.Errorf("%v", img.Notes)
	}
	heads, _ := contents(t, img.image)
	found := 0
	for name := range heads {
		if base := path.Base(name); base == "libz.so.1" || base == "libexpat.so.1" {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 libraries of the program are in the image", found)
	}
	if img.WriteArchive(filepath.Join(dir, "x.tar"), "No Name") == nil {
		t.Error("an archive with a bad name was written")
	}
}

// SOURCE_DATE_EPOCH has precedence over the commit's time.
func TestSourceTime(t *testing.T) {
	for text, want := range map[string]time.Time{"": commit, "0": time.Unix(0, 0).UTC(), "1700000000": time.Unix(1700000000, 0).UTC()} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		if got, err := SourceTime(commit); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"yesterday", "-1", "1e9", "99999999999999"} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		if _, err := SourceTime(commit); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
			t.Errorf("%q: %v", text, err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if got, err := SourceTime(time.Time{}); err != nil || !got.Equal(fixed) {
		t.Errorf("%v, %v", got, err)
	}
}

// FuzzDist: no METADATA gives a name or version that breaks the form of a package's address.
func FuzzDist(f *testing.F) {
	f.Add("Name: A_b.c\nVersion: 1!2+local\n\nName: x\n")
	f.Add("Name: \nname: a\r\nLicense-Expression: MIT OR Apache-2.0\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		p := parseDist(text)
		if p.name == "" {
			if p != (part{}) {
				t.Errorf("%+v without a name", p)
			}
			return
		}
		if strings.ContainsAny(p.purl, " \n\"?#") || !strings.HasPrefix(p.purl, "pkg:pypi/") || strings.Count(p.purl, "@") != 1 {
			t.Errorf("%q", p.purl)
		}
	})
}

func TestParseDist(t *testing.T) {
	got := parseDist("Metadata-Version: 2.1\nName: Zope.Interface_x\nVersion: 1!2.0+local\nName: other\n\nVersion: 3\n")
	if got.purl != "pkg:pypi/zope-interface-x@1%212.0%2Blocal" || got.name != "Zope.Interface_x" {
		t.Errorf("%+v", got)
	}
}

// A program of the application gets no other file of this machine than programs and libraries.
func TestForeignLoader(t *testing.T) {
	python, err := filepath.EvalSymlinks(testneeds.Python(t))
	if err != nil {
		t.Fatal(err)
	}
	needs, _, err := ociimage.ReadNeeds(python)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(python)
	if err != nil {
		t.Fatal(err)
	}
	const foreign = "/etc/passwd"
	loader := foreign + strings.Repeat("\x00", len(needs.Loader)-len(foreign))
	dir := t.TempDir()
	testneeds.WriteProgram(t, filepath.Join(dir, "tool"), strings.Replace(string(text), needs.Loader, loader, 1))
	img := build(t, Options{Application: dir, Program: testneeds.Program(t, "true")})
	_, texts := contents(t, img.image)
	if got := texts["etc/passwd"]; !strings.Contains(got, "millrace") || strings.Count(got, "\n") != 2 {
		t.Errorf("the image has the %s of this machine: %s", foreign, got)
	}
	if len(img.Notes) != 1 || !strings.Contains(img.Notes[0], "tool needs "+foreign) {
		t.Errorf("%v", img.Notes)
	}
}

// Open removes the folder of a call that was killed, and keeps that of a call that runs.
func TestOpenAfterKill(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "a.tar")
	built := small(t)
	if err := built.WriteArchive(file, "localhost/a:v1"); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(os.TempDir(), "millrace-image-1.tmp")
	if err := os.Mkdir(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call runs beside the first
		img, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := img.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the killed call is left: %v", err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 2 { // of both calls
		t.Errorf("%v, %v", left, err)
	}
}
