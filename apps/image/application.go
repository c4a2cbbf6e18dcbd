package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/ociimage"
	"millrace/internal/secret"
)

// applicationTree returns the layer of the application. Links, by path within the application, take the place of
// folders. The libraries that programs of the application need are added to libs.
func applicationTree(o *Options, links map[string]string, libs *libraries) (ociimage.Tree, error) {
	t := ociimage.Tree{}
	at := ApplicationAt[1:]
	t.Folder(at, 0o755, 0)
	var secrets []string
	err := filepath.WalkDir(o.Application, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == o.Application {
			return err
		}
		rel, err := filepath.Rel(o.Application, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		skip := error(nil)
		asked := rel
		if d.IsDir() {
			skip, asked = fs.SkipDir, rel+"/"
		}
		to, linked := links[rel]
		switch {
		case linked:
			t.Link(path.Join(at, rel), to)
			return skip
		case d.Name() == ".git", d.Name() == "__pycache__", o.Exclude != nil && o.Exclude(asked):
			return skip
		case secret.IsFile(name, d.Type()):
			secrets = append(secrets, fmt.Sprintf("%q", asked))
			return skip
		case d.IsDir():
			t.Folder(path.Join(at, rel), 0o755, 0)
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			if err := insideLink(o.Application, name); err != nil {
				return err
			}
		case !d.Type().IsRegular():
			return fmt.Errorf("application: %s is neither a file nor a folder: remove or exclude it", rel)
		}
		if err := libs.program(name, rel, o.Application); err != nil {
			return err
		}
		return t.File(path.Join(at, rel), name)
	})
	if len(secrets) > 0 {
		libs.notes = append(libs.notes, "left out of the image, because such files have passwords and keys: "+
			strings.Join(secrets, ", ")+". Do not commit them: give secrets by deploy --secret NAME:VARIABLE, "+
			"or to a container by variables and mounts")
	}
	return t, err
}

// LabelFiles is the label with the digest of the application's files in an image, see FilesDigest.
const LabelFiles = "millrace.files"

// FilesDigest returns the digest that the label LabelFiles of an image of the application would have. exclude is that
// of Options, and also leaves the environment out, which is in another place of an image.
func FilesDigest(ctx context.Context, application string, exclude func(name string) bool) (string, error) {
	t, err := applicationTree(&Options{Application: application, Exclude: exclude}, nil, &libraries{base: &Base{}})
	if err != nil {
		return "", err
	}
	sums := hashed(t, nil)
	if err := t.Write(ociimage.Stop(ctx, io.Discard), fixed); err != nil {
		return "", err
	}
	return sums(), nil
}

// hashed makes the next write of an application's tree hash the files, which are then read only once. The returned
// function returns the digest of paths, contents and rights afterwards. Links, by path within the application, are
// left out.
func hashed(t ociimage.Tree, links map[string]string) func() string {
	of := map[string]hash.Hash{}
	for name, e := range t {
		if rel, is := strings.CutPrefix(name, ApplicationAt[1:]+"/"); is && links[rel] != "" {
			continue
		}
		of[name] = sha256.New()
		if e.From != "" {
			e.Hash = of[name]
			t[name] = e
		}
	}
	return func() string {
		sum := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(of)) {
			e := t[name]
			_, _ = fmt.Fprintf(sum, "%q %o %q ", name, e.Mode, e.Link)
			if e.From != "" {
				_, _ = sum.Write(of[name].Sum(nil))
			}
		}
		return "sha256:" + hex.EncodeToString(sum.Sum(nil))
	}
}

// program adds the libraries of a program of the application, and notes a script whose interpreter the image lacks.
func (l *libraries) program(name, rel, folder string) error {
	st, err := os.Stat(name)
	if err != nil || !st.Mode().IsRegular() || l.base != nil {
		return nil
	}
	if st.Mode()&0o111 != 0 {
		text, ok, err := head(name)
		if err != nil {
			return err
		}
		line, _, _ := strings.Cut(text, "\n")
		fields := strings.Fields(strings.TrimPrefix(line, "#!"))
		if ok && len(fields) > 0 {
			if _, has := l.tree[strings.TrimPrefix(fields[0], "/")]; !has {
				l.notes = append(l.notes, fmt.Sprintf("the script %q needs %q, which the image lacks: take a base "+
					"image, or start the script by python3", rel, fields[0]))
			}
			return nil
		}
	} else if !strings.Contains(path.Base(rel), ".so") {
		return nil
	}
	return l.optional(name, folder)
}

