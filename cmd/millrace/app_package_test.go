package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/spf13/cobra"

	"millrace/apps"
	"millrace/apps/image"
	"millrace/apps/program"
	"millrace/apps/source"
	"millrace/internal/gittest"
	"millrace/internal/ociimage"
	"millrace/internal/testneeds"
)

// TestAppPackage packs a clone, and pushes the image to go-containerregistry's own registry.
func TestAppPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses the program")
	}
	of := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(of.Close)
	r := gittest.New(t)
	r.Commit(map[string]string{"service/millrace.yaml": "models: [{name: same, source: identity}]\n"})
	reference := strings.TrimPrefix(of.URL, "http://") + "/team/app:v1"
	dir := t.TempDir()
	t.Chdir(dir)
	args := []string{"app", "--config", "file://" + r.Dir + "|service/millrace.yaml", "--image", reference, "--json"}
	if _, stderr, code := executed(t, append(args, "init", "publish")...); code != 1 ||
		!strings.Contains(stderr, "there is no image "+filepath.Join(dir, "app.tar")+": add the command package") {
		t.Errorf("publish without an image: %d %s", code, stderr)
	}
	if _, stderr, code := executed(t, append(args, "package", "--out", "no/x.tar")...); code != exitUsage ||
		!strings.Contains(stderr, "--out: there is no folder no for the image") {
		t.Errorf("a missing folder: %d %s", code, stderr)
	}
	out, stderr, code := executed(t, append(args, "package", "publish")...)
	if code != 0 {
		t.Fatalf("%d %s", code, stderr)
	}
	var packed appPackageResult
	var published appPublishResult
	documents := json.NewDecoder(strings.NewReader(out))
	if err := documents.Decode(&packed); err != nil {
		t.Fatal(err)
	}
	if err := documents.Decode(&published); err != nil {
		t.Fatal(err)
	}
	if packed.Output != filepath.Join(dir, "app.tar") || packed.Bytes == 0 ||
		published.Published != strings.TrimSuffix(reference, ":v1")+"@"+packed.Digest {
		t.Errorf("%+v, %+v", packed, published)
	}
	if _, err := os.Stat(filepath.Join(dir, "app.cdx.json")); err != nil {
		t.Error(err)
	}
	if packed.Changes == nil || len(packed.Changes) > 0 || strings.Contains(stderr, "local changes") {
		t.Errorf("the changes of an unchanged clone: %q, %s", packed.Changes, stderr)
	}
	for name, text := range map[string]string{"service/millrace.yaml": "models: [{name: new, source: identity}]\n",
		"service/new.txt": "new", "left/out.txt": "out", "service/.env": "A=b"} {
		name = filepath.Join(dir, ".repo/app", name)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	out, stderr, code = executed(t, append(args, "package", "--exclude", "left")...)
	if err := json.Unmarshal([]byte(out), &packed); err != nil || code != 0 ||
		!slices.Equal(packed.Changes, []string{"service/millrace.yaml", "service/new.txt"}) ||
		!strings.Contains(stderr, "the image has local changes, which its commit "+r.Git("rev-parse", "HEAD")+
			" lacks: service/millrace.yaml, service/new.txt. Commit them") ||
		!strings.Contains(stderr, `passwords and keys: "service/.env". Do not commit them: give secrets by deploy --secret`) {
		t.Errorf("a changed clone: %d %q %s %v", code, packed.Changes, stderr, err)
	}
	if _, stderr, code := executed(t, append(args[:len(args):len(args)], "publish")...); code != 0 {
		t.Errorf("publish of the changed clone that was packed: %d %s", code, stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, ".repo/app/service/new.txt"), []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := executed(t, append(args[:len(args):len(args)], "publish")...); code != 1 ||
		!strings.Contains(stderr, "files of "+filepath.Join(dir, ".repo/app")+" have changed since") {
		t.Errorf("publish of a clone that was changed after package: %d %s", code, stderr)
	}
	if _, stderr, code := executed(t, append(args[:3:3], "--discard", "init")...); code != 0 {
		t.Fatal(stderr)
	}
	before := r.Git("rev-parse", "HEAD")
	now := r.Commit(map[string]string{"service/millrace.yaml": "models: [{name: other, source: identity}]\n"})
	for _, step := range [][]string{{"init", "publish"}, {"deploy", "--target", "127.0.0.1"}} {
		if _, stderr, code := executed(t, append(args[:len(args):len(args)], step...)...); code != 1 ||
			!strings.Contains(stderr, fmt.Sprintf("app.tar is of the commit %q, and the clone is at %s: add the command "+
				"package", before, now)) {
			t.Errorf("%v with the image of an earlier commit: %d %s", step, code, stderr)
		}
	}
}

// TestAppForeignImage: the image of another commit, of a clone in place of a folder, and an image without a digest of
// the files is neither published nor deployed.
func TestAppForeignImage(t *testing.T) {
	r := gittest.New(t)
	commit := r.Commit(map[string]string{"millrace.yaml": "models: [{name: same, source: identity}]\n"})
	dir := t.TempDir()
	t.Chdir(dir)
	clone, folder := "file://"+r.Dir, filepath.Join(dir, ".repo/app")
	if _, stderr, code := executed(t, "app", "--config", clone, "init"); code != 0 {
		t.Fatal(stderr)
	}
	digest, err := image.FilesDigest(t.Context(), folder, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	const revision, unknown = "org.opencontainers.image.revision", "127.0.0.1:9/a:v1"
	labels := func(of string) map[string]string {
		return map[string]string{image.LabelFiles: digest, labelExcluded: "[]", revision: of}
	}
	for _, c := range []struct {
		config string
		labels map[string]string
		want   string // "" = the image is taken
	}{
		{clone, labels(commit), ""},
		{folder, labels(""), ""},
		{clone, map[string]string{revision: commit}, "has no label millrace.files, by which changes of files are seen: an " +
			"older version of millrace"},
		{folder, nil, "has no label millrace.files"},
		{folder, labels(commit), "is of the commit \"" + commit + "\", and " + folder + " is not a clone"},
		{clone, labels(""), "is of no commit, and the clone is at " + commit},
	} {
		img, err := mutate.Config(empty.Image, v1.Config{Labels: c.labels})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := ociimage.WriteArchive(&b, img, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("app.tar", b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, step := range [][]string{{"publish", "--image", unknown}, {"deploy", "--target", "127.0.0.1:9"}} {
			_, stderr, code := executed(t, append([]string{"app", "--config", c.config, "--out", "app.tar"},
				step...)...)
			const add = ": add the command package"
			if code != 1 || !strings.Contains(stderr, c.want) || strings.Contains(stderr, add) != (c.want != "") {
				t.Errorf("%s of %s with %v: %d %s; want %s", step[0], c.config, c.labels, code, stderr, c.want)
			}
		}
	}
}

// Python files of an image that do not compile are named, without the files that are left out.
func TestSyntaxNotes(t *testing.T) {
	python, dir := testneeds.Python(t), t.TempDir()
	if err := program.Check(); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"a b.py", "good.py", "left.py", ".git/x.py", "data.txt"} {
		text := "def f(:\n"
		if name == "good.py" {
			text = "raise SystemExit(7)\n"
		}
		name = filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &appCall{Command: &cobra.Command{}}
	c.SetContext(t.Context())
	o := image.Options{Python: python, Exclude: func(name string) bool { return name == "left.py" }}
	want := []string{"Python files of the image have errors: 'a b.py', line 1: invalid syntax"}
	if got := syntaxNotes(c, &apps.App{Root: dir}, o); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if o.Python = ""; len(syntaxNotes(c, &apps.App{Root: dir}, o)) > 0 {
		t.Error("an image without Python has notes")
	}
}

// TestAppPackageFolder: an image of a folder is neither deployed nor published after files of the folder have changed.
func TestAppPackageFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses the program")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, "app", name)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	write("millrace.yaml", "models: [{name: same, source: identity}]\n")
	write("data/x", "x")
	args := []string{"app", "--config", "app", "--out", "app/image.tar"}
	if _, stderr, code := executed(t, append(args, "package", "--exclude", "data/")...); code != 0 {
		t.Fatal(stderr)
	}
	const old = "have changed since"
	publish := func() string {
		t.Helper()
		_, stderr, code := executed(t, append(args, "publish", "--image", "127.0.0.1:9/a:v1")...)
		if code != 1 {
			t.Errorf("%d %s", code, stderr)
		}
		return stderr
	}
	for name, text := range map[string]string{"data/x": "y", ".env": "A=b", "__pycache__/x.pyc": "y",
		".git/HEAD": "x"} {
		write(name, text)
		if said := publish(); strings.Contains(said, old) {
			t.Errorf("%s is not packed: %s", name, said)
		}
	}
	for name, text := range map[string]string{"millrace.yaml": "models: []\n", "new/file": "", "data.txt": ""} {
		before, err := os.ReadFile(filepath.Join(dir, "app", name))
		write(name, text)
		want := "files of " + filepath.Join(dir, "app") + " have changed since " + filepath.Join(dir, "app/image.tar") +
			" was packed: add the command package"
		if said := publish(); !strings.Contains(said, want) {
			t.Errorf("%s: %s", name, said)
		}
		if _, stderr, code := executed(t, append(args, "deploy", "--target", "127.0.0.1")...); code != 1 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s", name, code, stderr)
		}
		if err == nil {
			write(name, string(before))
		} else if err := os.RemoveAll(filepath.Join(dir, "app", strings.Split(name, "/")[0])); err != nil {
			t.Fatal(err)
		}
		if said := publish(); strings.Contains(said, old) {
			t.Errorf("%s is as before: %s", name, said)
		}
	}
}

// TestAppPackageOptions: an image has Python when the application needs Python, and starts the application by the
// command of its form.
func TestAppPackageOptions(t *testing.T) {
	r := newAppRepository(t)
	for config, want := range map[string]struct{ python, arguments string }{
		"service/millrace.yaml": {"python3", ""},
		"examples/double/ssf_config.yaml": {"python3",
			"ssf --config /app/examples/double/ssf_config.yaml --host 0.0.0.0 --port 8000 run"},
		"plain.yaml": {"", ""},
	} {
		if err := os.WriteFile(filepath.Join(r.Dir, "plain.yaml"), []byte("models: [{name: a, source: identity}]\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		s, err := source.Parse(r.Dir + "|" + config)
		if err != nil {
			t.Fatal(err)
		}
		app, err := apps.Open(s, apps.Options{Formats: appFormats()})
		if err != nil {
			t.Fatal(err)
		}
		o, err := (&appPackaging{}).options(app)
		if err != nil || o.Python != want.python || strings.Join(o.Arguments, " ") != want.arguments {
			t.Errorf("%s: %q %q %v", config, o.Python, o.Arguments, err)
		}
		o, err = (&appPackaging{environment: "venv"}).options(app)
		if err != nil || o.Python != "" || o.Environment != "venv" {
			t.Errorf("%s with an environment: %q %v", config, o.Python, err)
		}
	}
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "data"), 0o700),
		os.WriteFile(filepath.Join(root, "a.bin"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"date", "../x", "/etc"} {
		if _, err := excluded(root, filepath.Join(root, "app.tar"), []string{name}); err == nil {
			t.Errorf("the path %s was accepted", name)
		}
	}
	named := func(name string) bool { return name == "a.tmp" }
	also := alsoExcluded(named, &apps.App{Root: "/r", File: "/r/sub/ssf_config.yaml"}, func(name string) bool {
		return name == "b.tmp"
	})
	for name, want := range map[string]bool{"a.tmp": true, "b.tmp": false, "sub/b.tmp": true, "sub/b.tmp/": true,
		"subb.tmp": false, "sub/a.tmp": false} {
		if also(name) != want {
			t.Errorf("%s is left out: %v", name, !want)
		}
	}
	leave, err := excluded(root, filepath.Join(root, "out/app.tar"), []string{"./data/", "a.bin"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		".repo/": true, "data/": true, "a.bin": true, "data.txt": false, "out/app.tar": true, "out/app.cdx.json": true,
		"out/": false, "app.tar": false, "millrace.yaml": false,
	} {
		if leave(name) != want {
			t.Errorf("%s is left out: %v, want %v", name, !want, want)
		}
	}
}
