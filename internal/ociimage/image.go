package ociimage

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is a layer of an image as a file of this machine.
type Layer struct {
	path         string
	size         int64
	digest, diff v1.Hash
}

var _ v1.Layer = (*Layer)(nil)

// Digest returns the SHA-256 of the compressed layer.
func (l *Layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID returns the SHA-256 of the layer's archive.
func (l *Layer) DiffID() (v1.Hash, error) { return l.diff, nil }

// Size returns the size of the compressed layer.
func (l *Layer) Size() (int64, error) { return l.size, nil }

// MediaType returns OCI's type of a compressed layer.
func (l *Layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// Compressed opens the layer.
func (l *Layer) Compressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Uncompressed opens the layer's archive.
func (l *Layer) Uncompressed() (io.ReadCloser, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

// Stop returns a writer to w that fails after the end of ctx.
func Stop(ctx context.Context, w io.Writer) io.Writer { return stop{ctx, w} }

// stop ends a write when the context ends.
type stop struct {
	ctx context.Context
	to  io.Writer
}

func (s stop) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.to.Write(p)
}

// counted hashes and counts what is written.
type counted struct {
	hash.Hash
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}

func (c *counted) sum() v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(c.Sum(nil))}
}

// Layer writes the tree as a layer into a new file in the folder dir, with the time at for all entries. The caller
// removes the folder after the last use of the image.
func (t Tree) Layer(ctx context.Context, dir string, at time.Time) (*Layer, error) {
	f, err := os.CreateTemp(dir, "layer-*")
	if err != nil {
		return nil, err
	}
	plain, packed := &counted{Hash: sha256.New()}, &counted{Hash: sha256.New()}
	z := gzip.NewWriter(io.MultiWriter(f, packed))
	err = t.Write(stop{ctx, io.MultiWriter(z, plain)}, at)
	if err = errors.Join(err, z.Close(), f.Close()); err != nil {
		return nil, err
	}
	return &Layer{path: f.Name(), size: packed.n, digest: packed.sum(), diff: plain.sum()}, nil
}

// Addition is a layer, with the words for the image's history.
type Addition struct {
	v1.Layer
	By string
}

// Build returns an image: the layers of base, unless nil, and the layers of add, with config as the configuration
// except for layers and history.
func Build(base v1.Image, config v1.ConfigFile, add ...Addition) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var all []mutate.Addendum
	if base != nil {
		old, err := baseLayers(base)
		if err != nil {
			return nil, err
		}
		all = old
	}
	for _, a := range add {
		all = append(all, mutate.Addendum{Layer: a.Layer,
			History: v1.History{Created: config.Created, CreatedBy: a.By}})
	}
	img, err := mutate.Append(img, all...)
	if err != nil {
		return nil, err
	}
	made, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.RootFS, config.History = made.RootFS, made.History
	return mutate.ConfigFile(img, &config)
}

// baseLayers returns the layers of an image with OCI's media types, and their history.
func baseLayers(base v1.Image) ([]mutate.Addendum, error) {
	layers, err := base.Layers()
	if err != nil {
		return nil, err
	}
	config, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	var history []v1.History
	for _, h := range config.History {
		if !h.EmptyLayer {
			history = append(history, h)
		}
	}
	all := make([]mutate.Addendum, 0, len(layers))
	for i, l := range layers {
		a := mutate.Addendum{Layer: ociLayer{l}}
		if len(history) == len(layers) {
			a.History = history[i]
		}
		all = append(all, a)
	}
	return all, nil
}

// ociLayer is a layer of Docker's media type, which has the same bytes, with OCI's.
type ociLayer struct{ v1.Layer }

func (l ociLayer) MediaType() (types.MediaType, error) {
	t, err := l.Layer.MediaType()
	switch t {
	case types.DockerLayer:
		t = types.OCILayer
	case types.DockerUncompressedLayer:
		t = types.OCIUncompressedLayer
	}
	return t, err
}

// blobPath returns the path of a blob in a layout.
func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// layoutTree returns the files of an image layout. The name, such as localhost/app:v1, is written into the index.
func layoutTree(img v1.Image, name string) (Tree, error) {
	t := Tree{}
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	id, err := img.ConfigName()
	if err != nil {
		return nil, err
	}
	about, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		h, err := l.Digest()
		if err != nil {
			return nil, err
		}
		size, err := l.Size()
		if err != nil {
			return nil, err
		}
		t[blobPath(h)] = Entry{Open: l.Compressed, Size: size, Mode: 0o644}
	}
	t.Text(blobPath(digest), string(manifest))
	t.Text(blobPath(id), string(config))
	t.Text("oci-layout", `{"imageLayoutVersion":"1.0.0"}`)
	d := v1.Descriptor{MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: digest}
	if about.OS != "" {
		d.Platform = &v1.Platform{Architecture: about.Architecture, OS: about.OS, Variant: about.Variant}
	}
	if name != "" {
		d.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag(name),
			"io.containerd.image.name": name}
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{d}})
	t.Text("index.json", string(index))
	return t, err
}

// tag returns the tag of a name, "latest" for none.
func tag(name string) string {
	_, t, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	return cmp.Or(t, "latest")
}

// WriteArchive writes an image as an archive that is an OCI layout and an input of `docker load` and `podman load`,
// under the names, for example localhost/app:v1.
func WriteArchive(out io.Writer, img v1.Image, at time.Time, names ...string) error {
	t, err := layoutTree(img, append(names, "")[0])
	if err != nil {
		return err
	}
	id, err := img.ConfigName()
	if err != nil {
		return err
	}
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	paths := make([]string, 0, len(m.Layers))
	for _, l := range m.Layers {
		paths = append(paths, blobPath(l.Digest))
	}
	text, err := json.Marshal([]any{map[string]any{"Config": blobPath(id), "RepoTags": names, "Layers": paths}})
	if err != nil {
		return err
	}
	t.Text("manifest.json", string(text))
	return t.Write(out, at)
}

// WriteLayout writes an image as the folder of an OCI layout, under a name. A folder with another layout is taken
// over: its blobs stay, and its index names only this image.
func WriteLayout(dir string, img v1.Image, name string) error {
	t, err := layoutTree(img, name)
	if err != nil {
		return err
	}
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, "oci-layout")); len(list) > 0 && err != nil {
		return fmt.Errorf("%s is not empty and no OCI layout: name an empty folder, or one that does not exist", dir)
	}
	// The index is written last: the index names complete blobs only.
	index := t["index.json"]
	delete(t, "index.json")
	if err := t.folder(dir, func(name string) bool { return strings.HasPrefix(name, "blobs/") }); err != nil {
		return err
	}
	return Tree{"index.json": index}.folder(dir, func(string) bool { return false })
}

// Health returns the health check of an image with the program in /usr/local/bin.
func Health() *v1.HealthConfig {
	return &v1.HealthConfig{Test: []string{"CMD", "/usr/local/bin/millrace", "health"}, Interval: 10 * time.Second,
		Timeout: 6 * time.Second, StartPeriod: time.Minute, Retries: 3}
}
