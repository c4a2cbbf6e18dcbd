package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"millrace/internal/ociimage"
)

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
func (p *packages) add(t ociimage.Tree, name string) error {
	pkg, inside, _ := strings.Cut(name, "/")
	if _, has := t[inside]; has {
		return nil
	}
	p.used[pkg] = true
	from := filepath.Join(p.dir, name)
	if err := t.File(inside, from); err != nil {
		return err
	}
	if to := t[inside].Link; to != "" {
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
func (p *packages) needed(t ociimage.Tree, file string) error {
	n, _, err := ociimage.ReadNeeds(file)
	if err != nil {
		return err
	}
	names := n.Names
	if n.Loader != "" {
		names = append(names, path.Base(n.Loader))
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
			t[path.Join(append(parts[:3:3], name)...)] = ociimage.Entry{Link: parts[3] + "/" + name, Mode: 0o777}
		}
	}
	return nil
}

// describe adds the descriptions and licences of the used packages.
func (p *packages) describe(t ociimage.Tree) error {
	for pkg := range p.used {
		if err := t.File("var/lib/dpkg/status.d/"+pkg, filepath.Join(p.dir, pkg, "control")); err != nil {
			return err
		}
		doc := "usr/share/doc/" + pkg
		// A package may use the folder of a package it depends on.
		if to, err := os.Readlink(filepath.Join(p.dir, pkg, doc)); err == nil {
			t[doc] = ociimage.Entry{Link: to, Mode: 0o777}
			if pkg = path.Base(to); t["usr/share/doc/"+pkg+"/copyright"].Mode != 0 {
				continue
			}
			doc = "usr/share/doc/" + pkg
		}
		if err := t.File(doc+"/copyright", filepath.Join(p.dir, pkg, doc, "copyright")); err != nil {
			return err
		}
	}
	return nil
}

// systemTree returns the layer with ffmpeg and the Debian libraries needed by ffmpeg and the program.
func systemTree(debs, release string) (ociimage.Tree, error) {
	p, err := openPackages(debs)
	if err != nil {
		return nil, err
	}
	t := ociimage.Tree{}
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
	t.Text("etc/ssl/certs/ca-certificates.crt", string(bundle))
	t.Accounts()
	t.Folder("var/lib/millrace", 0o700, ociimage.User)
	return t, p.describe(t)
}

// programTree returns the layer with the program, from the folder of its archive.
func programTree(release string) (ociimage.Tree, error) {
	t := ociimage.Tree{}
	for _, f := range []struct{ name, at string }{
		{"millrace", "usr/local/bin"}, {"libonnxruntime.so.1", "usr/local/lib/millrace"},
		{"libstdc++.so.6", "usr/local/lib/millrace"}, {"libgcc_s.so.1", "usr/local/lib/millrace"},
		{"LICENSE", "usr/share/doc/millrace"}, {"LICENSES.txt", "usr/share/doc/millrace"},
		{"CHANGELOG.md", "usr/share/doc/millrace"}, {"sbom.cdx.json", "usr/share/doc/millrace"},
	} {
		if err := t.File(f.at+"/"+f.name, filepath.Join(release, f.name)); err != nil {
			return nil, err
		}
	}
	return t, nil
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
	dir, err := os.MkdirTemp("", "millrace-image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bottom, err := system.Layer(context.Background(), dir, at)
	if err != nil {
		return err
	}
	top, err := program.Layer(context.Background(), dir, at)
	if err != nil {
		return err
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
	user := fmt.Sprintf("%[1]d:%[1]d", ociimage.User)
	img, err := ociimage.Build(nil, v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: at.UTC()},
		Config: v1.Config{
			User: user, WorkingDir: "/var/lib/millrace", StopSignal: "SIGTERM", Labels: labels,
			Env:        []string{"PATH=/usr/local/bin:/usr/bin", "HOME=/var/lib/millrace"},
			Entrypoint: []string{"/usr/local/bin/millrace"},
			Cmd:        []string{"serve", "--http", "0.0.0.0:8000", "--grpc", "0.0.0.0:8001"},

			ExposedPorts: map[string]struct{}{"8000/tcp": {}, "8001/tcp": {}},
			Volumes:      map[string]struct{}{"/var/lib/millrace": {}},
			Healthcheck:  ociimage.Health(),
		},
	}, ociimage.Addition{Layer: bottom, By: "ffmpeg and libraries of Debian"},
		ociimage.Addition{Layer: top, By: "millrace " + version})
	if err != nil {
		return err
	}
	return ociimage.WriteArchive(out, img, at, "localhost/millrace:"+version, "localhost/millrace:latest")
}

// image is the command.
func image(out io.Writer, arch, version, debs, release, seconds string) error {
	var epoch int64
	if _, err := fmt.Sscan(cmp.Or(seconds, "0"), &epoch); err != nil {
		return fmt.Errorf("%q is not a time in seconds", seconds)
	}
	return writeImage(out, arch, version, debs, release, time.Unix(epoch, 0))
}
