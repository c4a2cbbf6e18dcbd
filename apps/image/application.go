package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/ociimage"
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
		case hasSecrets(name, d):
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
			strings.Join(secrets, ", ")+". Give them to a container by mounts, and settings by variables")
	}
	return t, err
}

// FilesDigest returns a digest of the files that an image of an application has: of their paths, contents and rights.
// exclude is that of Options.
func FilesDigest(application string, exclude func(name string) bool) (string, error) {
	o := &Options{Application: application, Exclude: exclude}
	t, err := applicationTree(o, nil, &libraries{base: &Base{}})
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		e := t[name]
		_, _ = fmt.Fprintf(sum, "%q %o %q ", name, e.Mode, e.Link)
		if e.From != "" {
			if err := addFile(sum, e.From); err != nil {
				return "", err
			}
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// addFile adds the digest of a file to a digest.
func addFile(to io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	_, err = to.Write(sum.Sum(nil))
	return err
}

// secretName are the names of files and folders that usually have passwords or private keys.
var secretName = regexp.MustCompile(`^(\.env(\..*)?|\.envrc|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc|` +
	`\.htpasswd|\.ssh|\.gnupg|\.aws|\.kube|id_(rsa|dsa|ecdsa|ed25519)(_sk)?)$`)

// hasSecrets reports whether a file or folder usually has passwords, or is a private key.
func hasSecrets(name string, d fs.DirEntry) bool {
	switch ext := path.Ext(name); {
	case secretName.MatchString(d.Name()):
		return ext != ".example" && ext != ".sample" && ext != ".template" // of .env
	case d.Type().IsRegular() && (ext == ".pem" || ext == ".key"):
		text, _, err := head(name)
		return err == nil && strings.Contains(text, "PRIVATE KEY-----")
	}
	return false
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
