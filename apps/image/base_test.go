package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"millrace/internal/ociimage"
	"millrace/internal/testneeds"
)

// An image is built upon another: as a layout, an archive, and a reference of a registry. The libraries and the Python
// of the base are used.
func TestBase(t *testing.T) {
	testneeds.Python(t)
	host, ca, _ := startRegistry(t)
	t.Setenv("GOOD", "secret")
	o := RegistryOptions{User: "ann", PasswordVariable: "GOOD", CA: ca}
	program := testneeds.Program(t, "true")
	empty := t.TempDir()
	put(t, filepath.Join(empty, "README"), "base")
	under := build(t, Options{Application: empty, Python: testneeds.Interpreter, Program: program,
		Labels: map[string]string{"of": "base"}})
	work := t.TempDir()
	archive, folder := filepath.Join(work, "base.tar"), filepath.Join(work, "base")
	if err := under.WriteArchive(archive, "localhost/base:v1"); err != nil {
		t.Fatal(err)
	}
	if err := under.WriteLayout(folder, "localhost/base:v1"); err != nil {
		t.Fatal(err)
	}
	if err := under.WriteLayout(folder, "localhost/base:v1"); err != nil { // again
		t.Fatal(err)
	}
	packed := filepath.Join(work, "layout.tar") // without docker's manifest.json
	run(t, testneeds.Program(t, "tar"), "-cf", packed, "-C", folder, ".")
	at, err := Publish(t.Context(), under, host+"/base:v1", o)
	if err != nil {
		t.Fatal(err)
	}

	app := t.TempDir()
	put(t, filepath.Join(app, "greet.py"), "def infer(): return 1\n")
	env := filepath.Join(t.TempDir(), "env")
	run(t, testneeds.Interpreter, "-m", "venv", "--without-pip", env)
	digests := map[string]string{}
	for _, from := range []string{folder, archive, packed, at} {
		base, err := OpenBase(t.Context(), from, o)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		img := build(t, Options{Application: app, Environment: env, Program: program, Base: base, Time: commit})
		digests[from] = img.Digest
		c, err := img.image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.Labels["of"] != "base" || c.Config.Labels["org.opencontainers.image.base.digest"] != under.Digest {
			t.Errorf("%s: the labels are %v", from, c.Config.Labels)
		}
		heads, _ := contents(t, img.image)
		if got := heads["usr/local/venv/bin/python"]; got == nil || got.Linkname != "/usr/local/python/bin/python3.11" {
			t.Errorf("%s: the environment has the interpreter %+v", from, got)
		}
		if base.part().version != under.Digest || !strings.Contains(string(img.SBOM), under.Digest) {
			t.Errorf("%s: the bill of materials lacks the base", from)
		}
		if from == folder {
			checkBaseErrors(t, base, app, env)
		}
		if err := base.Close(); err != nil {
			t.Error(err)
		}
	}
	if digests[packed] == "" {
		t.Error("no digest")
	}
	if _, err := OpenBase(t.Context(), host+"/none:v1", o); err == nil || !strings.Contains(err.Error(), "has no repository") {
		t.Errorf("%v", err)
	}
}

