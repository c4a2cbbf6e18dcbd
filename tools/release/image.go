package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// imageUser is the server's user in an image, by number, so that a policy of Kubernetes can check that the user is
// not root.
const imageUser = 65532

// tree is the contents of an image layer: entries by path without a leading slash.
type tree map[string]entry

type entry struct {
	from string // a file of this machine; "" = content, link or folder
	text []byte
	link string
	mode fs.FileMode // of a folder with fs.ModeDir
	uid  int
}

func (t tree) folder(name string, mode fs.FileMode, uid int) {
	t[name] = entry{mode: fs.ModeDir | mode, uid: uid}
}

func (t tree) text(name, text string) { t[name] = entry{text: []byte(text), mode: 0o644} }

// file adds a file of this machine, or a link if the file is a link.
func (t tree) file(name, from string) error {
	st, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(from)
		t[name] = entry{link: to, mode: 0o777}
		return err
	}
	t[name] = entry{from: from, mode: 0o644 | st.Mode()&0o111}
	return nil
}

// write writes the tree as a tar archive with the time at for all entries; write adds the folders above each entry.
func (t tree) write(out io.Writer, at time.Time) error {
	for _, name := range slices.Collect(maps.Keys(t)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, has := t[dir]; !has {
				t.folder(dir, 0o755, 0)
			}
		}
	}
	w := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		e := t[name]
		h := &tar.Header{Name: name, ModTime: at, Uid: e.uid, Gid: e.uid, Mode: int64(e.mode.Perm()),
			Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		content := e.text
		switch {
		case e.mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
			if e.mode&fs.ModeSticky != 0 {
				h.Mode |= 0o1000
			}
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case e.from != "":
			var err error
			if content, err = os.ReadFile(e.from); err != nil {
				return err
			}
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}

// packages is a folder with a folder for each unpacked package of Debian, including the package description as the
// file "control".
type packages struct {
	dir       string
	libraries map[string]string // by file name: the path with the package in front
	used      map[string]bool
}

func openPackages(dir string) (*packages, error) {
	p := &packages{dir: dir, libraries: map[string]string{}, used: map[string]bool{}}
	return p, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(d.Name(), ".so") {
			return err
		}
		name, err = filepath.Rel(dir, name)
		_, inside, _ := strings.Cut(name, "/")
		if strings.HasPrefix(inside, "lib") || strings.HasPrefix(inside, "usr/lib/") {
			// The shortest path is the loader's, not a plug-in's.
			if old, has := p.libraries[d.Name()]; !has || len(name) < len(old) {
				p.libraries[d.Name()] = name
			}
		}
		return err
	})
}

// add adds a file of a package, the target of a link, and the needed libraries.
func (p *packages) add(t tree, name string) error {
	pkg, inside, _ := strings.Cut(name, "/")
	if _, has := t[inside]; has {
		return nil
	}
	p.used[pkg] = true
	from := filepath.Join(p.dir, name)
	if err := t.file(inside, from); err != nil {
		return err
	}
	if to := t[inside].link; to != "" {
		if !path.IsAbs(to) {
			to = path.Join("/", path.Dir(inside), to)
		}
		if _, err := os.Lstat(filepath.Join(p.dir, pkg, to)); err != nil {
			return fmt.Errorf("%s leads to %s, which its package has not", name, to)
		}
		return p.add(t, pkg+to)
	}
	return p.needed(t, from)
}

// needed adds the libraries needed by a program or library.
func (p *packages) needed(t tree, file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return nil // not a program
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	if s := f.Section(".interp"); s != nil {
		loader, err := s.Data()
		if err != nil {
			return err
		}
		names = append(names, path.Base(string(bytes.TrimRight(loader, "\x00"))))
	}
	for _, name := range names {
		at, has := p.libraries[name]
		if !has {
			return fmt.Errorf("%s needs %s, which no package has", file, name)
		}
		if err := p.add(t, at); err != nil {
			return err
		}
		// Alternatives, for example blas/libblas.so.3, are linked by package scripts, which do not run here.
		_, inside, _ := strings.Cut(at, "/")
		if parts := strings.Split(inside, "/"); parts[0] == "usr" && len(parts) == 5 {
			t[path.Join(append(parts[:3:3], name)...)] = entry{link: parts[3] + "/" + name, mode: 0o777}
		}
	}
	return nil
}

