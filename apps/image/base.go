package image

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"millrace/internal/ctxio"
	"millrace/internal/ociimage"
	"millrace/internal/scratch"
)

// Limits of base images: their files, the bytes of these files, the bytes of the layers that a registry sends, and the
// largest C library that is read.
const (
	maxFiles    = 1 << 20
	maxBytes    = 64 << 30
	maxDownload = 16 << 30
	maxLibrary  = 32 << 20
)

// Base is an image that an application's image is built upon.
type Base struct {
	image        v1.Image
	config       *v1.ConfigFile
	name, digest string
	dir          *scratch.Folder   // of an unpacked archive; nil = none
	files        map[string]string // path without a leading slash -> target of a link, "" for others
	libraries    string            // folder of the C library, "" for none
	glibc        map[string]bool   // versions of the C library
}

// OpenBase opens a base image: the folder of an OCI layout, an archive of OCI or docker, or a reference of a
// registry, such as docker.io/library/python:3.11-slim. From several images, OpenBase takes the image for this
// machine's architecture. The image is read once to know its files. The caller closes the base after the image built
// upon it.
func OpenBase(ctx context.Context, from string, o RegistryOptions) (*Base, error) {
	b := &Base{name: from}
	var err error
	if _, statErr := os.Stat(from); statErr == nil {
		b.name = filepath.Base(from) // the same image in another folder gives the same result
		if b.image, b.dir, err = openLocal(from); err == nil {
			if err = checkBlobs(ctx, b.image); err != nil {
				err = errors.Join(fmt.Errorf("%s: %w", from, err), b.Close())
			}
		}
	} else {
		b.image, b.dir, err = pull(ctx, from, o)
	}
	if err != nil {
		return nil, fmt.Errorf("base image: %w", err)
	}
	if err := b.read(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("base image %s: %w", from, err), b.Close())
	}
	return b, nil
}

// Close removes the files of an unpacked base image.
func (b *Base) Close() error {
	return removeFolder(b.dir)
}

// newFolder makes a folder for the files of an image, and removes the folders of processes that were killed.
func newFolder() (*scratch.Folder, error) {
	_, _ = scratch.Sweep(context.Background()) // a folder that cannot be removed stays
	return scratch.Make(scratch.Image)
}

// removeFolder removes a folder of newFolder; nil = none.
func removeFolder(f *scratch.Folder) error {
	if f == nil {
		return nil
	}
	return f.Remove()
}

// pull copies an image of a registry into a new folder.
func pull(ctx context.Context, from string, o RegistryOptions) (v1.Image, *scratch.Folder, error) {
	ref, options, err := o.remote(ctx, from, false)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is neither a file nor a folder, and as a reference: %w", from, err)
	}
	img, err := remote.Image(ref, append(options, remote.WithPlatform(platform()))...)
	if err != nil {
		return nil, nil, o.explain(err, ref)
	}
	if err := checkDownload(img); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", from, err)
	}
	dir, err := newFolder()
	if err != nil {
		return nil, nil, err
	}
	to, err := layout.Write(dir.Path, empty.Index)
	if err == nil {
		err = to.AppendImage(img)
	}
	if err != nil {
		return nil, nil, errors.Join(o.explain(err, ref), dir.Remove())
	}
	if img, _, err = openLocal(dir.Path); err != nil {
		return nil, nil, errors.Join(err, dir.Remove())
	}
	return img, dir, nil
}

// checkDownload refuses an image whose manifest names more than maxDownload bytes. A layer that has another size than
// the manifest names is refused while the layer is read.
func checkDownload(img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	bytes := int64(0)
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if d.Size < 0 {
			return fmt.Errorf("the manifest names %d bytes for %s: build the image again", d.Size, d.Digest)
		}
		if bytes += d.Size; bytes > maxDownload {
			return fmt.Errorf("its layers have more than %d GiB: name a smaller image", maxDownload>>30)
		}
	}
	return nil
}

