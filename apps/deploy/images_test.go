package deploy

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"millrace/apps/image"
	"millrace/internal/ociimage"
	"millrace/internal/testbuild"
)

const (
	sameModels   = "models: [{name: same, source: identity}]\n"
	brokenModels = "models: [{name: same, source: none-such}]\n"
)

// whole is the image of all tests: the build of the server and the compression take longer than a deploy.
var whole struct {
	sync.Mutex
	dir      string
	img      *image.Image
	contents *image.Contents
}

func TestMain(m *testing.M) {
	code := m.Run()
	if whole.img != nil {
		_ = whole.img.Close()
	}
	_ = os.RemoveAll(whole.dir)
	os.Exit(code)
}

// packed returns an image of the server with sameModels.
func packed(t *testing.T) *image.Contents {
	t.Helper()
	whole.Lock()
	defer whole.Unlock()
	if whole.contents != nil {
		return whole.contents
	}
	var err error
	if whole.dir, err = os.MkdirTemp("", "millrace-deploy-*"); err != nil {
		t.Fatal(err)
	}
	app, program := filepath.Join(whole.dir, "app"), filepath.Join(whole.dir, "millrace")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags", testbuild.Tags(), "-o",
		program, "millrace/cmd/millrace").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(app, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(app, "millrace.yaml"), []byte(sameModels), 0o600); err != nil {
		t.Fatal(err)
	}
	if whole.img, err = image.Build(t.Context(), image.Options{Application: app, Configuration: "millrace.yaml",
		Program: program, Title: "plain", Revision: "0123"}); err != nil {
		t.Fatal(err)
	}
	if whole.contents, err = whole.img.Contents(); err != nil {
		t.Fatal(err)
	}
	return whole.contents
}

// repack returns the image of packed with another configuration: another layer of the application on equal layers.
func repack(t *testing.T, configuration string) *image.Contents {
	t.Helper()
	var config v1.ConfigFile
	var manifest v1.Manifest
	c := *packed(t)
	read(t, c.Config, &config)
	read(t, c.Manifest, &manifest)
	tree := ociimage.Tree{}
	tree.Folder(image.ApplicationAt[1:], 0o755, 0)
	tree.Text(image.ApplicationAt[1:]+"/millrace.yaml", configuration)
	layer, err := tree.Layer(t.Context(), t.TempDir(), time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	last := len(c.Layers) - 1
	l := &manifest.Layers[last]
	l.Digest, _ = layer.Digest()
	l.Size, _ = layer.Size()
	config.RootFS.DiffIDs[last], _ = layer.DiffID()
	c.Config = written(t, config)
	if manifest.Config.Digest, err = v1.NewHash(c.Config.Digest); err != nil {
		t.Fatal(err)
	}
	manifest.Config.Size = c.Config.Size
	c.Manifest = written(t, manifest)
	c.Layers = append(c.Layers[:last:last], image.Blob{Digest: l.Digest.String(), Size: l.Size, Open: layer.Compressed})
	return &c
}

func read(t *testing.T, b image.Blob, v any) {
	t.Helper()
	r, err := b.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func written(t *testing.T, v any) image.Blob {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return blob(string(text))
}
