package modelsource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"millrace/internal/modelurl"
)

// Annotations of layers, as ORAS writes them.
const (
	titleAnnotation  = "org.opencontainers.image.title"
	unpackAnnotation = "io.deis.oras.content.unpack"
)

// maxIndex is the number of indexes inside each other.
const maxIndex = 4

// ociOrigin fetches the files of an artifact: a file for each layer with a title, and the files of layers that are tar
// archives.
type ociOrigin struct{ c *Cache }

var _ origin = ociOrigin{}

func (c *Cache) openOCI() (origin, error) { return ociOrigin{c}, nil }

func (ociOrigin) parse(u modelurl.URL) (name.Reference, error) {
	ref, err := name.ParseReference(u.Base)
	if err != nil {
		return nil, fmt.Errorf("is no reference of an image: want oci://REGISTRY/NAME:TAG: %w", err)
	}
	return ref, nil
}

func (o ociOrigin) check(u modelurl.URL) error {
	_, err := o.parse(u)
	return err
}

func (ociOrigin) id(u modelurl.URL) string { return u.Base }

// open returns the reference of an address, and the options of requests. The caller calls end after the requests.
func (o ociOrigin) open(ctx context.Context, u modelurl.URL) (ref name.Reference, options []remote.Option, end func(),
	err error) {
	if ref, err = o.parse(u); err != nil {
		return nil, nil, nil, err
	}
	registry := ref.Context().Registry
	at := registry.RegistryStr()
	host, _, hasPort := strings.Cut(at, ":")
	hostPort := at
	if !hasPort {
		hostPort = at + map[string]string{"https": ":443", "http": ":80"}[registry.Scheme()]
	}
	t := o.c.transport(o.c.rule(hostPort))
	options = []remote.Option{remote.WithContext(ctx), remote.WithUserAgent("millrace"), remote.WithJobs(1),
		remote.WithTransport(t),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})}
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	switch k, ok := o.c.token(hostPort, host); {
	case ok && k.User == "":
		auth = remote.WithAuth(&authn.Bearer{Token: k.Secret})
	case ok:
		auth = remote.WithAuth(&authn.Basic{Username: k.User, Password: k.Secret})
	}
	return ref, append(options, auth), t.CloseIdleConnections, nil
}

// revision returns the digest of the manifest.
func (o ociOrigin) revision(ctx context.Context, u modelurl.URL) (string, error) {
	ref, options, end, err := o.open(ctx, u)
	if err != nil {
		return "", err
	}
	defer end()
	if d, ok := ref.(name.Digest); ok {
		return d.DigestStr(), nil
	}
	d, err := remote.Head(ref, options...)
	if err != nil { // some registries refuse HEAD
		got, getErr := remote.Get(ref, options...)
		if getErr != nil {
			return "", o.failed(ctx, ref, getErr)
		}
		return got.Digest.String(), nil
	}
	return d.Digest.String(), nil
}

func (o ociOrigin) fetch(ctx context.Context, u modelurl.URL, revision string, w *work) (string, error) {
	ref, options, end, err := o.open(ctx, u)
	if err != nil {
		return "", err
	}
	defer end()
	img, err := o.image(ref.Context().Digest(revision), options, 0)
	if err != nil {
		return "", o.failed(ctx, ref, err)
	}
	m, err := img.Manifest()
	if err != nil {
		return "", o.failed(ctx, ref, err)
	}
	total := int64(0)
	for _, l := range m.Layers {
		if total += max(l.Size, 0); total > w.max {
			return "", tooLarge(w.max)
		}
	}
	root, err := makeRoot(w.tree)
	if err != nil {
		return "", err
	}
	defer root.Close()
	done, unpacked := int64(0), int64(0)
	for _, l := range m.Layers {
		part := filepath.Join(w.dir, l.Digest.Hex)
		if err := o.receive(ctx, img, l, part, done, total, w); err != nil {
			return "", o.failed(ctx, ref, err)
		}
		done += l.Size
		n, err := addLayer(ctx, l, part, root, w.max-unpacked)
		if err != nil {
			return "", fmt.Errorf("the layer %.19s: %w", l.Digest, err)
		}
		unpacked += n
	}
	for _, l := range m.Layers {
		if err := os.RemoveAll(filepath.Join(w.dir, l.Digest.Hex)); err != nil {
			return "", err
		}
	}
	return revision, nil
}