// describe adds the descriptions and licences of the used packages.
func (p *packages) describe(t tree) error {
	for pkg := range p.used {
		if err := t.file("var/lib/dpkg/status.d/"+pkg, filepath.Join(p.dir, pkg, "control")); err != nil {
			return err
		}
		doc := "usr/share/doc/" + pkg
		// A package may use the folder of a package it depends on.
		if to, err := os.Readlink(filepath.Join(p.dir, pkg, doc)); err == nil {
			t[doc] = entry{link: to, mode: 0o777}
			if pkg = path.Base(to); t["usr/share/doc/"+pkg+"/copyright"].mode != 0 {
				continue
			}
			doc = "usr/share/doc/" + pkg
		}
		if err := t.file(doc+"/copyright", filepath.Join(p.dir, pkg, doc, "copyright")); err != nil {
			return err
		}
	}
	return nil
}

// systemTree returns the layer with ffmpeg and the Debian libraries needed by ffmpeg and the program.
func systemTree(debs, release string) (tree, error) {
	p, err := openPackages(debs)
	if err != nil {
		return nil, err
	}
	t := tree{}
	for _, name := range []string{"ffmpeg/usr/bin/ffmpeg", "ffmpeg/usr/bin/ffprobe", "base-files/etc/os-release",
		"base-files/etc/debian_version"} {
		if err := p.add(t, name); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"millrace", "libonnxruntime.so.1"} {
		if err := p.needed(t, filepath.Join(release, name)); err != nil {
			return nil, err
		}
	}
	roots, err := filepath.Glob(filepath.Join(debs, "ca-certificates/usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil || len(roots) == 0 {
		return nil, errors.Join(errors.New("there are no certificates in the package ca-certificates"), err)
	}
	p.used["ca-certificates"] = true
	var bundle []byte
	for _, name := range roots {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		bundle = append(append(bundle, bytes.TrimSpace(text)...), '\n')
	}
	t.text("etc/ssl/certs/ca-certificates.crt", string(bundle))
	t.text("etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nmillrace:x:%[1]d:%[1]d:millrace:/var/lib/"+
		"millrace:/sbin/nologin\n", imageUser))
	t.text("etc/group", fmt.Sprintf("root:x:0:\nmillrace:x:%d:\n", imageUser))
	t.text("etc/nsswitch.conf", "hosts: files dns\n")
	for _, name := range []string{"dev", "proc", "sys", "run", "etc/millrace"} {
		t.folder(name, 0o755, 0)
	}
	t.folder("tmp", fs.ModeSticky|0o777, 0)
	t.folder("var/lib/millrace", 0o700, imageUser)
	return t, p.describe(t)
}