// The password for the registry of the image is not sent to another registry, which has the base image.
func TestBasePassword(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("REGISTRY_AUTH_FILE", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("GOOD", "secret")
	host, ca, _ := startRegistry(t)
	o := RegistryOptions{User: "ann", PasswordVariable: "GOOD", CA: ca, PlainHTTP: true}
	at, err := Publish(t.Context(), small(t), host+"/base:v1", o)
	if err != nil {
		t.Fatal(err)
	}
	for published, want := range map[string]string{host + "/team/app:v1": "", "registry.example.org/team/app:v1": "refuses " +
		"the user of docker login", "": "refuses the user of docker login", "docker.io:x/no name": "refuses"} {
		_, dir, err := pull(t.Context(), at, o.ForBase(at, published))
		_ = removeFolder(dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("for %q: %v, want %q", published, err, want)
		}
	}
	for base, same := range map[string]bool{"docker.io/library/python:3.11": true, "python:3.11": true,
		"quay.io/library/python:3.11": false, "docker.io.example.org/python": false} {
		if got := o.ForBase(base, "docker.io/ann/app:v1"); (got.User == "ann") != same || got.PlainHTTP != same {
			t.Errorf("%s: %+v", base, got)
		}
	}
}

// slowLayer is a layer whose archive does not come.
type slowLayer struct {
	v1.Layer
	opened func()
	io.ReadCloser
}

func (l slowLayer) Uncompressed() (io.ReadCloser, error) {
	l.opened()
	return l.ReadCloser, nil
}

// Reading a base image ends with the context.
func TestBaseEnds(t *testing.T) {
	made, err := random.Layer(100, types.OCILayer)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	img, err := mutate.AppendLayers(empty.Image, slowLayer{made, cancel, r})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Base{image: img}).read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// checkBaseErrors checks the errors of programs and environments that the base does not fit.
func checkBaseErrors(t *testing.T, base *Base, app, env string) {
	t.Helper()
	other := filepath.Join(t.TempDir(), "env")
	put(t, filepath.Join(other, "pyvenv.cfg"), "home = /usr/bin\nversion = 3.11.2\n")
	python := base.files["usr/local/python/bin/python3.11"]
	delete(base.files, "usr/local/python/bin/python3.11")
	for _, c := range []struct {
		before func()
		want   string
	}{
		{func() {}, "the base image has no Python 3.11"},
		{func() { base.files["usr/bin/python3.12"] = "" }, "the environment is for Python 3.11, and the base image has " +
			"/usr/bin/python3.12"},
		{func() { base.glibc = map[string]bool{"GLIBC_2.2.5": true} }, "the C library of the base image is older"},
		{func() { base.libraries = "" }, "take a base image with glibc"},
		{func() { base.config = base.config.DeepCopy(); base.config.Architecture = "riscv64" }, "the base image is for riscv64"},
	} {
		c.before()
		_, err := Build(t.Context(), Options{Application: app, Environment: env, Base: base,
			Program: testneeds.Program(t, "true")})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	base.files["usr/local/python/bin/python3.11"] = python
}

// Files that are no images are refused.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "text"), "no archive")
	put(t, filepath.Join(dir, "folder/file"), "x")
	put(t, filepath.Join(dir, "layout/oci-layout"), `{"imageLayoutVersion":"1.0.0"}`)
	put(t, filepath.Join(dir, "layout/index.json"), `{"schemaVersion":2,"manifests":[]}`)
	for name, want := range map[string]string{"text": "is no image", "folder": "is no OCI layout",
		"layout": "names none", "none": "no such file"} {
		if _, err := Open(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	img := small(t)
	if err := img.WriteLayout(filepath.Join(dir, "folder"), "localhost/x:v1"); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("%v", err)
	}
}

// A base image with a damaged layer is refused.
func TestBaseDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	img := small(t)
	if err := img.WriteLayout(dir, "localhost/x:v1"); err != nil {
		t.Fatal(err)
	}
	base, err := OpenBase(t.Context(), dir, RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := base.Close(); err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(dir, "blobs/sha256", strings.TrimPrefix(layersOf(t, img)[1], "sha256:"))
	data, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	put(t, blob, string(data))
	_, err = OpenBase(t.Context(), dir, RegistryOptions{})
	if err == nil || !strings.Contains(err.Error(), "is damaged: its content has the digest") {
		t.Errorf("%v", err)
	}
}

// Links in a base image are followed as in the root of the image, and circles end.
func TestBaseLinks(t *testing.T) {
	b := &Base{files: map[string]string{"lib": "usr/lib", "lib64": "/usr/lib64", "usr/lib64": "lib", "usr/lib/x.so": "",
		"up": "../../usr/lib", "a": "b", "b": "a"}}
	for name, want := range map[string]string{"/lib/x.so": "usr/lib/x.so", "lib64/x.so": "usr/lib/x.so",
		"up/x.so": "usr/lib/x.so", "a/x": "", "usr/lib/y.so": ""} {
		got, found := b.real(name)
		if found != (want != "") || found && got != want {
			t.Errorf("%s: %s, %v", name, got, found)
		}
	}
	if err := b.check(ociimage.Tree{"lib/y.so": {}}); err == nil || !strings.Contains(err.Error(), "a link lib") {
		t.Errorf("%v", err)
	}
	if err := b.check(ociimage.Tree{"usr/lib/y.so": {}}); err != nil {
		t.Error(err)
	}
}

// FuzzOpen: no archive makes Open write outside of its folder, or panic.
func FuzzOpen(f *testing.F) {
	var ok bytes.Buffer
	img, err := ociimage.Build(nil, v1.ConfigFile{Architecture: "amd64", OS: "linux"})
	if err != nil {
		f.Fatal(err)
	}
	if err := ociimage.WriteArchive(&ok, img, fixed, "localhost/a:b"); err != nil {
		f.Fatal(err)
	}
	f.Add(ok.Bytes())
	var bad bytes.Buffer
	w := tar.NewWriter(&bad)
	for _, name := range []string{"../../escape", "index.json", "blobs/sha256/../../../escape", "/etc/x"} {
		_ = w.WriteHeader(&tar.Header{Name: name, Size: 2, Mode: 0o644})
		_, _ = w.Write([]byte("{}"))
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(bad.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		work := t.TempDir()
		t.Setenv("TMPDIR", work)
		name := filepath.Join(work, "in.tar")
		put(t, name, string(data))
		img, dir, err := openLocal(name)
		if err == nil && img == empty.Image {
			t.Error("an empty image")
		}
		if err := removeFolder(dir); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(work); err != nil || len(left) != 1 {
			t.Errorf("%v, %v", left, err)
		}
	})
}