// openLocal opens an image of this machine. dir is a folder to remove at the end, or nil.
func openLocal(name string) (img v1.Image, dir *scratch.Folder, err error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if !st.IsDir() {
		// An archive with both forms is read as OCI's, with the digest of the image's own manifest.
		if dir, err = newFolder(); err != nil {
			return nil, nil, err
		}
		err := unpack(name, dir.Path)
		if err == nil && !exists(filepath.Join(dir.Path, "oci-layout")) {
			if img, err = tarball.ImageFromPath(name, nil); err == nil {
				return img, nil, dir.Remove()
			}
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s is no image (%w): name an archive of podman save, docker save "+
				"or millrace, or the folder of an OCI layout", name, err), dir.Remove())
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(name, "."))
	if dir != nil {
		index, err = layout.ImageIndexFromPath(dir.Path)
	}
	if err == nil {
		img, err = choose(index, 0)
	}
	if err != nil {
		err = fmt.Errorf("%s is no OCI layout with an image for %s: %w", name, platform(), err)
		if dir != nil {
			err = errors.Join(err, dir.Remove())
		}
		return nil, nil, err
	}
	return img, dir, nil
}

// checkBlobs compares the layers and the configuration of an image with their digests.
func checkBlobs(ctx context.Context, img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	if err := checkBlob(m.Config.Digest, bytes.NewReader(config)); err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		blob, err := l.Compressed()
		if err != nil {
			return err
		}
		if err := errors.Join(checkBlob(digest, ctxio.Reader(ctx, blob)), blob.Close()); err != nil {
			return err
		}
	}
	return nil
}

func checkBlob(want v1.Hash, blob io.Reader) error {
	got, _, err := v1.SHA256(blob)
	if err == nil && got != want {
		err = fmt.Errorf("the blob %s is damaged: its content has the digest %s. Copy the image again", want, got)
	}
	return err
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// choose returns the image of an index for this machine.
func choose(index v1.ImageIndex, depth int) (v1.Image, error) {
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if d.Platform != nil && !d.Platform.Satisfies(platform()) {
			continue
		}
		switch {
		case d.MediaType.IsImage():
			return index.Image(d.Digest)
		case d.MediaType.IsIndex() && depth < 4:
			next, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			if img, err := choose(next, depth+1); err == nil {
				return img, nil
			}
		}
	}
	return nil, errors.New("the index names none")
}

// layoutFile are the names of files in an OCI layout.
var layoutFile = regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)

// unpack unpacks the OCI layout in an archive. An archive of docker only has no such files.
func unpack(name, dir string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o700); err != nil {
		return err
	}
	files, bytes := 0, int64(0)
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg || !layoutFile.MatchString(at) {
			continue
		}
		if files, bytes = files+1, bytes+h.Size; files > maxFiles || bytes > maxBytes {
			return fmt.Errorf("it has more than %d files or %d bytes", maxFiles, int64(maxBytes))
		}
		to, err := os.OpenFile(filepath.Join(dir, at), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, r)
		if err = errors.Join(err, to.Close()); err != nil {
			return err
		}
	}
}

// read reads the names of the files, and the versions of the C library.
func (b *Base) read(ctx context.Context) error {
	digest, err := b.image.Digest()
	if err != nil {
		return err
	}
	b.digest = digest.String()
	if b.config, err = b.image.ConfigFile(); err != nil {
		return err
	}
	b.files, b.glibc = map[string]string{}, map[string]bool{}
	all := mutate.Extract(b.image)
	defer all.Close()
	defer context.AfterFunc(ctx, func() { _ = all.Close() })() // files that no name shows may take long
	bytes := int64(0)
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if bytes += h.Size; len(b.files) >= maxFiles || bytes > maxBytes {
			return fmt.Errorf("it has more than %d files or %d bytes", maxFiles, int64(maxBytes))
		}
		at := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		switch h.Typeflag {
		case tar.TypeSymlink:
			b.files[at] = h.Linkname
		default:
			b.files[at] = ""
		}
		base := path.Base(at)
		if h.Typeflag == tar.TypeReg && h.Size <= maxLibrary &&
			(base == "libc.so.6" || strings.HasPrefix(base, "libc-2.")) {
			if err := b.readLibrary(r, path.Dir(at)); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
		}
	}
	if dir, found := b.real(b.libraries); found {
		b.libraries = dir
	}
	return nil
}

