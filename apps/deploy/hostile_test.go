package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/gittest"
)

// layers writes layers of an image into the folder of blobs, and returns the arguments of installScript.
func layers(t *testing.T, at *site, all ...[]tar.Header) []string {
	t.Helper()
	root := at.folder + "/releases/1/root"
	args := []string{at.blobs(), at.folder + "/layers", root}
	if err := os.MkdirAll(at.blobs(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, headers := range all {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg {
				h.Size = 4
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				_, _ = w.Write([]byte("text"))
			}
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		name := hexOf(blob(b.String()).Digest)
		if err := os.WriteFile(filepath.Join(at.blobs(), name), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	return args
}

// An image whose layers are made to write outside of the root folder writes nothing there, and brings no devices and no
// programs with the rights of their owners.
func TestHostileImage(t *testing.T) {
	s := gittest.NewSSH(t)
	at := opened(t, s, options(t, s))
	host := t.TempDir() // what the image must not change
	file := func(name string, mode int64) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777}
	}
	folder := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
	up := strings.Repeat("../", 20)

	good := []tar.Header{folder("etc/"), link("etc/resolv.conf", host+"/resolv"),
		link("etc/hosts", up+host[1:]+"/hosts"),
		file("su", 0o6755), {Name: "pipe", Typeflag: tar.TypeFifo, Mode: 0o666}}
	if os.Geteuid() == 0 {
		good = append(good, tar.Header{Name: "disk", Typeflag: tar.TypeBlock, Mode: 0o666, Devmajor: 7, Devminor: 99})
	}
	args := layers(t, at, good)
	if _, err := at.run(installScript, args...); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(args[2] + "/su"); err != nil || st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		t.Errorf("%v, %v", st, err)
	}
	for _, name := range []string{"disk", "pipe"} {
		if _, err := os.Lstat(args[2] + "/" + name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st, err := os.Lstat(args[2] + "/etc/resolv.conf"); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v, %v", st, err)
	}

	for what, bad := range map[string][][]tar.Header{
		"a link in place of a folder":    {{link("etc", host)}},
		"a link above a folder":          {{link("var", host)}},
		"files behind a link":            {{link("a", host)}, {folder("a"), file("a/b", 0o644)}},
		"files behind a link of a layer": {{link("a", host), file("a/b", 0o644)}},
		"a path that leads up":           {{file(up+host[1:]+"/b", 0o644)}},
		"an absolute path":               {{file(host+"/b", 0o644)}},
		"a hard link to a file":          {{{Name: "h", Linkname: up + "etc/passwd", Typeflag: tar.TypeLink}}},
		"a hard link behind a link":      {{link("a", "/etc"), {Name: "h", Linkname: "a/passwd", Typeflag: tar.TypeLink}}},
	} {
		args := layers(t, at, bad...)
		_, err := at.run(installScript, args...) // some are refused, of others a part is left out
		t.Logf("%s: %v", what, err)
		if list, err := os.ReadDir(host); err != nil || len(list) > 0 {
			t.Errorf("%s: the host has %v, %v", what, list, err)
			_ = os.RemoveAll(host)
			_ = os.Mkdir(host, 0o700)
		}
		if text, err := os.ReadFile(args[2] + "/h"); err == nil && strings.Contains(string(text), "root:") {
			t.Errorf("%s: the image has a file of the host", what)
		}
	}
}

// A folder in which other users can write is refused: they could replace files that root writes.
func TestFolderOfOthers(t *testing.T) {
	s := gittest.NewSSH(t)
	o := options(t, s)
	if err := errors.Join(os.Mkdir(o.Folder, 0o755), os.Chmod(o.Folder, 0o777)); err != nil {
		t.Fatal(err)
	}
	o.Image = contents("x")
	err := Run(t.Context(), []Target{target(s)}, o, "ann", func(Result) {})
	if err == nil || !strings.Contains(err.Error(), "other users can write in the folder "+o.Folder) ||
		!strings.Contains(err.Error(), "--target-folder") {
		t.Error(err)
	}
	for _, bad := range []string{"a", "/", "/..", "/a:b", "/a\rb"} {
		o.Folder = bad
		if err := o.check(); err == nil {
			t.Errorf("the folder %q is accepted", bad)
		}
	}
}
