package image

import (
	"bytes"
	"io"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Blob is a file of an image layout.
type Blob struct {
	Digest string // sha256:...
	Size   int64  // in bytes
	Open   func() (io.ReadCloser, error)
}

// Contents are the files of an image, and what a host needs to know to run the image.
type Contents struct {
	Manifest, Config Blob
	Layers           []Blob // from the lowest up, compressed
	Architecture     string // in Go's words
	Arguments        []string
	Environment      []string
	Revision         string // of the label, "" = none
	Labels           map[string]string
}

// Blobs returns all files.
func (c *Contents) Blobs() []Blob { return append(slices.Clone(c.Layers), c.Config, c.Manifest) }

// Contents returns the files of the image. They can be read until the image is closed.
func (img *Image) Contents() (*Contents, error) {
	manifest, err := img.image.RawManifest()
	if err != nil {
		return nil, err
	}
	raw, err := img.image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	m, err := img.image.Manifest()
	if err != nil {
		return nil, err
	}
	config, err := img.image.ConfigFile()
	if err != nil {
		return nil, err
	}
	layers, err := img.image.Layers()
	if err != nil {
		return nil, err
	}
	c := &Contents{Manifest: blobOf(img.Digest, manifest), Config: blobOf(m.Config.Digest.String(), raw),
		Architecture: config.Architecture, Arguments: config.Config.Cmd, Environment: config.Config.Env,
		Revision: config.Config.Labels["org.opencontainers.image.revision"], Labels: config.Config.Labels}
	for _, l := range layers {
		b, err := layerBlob(l)
		if err != nil {
			return nil, err
		}
		c.Layers = append(c.Layers, b)
	}
	return c, nil
}

func blobOf(digest string, data []byte) Blob {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	return Blob{digest, int64(len(data)), open}
}

func layerBlob(l v1.Layer) (Blob, error) {
	digest, err := l.Digest()
	if err != nil {
		return Blob{}, err
	}
	size, err := l.Size()
	return Blob{digest.String(), size, l.Compressed}, err
}