// readLibrary reads the versions of a C library in a folder.
func (b *Base) readLibrary(r io.Reader, dir string) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if machines[f.Machine] != b.config.Architecture {
		return nil // for programs of another architecture
	}
	versions, err := f.DynamicVersions()
	if err != nil {
		return err
	}
	b.libraries = dir
	for _, v := range versions {
		b.glibc[v.Name] = true
	}
	return nil
}

// real returns a path of the image without links, and whether it exists.
func (b *Base) real(name string) (string, bool) {
	done, left := "", strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	for steps := 0; len(left) > 0; steps++ {
		if steps > 255 {
			return "", false
		}
		next := path.Join(done, left[0])
		left = left[1:]
		to, is := b.files[next]
		switch {
		case !is || to == "":
			done = next
		case path.IsAbs(to):
			done, left = "", append(strings.Split(strings.Trim(path.Clean(to), "/"), "/"), left...)
		default:
			joined := path.Clean("/" + path.Join(done, to))
			done, left = "", append(strings.Split(strings.Trim(joined, "/"), "/"), left...)
		}
	}
	_, is := b.files[done]
	return done, is
}

// has reports whether the base image has a library in the folders that its loader searches.
func (b *Base) has(name string) bool {
	if b == nil {
		return false
	}
	for _, dir := range []string{b.libraries, "lib", "usr/lib", "lib64", "usr/lib64",
		strings.TrimPrefix(b.libraries, "usr/"), "usr/local/lib"} {
		if _, is := b.real(path.Join(dir, name)); is && dir != "" {
			return true
		}
	}
	return false
}

// runs returns an error if the program cannot run in the base image.
func (b *Base) runs(program, machine string) error {
	if b.config.Architecture != machine {
		return fmt.Errorf("the base image is for %s, and the program for %s: take a base image for linux/%s",
			b.config.Architecture, machine, machine)
	}
	n, _, err := ociimage.ReadNeeds(program)
	if err != nil || n.Loader == "" {
		return err
	}
	if _, is := b.real(n.Loader); !is || b.libraries == "" {
		return fmt.Errorf("the base image has no %s, with which the program %s starts: take a base image with glibc, "+
			"such as Debian's, not Alpine's", n.Loader, filepath.Base(program))
	}
	if i := slices.IndexFunc(n.GLIBC, func(v string) bool { return !b.glibc[v] }); i >= 0 {
		return fmt.Errorf("the program %s needs %s, and the C library of the base image is older: take a newer base "+
			"image, or the program of a release", filepath.Base(program), n.GLIBC[i])
	}
	return nil
}

// python returns the path of the interpreter of a version.
func (b *Base) python(version string) (string, error) {
	found, other := "", ""
	for name := range b.files {
		dir, base := path.Split(name)
		if !strings.HasSuffix(dir, "bin/") || !strings.HasPrefix(base, "python3.") || strings.Contains(base, "-") {
			continue
		}
		if _, is := b.real(name); !is {
			continue
		}
		if base != "python"+version {
			other = max(other, "/"+name)
		} else if found == "" || len(name) < len(found) || len(name) == len(found) && name < found {
			found = name
		}
	}
	switch {
	case found != "":
		return "/" + found, nil
	case other != "":
		return "", fmt.Errorf("the environment is for Python %s, and the base image has %s: take a base image with "+
			"Python %s, or make the environment with the base image's Python", version, other, version)
	}
	return "", fmt.Errorf("the base image has no Python %s: take a base image with Python, or none", version)
}

// check refuses a layer with a folder where the base image has a link or a file, which the layer would hide.
func (b *Base) check(t ociimage.Tree) error {
	if b == nil {
		return nil
	}
	for name, e := range t {
		for at := name; at != "."; at = path.Dir(at) {
			if to := b.files[at]; to != "" && (at != name || e.Mode&fs.ModeDir != 0) {
				return fmt.Errorf("the base image has a link %s where the image has a folder: take another base "+
					"image", at)
			}
		}
	}
	return nil
}

// part returns the base image as a part for the bill of materials.
func (b *Base) part() part {
	return part{typ: "container", name: b.name, version: b.digest,
		purl: "pkg:oci/" + path.Base(b.name) + "@" + b.digest}
}