// head returns the first bytes of a file, and whether they start a script.
func head(name string) (string, bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 256))
	return string(text), strings.HasPrefix(string(text), "#!"), err
}

// insideLink refuses a link that leads out of a folder.
func insideLink(folder, name string) error {
	to, err := os.Readlink(name)
	if err != nil {
		return err
	}
	rel, _ := filepath.Rel(folder, name)
	if filepath.IsAbs(to) || !filepath.IsLocal(filepath.Join(filepath.Dir(rel), to)) {
		return fmt.Errorf("application: the link %s leads to %s, which is outside of the application: replace the "+
			"link by a file, or exclude the link", rel, to)
	}
	return nil
}

// programTree returns the layer with the program, and with the libraries and documents that a release has beside the
// program.
func programTree(program string, libs *libraries, parts *[]part) (ociimage.Tree, error) {
	t := ociimage.Tree{}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	t[programAt] = ociimage.Entry{From: real, Mode: 0o755}
	if err := libs.need(real); err != nil {
		return nil, err
	}
	dir := filepath.Dir(real)
	for _, from := range []string{dir, filepath.Join(dir, "../lib/millrace")} {
		for _, name := range []string{"libonnxruntime.so.1", "libstdc++.so.6", "libgcc_s.so.1"} {
			file, err := filepath.EvalSymlinks(filepath.Join(from, name))
			if err != nil || t[librariesAt+"/"+name].From != "" {
				continue
			}
			t[librariesAt+"/"+name] = ociimage.Entry{From: file, Mode: 0o644}
			if err := libs.need(file); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range []string{"LICENSE", "LICENSES.txt"} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			t[documentsAt+"/"+name] = ociimage.Entry{From: filepath.Join(dir, name), Mode: 0o644}
		}
	}
	*parts = append(*parts, goModules(real)...)
	return t, nil
}

// root adds the files that a root file system needs, and the certificates.
func root(t ociimage.Tree, certificates string, img *Image) error {
	t.Accounts()
	// What programs that scan images know the system by.
	for _, name := range []string{"etc/os-release", "etc/debian_version"} {
		if text, ok, err := textFile("/"+name, 1<<16); err == nil && ok {
			t.Text(name, string(text))
		}
	}
	const to = "etc/ssl/certs/ca-certificates.crt"
	if certificates != "" {
		text, ok, err := textFile(certificates, 16<<20)
		if err != nil || !ok || !strings.Contains(string(text), "-----BEGIN CERTIFICATE-----") {
			return fmt.Errorf("certificates: %s is no file with certificates in PEM (%v)", certificates, err)
		}
		t.Text(to, string(text))
		return nil
	}
	// Debian's own list first: without the authorities that were added to this machine.
	names, err := filepath.Glob("/usr/share/ca-certificates/mozilla/*.crt")
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, name := range names {
		text, ok, err := textFile(name, 1<<20)
		if err != nil || !ok {
			return fmt.Errorf("certificates: %s cannot be read (%v)", name, err)
		}
		all.WriteString(strings.TrimSpace(string(text)) + "\n")
	}
	for _, name := range []string{"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
		"/etc/ssl/certs/ca-certificates.crt"} {
		if all.Len() > 0 {
			break
		}
		if text, ok, err := textFile(name, 16<<20); err == nil && ok {
			all.Write(text)
		}
	}
	if all.Len() == 0 {
		img.Notes = append(img.Notes, "this machine has no certificate authorities (package ca-certificates): "+
			"programs in the image trust no server with TLS")
		return nil
	}
	t.Text(to, all.String())
	return nil
}