// programTree returns the layer with the program, from the folder of its archive.
func programTree(release string) (tree, error) {
	t := tree{}
	for _, f := range []struct{ name, at string }{
		{"millrace", "usr/local/bin"}, {"libonnxruntime.so.1", "usr/local/lib/millrace"},
		{"libstdc++.so.6", "usr/local/lib/millrace"}, {"libgcc_s.so.1", "usr/local/lib/millrace"},
		{"LICENSE", "usr/share/doc/millrace"}, {"LICENSES.txt", "usr/share/doc/millrace"},
		{"CHANGELOG.md", "usr/share/doc/millrace"}, {"sbom.cdx.json", "usr/share/doc/millrace"},
	} {
		if err := t.file(f.at+"/"+f.name, filepath.Join(release, f.name)); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// blob is a part of an image.
type blob struct {
	MediaType string `json:"mediaType"`
	Size      int    `json:"size"`
	Digest    string `json:"digest"`

	data []byte
}

func newBlob(mediaType string, data []byte) blob {
	return blob{"application/vnd.oci.image." + mediaType, len(data), digest(data), data}
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// at returns the path of a blob in a layout.
func (b blob) at() string { return "blobs/" + strings.Replace(b.Digest, ":", "/", 1) }

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and texts only
	}
	return text
}

// writeImage writes a container image as an archive that is both an OCI layout and an input of `docker load` and
// `podman load`. debs are unpacked packages of Debian, release is the folder of an archive of the release.
func writeImage(out io.Writer, arch, version, debs, release string, at time.Time) error {
	system, err := systemTree(debs, release)
	if err != nil {
		return err
	}
	program, err := programTree(release)
	if err != nil {
		return err
	}
	var layers []blob
	var ids []string // digests of the uncompressed layers
	for _, t := range []tree{system, program} {
		var plain, packed bytes.Buffer
		if err := t.write(&plain, at); err != nil {
			return err
		}
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(plain.Bytes()); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		ids = append(ids, digest(plain.Bytes()))
		layers = append(layers, newBlob("layer.v1.tar+gzip", packed.Bytes()))
	}
	created := at.UTC().Format(time.RFC3339)
	labels := map[string]string{
		"org.opencontainers.image.title":       "Millrace",
		"org.opencontainers.image.description": "Millrace inference server, with ffmpeg and ONNX Runtime",
		"org.opencontainers.image.version":     version, "org.opencontainers.image.created": created,
		// Millrace, ONNX Runtime, Debian's ffmpeg; all are in /usr/share/doc
		"org.opencontainers.image.licenses":      "Apache-2.0 AND MIT AND GPL-2.0-or-later",
		"org.opencontainers.image.base.name":     "debian:bookworm",
		"org.opencontainers.image.ref.name":      version,
		"org.opencontainers.image.documentation": "docs/containers.md",
	}
	user := fmt.Sprintf("%[1]d:%[1]d", imageUser)
	config := newBlob("config.v1+json", asJSON(map[string]any{
		"architecture": arch, "os": "linux", "created": created,
		"config": map[string]any{
			"User": user, "WorkingDir": "/var/lib/millrace", "StopSignal": "SIGTERM", "Labels": labels,
			"Env":        []string{"PATH=/usr/local/bin:/usr/bin", "HOME=/var/lib/millrace"},
			"Entrypoint": []string{"/usr/local/bin/millrace"}, "Cmd": []string{"serve", "--http", "0.0.0.0:8000",
				"--grpc", "0.0.0.0:8001"},
			"ExposedPorts": map[string]any{"8000/tcp": struct{}{}, "8001/tcp": struct{}{}},
			"Volumes":      map[string]any{"/var/lib/millrace": struct{}{}},
			"Healthcheck": map[string]any{"Test": []string{"CMD", "/usr/local/bin/millrace", "health"},
				"Interval": 10 * time.Second, "Timeout": 6 * time.Second, "StartPeriod": time.Minute, "Retries": 3},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
		"history": []map[string]any{{"created": created, "created_by": "ffmpeg and libraries of Debian"},
			{"created": created, "created_by": "millrace " + version}},
	}))
	manifest := newBlob("manifest.v1+json", asJSON(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers}))
	name := "localhost/millrace:" + version
	t := tree{}
	paths := []string{}
	for _, b := range append(slices.Clone(layers), config, manifest) {
		t[b.at()] = entry{text: b.data, mode: 0o644}
	}
	for _, l := range layers {
		paths = append(paths, l.at())
	}
	t.text("oci-layout", `{"imageLayoutVersion":"1.0.0"}`)
	t.text("index.json", string(asJSON(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{map[string]any{
			"mediaType": manifest.MediaType, "size": manifest.Size, "digest": manifest.Digest,
			"platform": map[string]string{"architecture": arch, "os": "linux"},
			"annotations": map[string]string{"org.opencontainers.image.ref.name": version,
				"io.containerd.image.name": name},
		}}})))
	t.text("manifest.json", string(asJSON([]any{map[string]any{"Config": config.at(),
		"RepoTags": []string{name, "localhost/millrace:latest"}, "Layers": paths}})))
	return t.write(out, at)
}

// image is the command.
func image(out io.Writer, arch, version, debs, release, seconds string) error {
	var epoch int64
	if _, err := fmt.Sscan(cmp.Or(seconds, "0"), &epoch); err != nil {
		return fmt.Errorf("%q is not a time in seconds", seconds)
	}
	return writeImage(out, arch, version, debs, release, time.Unix(epoch, 0))
}