// image returns the image of a digest, from an index the image for this machine, or the only one.
func (o ociOrigin) image(ref name.Digest, options []remote.Option, depth int) (v1.Image, error) {
	d, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	if !d.MediaType.IsIndex() {
		return d.Image()
	}
	index, err := d.ImageIndex()
	if err != nil {
		return nil, err
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var fits []v1.Descriptor
	for _, d := range m.Manifests {
		if len(m.Manifests) == 1 || d.Platform != nil && d.Platform.Satisfies(v1.Platform{OS: "linux",
			Architecture: runtime.GOARCH}) {
			fits = append(fits, d)
		}
	}
	if len(fits) == 0 || depth >= maxIndex {
		return nil, errors.New("the index has no image for this machine")
	}
	return o.image(ref.Context().Digest(fits[0].Digest.String()), options, depth+1)
}

// receive receives a layer into a file, unless an earlier call has received it. The digest is compared.
func (o ociOrigin) receive(ctx context.Context, img v1.Image, l v1.Descriptor, part string, done, total int64,
	w *work) error {
	if st, err := os.Stat(part); err == nil && st.Size() == l.Size {
		if sum, err := sumOf(ctx, part, false); err == nil && sum == l.Digest.Hex {
			return nil
		}
	}
	layer, err := img.LayerByDigest(l.Digest)
	if err != nil {
		return err
	}
	body, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer body.Close()
	stop := context.AfterFunc(ctx, func() { _ = body.Close() })
	defer stop()
	f, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = copyTo(ctx, f, io.LimitReader(body, l.Size+1), done, total, w)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if sum, err := sumOf(ctx, part, false); err != nil || sum != l.Digest.Hex {
		return errors.Join(fmt.Errorf("the layer %s arrived with the SHA-256 %s", l.Digest, sum), err, os.Remove(part))
	}
	return nil
}

// addLayer adds the file or files of a layer to a folder, and returns their bytes.
func addLayer(ctx context.Context, l v1.Descriptor, part string, root *os.Root, limit int64) (int64, error) {
	title := l.Annotations[titleAnnotation]
	media := string(l.MediaType)
	isTar := strings.Contains(media, "tar") && !strings.Contains(media, "zstd")
	f, err := os.Open(part)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	switch {
	case l.Annotations[unpackAnnotation] == "true", title == "" && isTar:
		return untar(ctx, f, root, limit)
	case title == "":
		return 0, fmt.Errorf("has the media type %.100q and no title: want layers with the annotation %s, as ORAS "+
			"writes them, or tar archives", media, titleAnnotation)
	case !fs.ValidPath(title) || title == "." || strings.Contains(title, `\`):
		return 0, fmt.Errorf("has the title %.200q, which leads out of the artifact", title)
	case l.Size > limit:
		return 0, tooLarge(limit)
	}
	if err := root.MkdirAll(path.Dir(title), 0o700); err != nil {
		return 0, err
	}
	to, err := root.OpenFile(title, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(to, f)
	return n, errors.Join(err, to.Close())
}

// failed returns the error of a registry, which says what to do.
func (o ociOrigin) failed(ctx context.Context, ref name.Reference, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	at := ref.Context().RegistryStr()
	var answer *transport.Error
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of %s is of an unknown authority: name the file with the authority in "+
			"model_sources.ca", at)
	case errors.As(err, &record):
		return fmt.Errorf("%s does not offer TLS", at)
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized ||
		answer.StatusCode == http.StatusForbidden):
		return fmt.Errorf("%s does not let this user read %s: name a user and the variable with the password in "+
			"model_sources.tokens, or run docker login or podman login", at, ref.Context().RepositoryStr())
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s has no %s", at, ref)
	case errors.As(err, &answer) && isBusy(answer.StatusCode):
		return unreached{fmt.Errorf("%s answers %d", at, answer.StatusCode)}
	case errors.As(err, &answer):
		return fmt.Errorf("%s answers %d", at, answer.StatusCode)
	}
	return fmt.Errorf("%s: %w", at, cause(ctx, err))
}
