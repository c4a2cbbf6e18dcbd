// Package ociimage writes container images in the OCI format, byte for byte the same for the same contents.
//
// It owns the contents of layers, their archives, the archive of an image that `docker load` and `podman load` take,
// and the folder of an image layout. It must not know what an image contains.
package ociimage

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// User is the server's user in an image, by number, so that a policy of Kubernetes can check that the user is not
// root.
const User = 65532

// Tree is the contents of a layer: entries by path without a leading slash.
type Tree map[string]Entry

// Entry is a file, a link or a folder. A file has From, Open with Size, or Text.
type Entry struct {
	From string // a file of this machine
	Open func() (io.ReadCloser, error)
	Size int64 // of Open
	Text []byte
	Link string
	Mode fs.FileMode // of a folder with fs.ModeDir
	UID  int
	Hash io.Writer // also gets the contents when Write writes them; nil = none
}

// Folder adds a folder.
func (t Tree) Folder(name string, mode fs.FileMode, uid int) {
	t[name] = Entry{Mode: fs.ModeDir | mode, UID: uid}
}

// Text adds a file with a text.
func (t Tree) Text(name, text string) { t[name] = Entry{Text: []byte(text), Mode: 0o644} }

// Link adds a symbolic link.
func (t Tree) Link(name, to string) { t[name] = Entry{Link: to, Mode: 0o777} }

// File adds a file of this machine, or a link if the file is a link. The file's owner, and all rights except those to
// execute, are not taken.
func (t Tree) File(name, from string) error {
	st, err := os.Lstat(from)
	switch {
	case err != nil:
		return err
	case st.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(from)
		t.Link(name, to)
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a link", from)
	}
	t[name] = Entry{From: from, Mode: Rights(st.Mode())}
	return nil
}

// Rights returns the rights of a file in an image: everybody may execute what somebody may execute, so that a umask of
// this machine changes no image.
func Rights(mode fs.FileMode) fs.FileMode {
	if mode&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// Accounts adds the users root and millrace, and the folders that a root file system needs. A file that the tree has
// already stays.
func (t Tree) Accounts() {
	for name, text := range map[string]string{
		"etc/passwd": fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nmillrace:x:%[1]d:%[1]d:millrace:/var/lib/"+
			"millrace:/sbin/nologin\n", User),
		"etc/group":         fmt.Sprintf("root:x:0:\nmillrace:x:%d:\n", User),
		"etc/nsswitch.conf": "hosts: files dns\n",
	} {
		if _, has := t[name]; !has {
			t.Text(name, text)
		}
	}
	for _, name := range []string{"dev", "proc", "sys", "run", "etc/millrace"} {
		t.Folder(name, 0o755, 0)
	}
	t.Folder("tmp", fs.ModeSticky|0o777, 0)
}

// open returns the contents of a file, and the size.
func (e Entry) open() (io.ReadCloser, int64, error) {
	switch {
	case e.Open != nil:
		r, err := e.Open()
		return r, e.Size, err
	case e.From != "":
		f, err := os.Open(e.From)
		if err != nil {
			return nil, 0, err
		}
		st, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, 0, err
		}
		return f, st.Size(), nil
	}
	return nil, int64(len(e.Text)), nil
}

// copyTo writes the contents of a file.
func (e Entry) copyTo(w io.Writer, r io.ReadCloser, size int64) error {
	if e.Hash != nil {
		w = io.MultiWriter(w, e.Hash)
	}
	if r == nil {
		_, err := w.Write(e.Text)
		return err
	}
	n, err := io.Copy(w, r)
	if err = errors.Join(err, r.Close()); err == nil && n != size {
		err = fmt.Errorf("has %d bytes and had %d: the file changed while it was read", n, size)
	}
	return err
}

// parents adds the missing folders above each entry.
func (t Tree) parents() {
	for _, name := range slices.Collect(maps.Keys(t)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, has := t[dir]; !has {
				t.Folder(dir, 0o755, 0)
			}
		}
	}
}

// Write writes the tree as a tar archive with the time at for all entries; Write adds the folders above each entry.
func (t Tree) Write(out io.Writer, at time.Time) error {
	t.parents()
	w := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := t[name].write(w, name, at); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return w.Close()
}

func (e Entry) write(w *tar.Writer, name string, at time.Time) error {
	h := &tar.Header{Name: name, ModTime: at, Uid: e.UID, Gid: e.UID, Mode: int64(e.Mode.Perm()),
		Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	switch {
	case e.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if e.Mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		return w.WriteHeader(h)
	case e.Link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		return w.WriteHeader(h)
	}
	r, size, err := e.open()
	if err != nil {
		return err
	}
	h.Size = size
	if err := w.WriteHeader(h); err != nil {
		if r != nil {
			r.Close()
		}
		return err
	}
	return e.copyTo(w, r, size)
}

// folder writes the files of a tree below a folder of this machine. Files that exist with the right size are kept if
// keep is set for the name: blobs are named by their digests.
func (t Tree) folder(dir string, keep func(name string) bool) error {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		e, to := t[name], filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		r, size, err := e.open()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if st, err := os.Lstat(to); err == nil && keep(name) && st.Mode().IsRegular() && st.Size() == size {
			if r != nil {
				r.Close()
			}
			continue
		}
		if err := e.create(to, r, size); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// create writes a file under another name, and renames it at the end.
func (e Entry) create(to string, r io.ReadCloser, size int64) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".new-*")
	if err != nil {
		if r != nil {
			r.Close()
		}
		return err
	}
	defer os.Remove(f.Name())
	err = e.copyTo(f, r, size)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}
