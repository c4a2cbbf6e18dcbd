package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
)

// untar returns the entries of an archive, and the contents of the files.
func untar(t *testing.T, data []byte) (heads map[string]*tar.Header, texts map[string][]byte) {
	t.Helper()
	heads, texts = map[string]*tar.Header{}, map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return heads, texts
		}
		if err == nil {
			heads[h.Name] = h
			texts[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// An image has ffmpeg with all needed libraries, no files that give rights, and runs without root; equal parts give
// equal images, and the error names a missing library.
func TestImage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("programs of other systems are no ELF files")
	}
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Skip("this machine has no ldd, or a true that is linked statically")
	}
	debs, release := t.TempDir(), t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		testneeds.WriteProgram(t, name, text)
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, name := range []string{"ffmpeg/usr/bin/ffmpeg", "ffmpeg/usr/bin/ffprobe"} {
		put(filepath.Join(debs, name), read(program))
	}
	var libraries []string
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			name := filepath.Join("lib/here", filepath.Base(word))
			if len(libraries) == 0 { // through a link, as most are
				put(filepath.Join(debs, "libc6", name+".real"), read(word))
				if err := os.Symlink(filepath.Base(name)+".real", filepath.Join(debs, "libc6", name)); err != nil {
					t.Fatal(err)
				}
				libraries = append(libraries, name+".real")
			} else {
				put(filepath.Join(debs, "libc6", name), read(word))
			}
			libraries = append(libraries, name)
		}
	}
	for name, text := range map[string]string{
		"base-files/etc/os-release": "ID=debian\n", "base-files/etc/debian_version": "12\n",
		"ca-certificates/usr/share/ca-certificates/mozilla/one.crt": "ONE\n",
		"unused/usr/lib/libunused.so.1":                             "", "unused/control": "",
	} {
		put(filepath.Join(debs, name), text)
	}
	for _, pkg := range []string{"ffmpeg", "libc6", "base-files", "ca-certificates"} {
		put(filepath.Join(debs, pkg, "control"), "Package: "+pkg+"\n")
		put(filepath.Join(debs, pkg, "usr/share/doc", pkg, "copyright"), "free\n")
	}
	for _, name := range []string{"millrace", "libonnxruntime.so.1", "libstdc++.so.6", "libgcc_s.so.1", "LICENSE",
		"LICENSES.txt", "CHANGELOG.md", "sbom.cdx.json"} {
		put(filepath.Join(release, name), read(program))
	}
	var first, second bytes.Buffer
	at := time.Unix(1700000000, 0)
	for _, to := range []*bytes.Buffer{&first, &second} {
		if err := writeImage(to, "amd64", "v1", debs, release, at); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("equal parts give other images")
	}

	digest := func(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
	_, parts := untar(t, first.Bytes())
	blobOf := func(digest string) []byte { return parts["blobs/"+strings.Replace(digest, ":", "/", 1)] }
	for name, data := range parts {
		if hash, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && hash != "" && "sha256:"+hash != digest(data) {
			t.Errorf("%s has another digest", name)
		}
	}
	type blob struct{ Digest string }
	var index, manifest struct {
		Manifests, Layers []blob
		Config            blob
	}
	var config struct {
		Config struct {
			User        string
			Entrypoint  []string
			Labels      map[string]string
			Healthcheck struct{ Test []string }
		}
		Rootfs struct {
			IDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(parts["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%v %s", err, parts["index.json"])
	}
	if err := json.Unmarshal(blobOf(index.Manifests[0].Digest), &manifest); err != nil || len(manifest.Layers) != 2 {
		t.Fatal(err)
	}
	if err := json.Unmarshal(blobOf(manifest.Config.Digest), &config); err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || c.Entrypoint[0] != "/usr/local/bin/millrace" ||
		strings.Join(c.Healthcheck.Test, " ") != "CMD /usr/local/bin/millrace health" ||
		c.Labels["org.opencontainers.image.version"] != "v1" {
		t.Errorf("%+v", c)
	}
	all := map[string]*tar.Header{}
	for i, l := range manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(blobOf(l.Digest)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || digest(plain) != config.Rootfs.IDs[i] {
			t.Errorf("layer %d: %v, or another digest", i, err)
		}
		heads, _ := untar(t, plain)
		for name, h := range heads {
			if all[name] = h; h.Mode&0o6000 != 0 || h.Typeflag != tar.TypeSymlink && h.Mode&0o022 != 0 &&
				name != "tmp/" || h.Uid != 0 && name != "var/lib/millrace/" {
				t.Errorf("%s: mode %o, user %d", name, h.Mode, h.Uid)
			}
		}
	}
	for _, name := range append(libraries, "usr/bin/ffmpeg", "usr/local/bin/millrace",
		"etc/ssl/certs/ca-certificates.crt", "usr/share/doc/libc6/copyright", "var/lib/dpkg/status.d/ffmpeg",
		"usr/share/doc/millrace/LICENSES.txt") {
		if all[name] == nil {
			t.Errorf("%s is not in the image", name)
		}
	}
	if all["usr/lib/libunused.so.1"] != nil {
		t.Error("a library that nothing needs is in the image")
	}
	if err := os.RemoveAll(filepath.Join(debs, "libc6/lib")); err != nil {
		t.Fatal(err)
	}
	if err := writeImage(io.Discard, "amd64", "v1", debs, release, at); err == nil ||
		!strings.Contains(err.Error(), "which no package has") {
		t.Errorf("without libraries: %v", err)
	}
}
