package ociimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var at = time.Unix(1700000000, 0).UTC()

// tree returns a tree with an entry of each kind.
func tree(t *testing.T) Tree {
	t.Helper()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), os.Chmod(file, 0o4700),
		os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	tree := Tree{}
	tree.Accounts()
	tree.Text("a/b/text", "x")
	tree["a/opened"] = Entry{Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("12345")), nil },
		Size: 5, Mode: 0o600}
	if err := errors.Join(tree.File("bin/file", file), tree.File("bin/link", link)); err != nil {
		t.Fatal(err)
	}
	if err := tree.File("dir", dir); err == nil {
		t.Error("a folder was added as a file")
	}
	return tree
}

// A tree's archive is sorted, has all folders, and no rights but those to read and to execute.
func TestTree(t *testing.T) {
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := tree(t).Write(out, at); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("equal trees give other archives")
	}
	got, last := map[string]*tar.Header{}, ""
	for r := tar.NewReader(&first); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if name := strings.TrimSuffix(h.Name, "/"); name <= last {
			t.Errorf("%s after %s", name, last)
		} else {
			last = name
		}
		if !h.ModTime.Equal(at) {
			t.Errorf("%s: %v", h.Name, h.ModTime)
		}
		got[h.Name] = h
	}
	for name, mode := range map[string]int64{"a/": 0o755, "a/b/": 0o755, "a/b/text": 0o644, "a/opened": 0o600,
		"bin/file": 0o755, "bin/link": 0o777, "tmp/": 0o1777, "etc/passwd": 0o644} {
		if h := got[name]; h == nil || h.Mode != mode {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if got["bin/link"].Linkname != "file" {
		t.Errorf("%+v", got["bin/link"])
	}
}

// A file with another size than before ends the archive with an error, and so does the end of the context.
func TestTreeErrors(t *testing.T) {
	bad := Tree{"a": {Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("123")), nil }, Size: 5}}
	_, err := bad.Layer(t.Context(), t.TempDir(), at)
	if err == nil || !strings.Contains(err.Error(), "changed while") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tree(t).Layer(ctx, t.TempDir(), at); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := (Tree{"a": {From: "/none"}}).Layer(t.Context(), t.TempDir(), at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Images are valid for go-containerregistry, as folders and archives; layers of a base with Docker's media types get
// OCI's.
func TestBuild(t *testing.T) {
	layer, err := tree(t).Layer(t.Context(), t.TempDir(), at)
	if err != nil {
		t.Fatal(err)
	}
	base, err := random.Image(1000, 2) // of Docker's types
	if err != nil {
		t.Fatal(err)
	}
	img, err := Build(base, v1.ConfigFile{Architecture: "amd64", OS: "linux", Created: v1.Time{Time: at}},
		Addition{Layer: layer, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil || len(m.Layers) != 3 || m.MediaType != types.OCIManifestSchema1 {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, l := range m.Layers {
		if l.MediaType != types.OCILayer {
			t.Errorf("a layer has the type %s", l.MediaType)
		}
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	dir, want := t.TempDir(), m.Config.Digest
	for range 2 { // the second time over the first
		if err := WriteLayout(filepath.Join(dir, "layout"), img, "localhost/test:v1"); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	f, err := os.Create(filepath.Join(dir, "image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteArchive(f, img, at, "localhost/test:v1"), f.Close()); err != nil {
		t.Fatal(err)
	}
	packed, err := tarball.ImageFromPath(f.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := packed.ConfigName(); err != nil || got != want {
		t.Errorf("the archive has the image %s, %v, want %s", got, err, want)
	}
	if err := validate.Image(packed); err != nil {
		t.Error(err)
	}
}
