package build

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"millrace/apps"
	"millrace/internal/rootfile"
)

// Lock is the content of a lock file: the packages of an environment.
type Lock struct {
	Version    int       `json:"version"`
	Sum        string    `json:"requirements"` // digest of the requirements
	Python     string    `json:"python"`
	Platform   string    `json:"platform"`
	SystemSite bool      `json:"system_site_packages"`
	Installer  string    `json:"installer"`
	Commit     string    `json:"commit,omitempty"` // of the application when the file was written
	Packages   []Package `json:"packages"`
}

const maxLock = 16 << 20

// LockFile returns the path of the lock file of an application, beside the configuration file.
func LockFile(app *apps.App) string {
	return strings.TrimSuffix(app.File, filepath.Ext(app.File)) + ".lock"
}

// WriteLock writes the lock file of an application from the application's environment. Packages without a hash, from
// folders and from repositories, are refused.
func WriteLock(app *apps.App, env *Environment) (*Lock, error) {
	l := &Lock{Version: 1, Sum: env.Sum, Python: env.Python, Platform: env.Platform, SystemSite: env.SystemSite,
		Installer: env.Installer, Commit: app.Commit, Packages: slices.Clone(env.Packages)}
	for _, p := range l.Packages {
		if len(p.Hashes) == 0 {
			return nil, fmt.Errorf("%s comes from %s, which has no hash: only packages of an index or an archive "+
				"can be locked", p.Name, p.URL)
		}
	}
	base, err := filepath.EvalSymlinks(filepath.Dir(app.File))
	if err != nil {
		return nil, err
	}
	for i := range l.Packages {
		l.Packages[i].URL = fromFolder(base, l.Packages[i].URL)
	}
	text, err := encode(l)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(app.Root, LockFile(app))
	if err != nil {
		return nil, err
	}
	return l, rootfile.Write(app.Root, name, text)
}

// fromFolder returns the address of an archive on this machine with the path from a folder, which is the same in all
// clones. Other addresses stay.
func fromFolder(base, address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "file" || u.Host != "" || u.Path == "" {
		return address
	}
	name, err := filepath.Rel(base, u.Path)
	if err != nil {
		return address
	}
	u.Path = ""
	u.Opaque = (&url.URL{Path: name}).EscapedPath()
	return u.String()
}

// inFolder reverses fromFolder.
func inFolder(base, address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "file" || u.Opaque == "" {
		return address
	}
	name, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return address
	}
	u.Opaque, u.Path = "", filepath.Join(base, name)
	return u.String()
}

// lockDigest returns the digest of the lock file of an application; "" = there is none.
func lockDigest(app *apps.App) (string, error) {
	file := LockFile(app)
	text, err := rootfile.Read(filepath.Dir(file), filepath.Base(file), maxLock)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// readLock reads a lock file; nil = none.
func readLock(file string) (*Lock, error) {
	text, err := rootfile.Read(filepath.Dir(file), filepath.Base(file), maxLock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := &Lock{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return nil, fmt.Errorf("%s: %w: write the file anew by build lock", file, err)
	}
	if l.Version != 1 {
		return nil, fmt.Errorf("%s: has version %d, and this program knows version 1", file, l.Version)
	}
	base, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	for i := range l.Packages {
		p := &l.Packages[i]
		p.URL = inFolder(base, p.URL)
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%s: packages: %w", file, err)
		}
	}
	return l, nil
}

var (
	packageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	versionText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.!+_-]*$`)
	hashText    = regexp.MustCompile(`^sha(256|384|512):[0-9a-f]{64,128}$`)
)

// check refuses text that an installer would read as options.
func (p *Package) check() error {
	switch {
	case !packageName.MatchString(p.Name):
		return fmt.Errorf("%q is no name of a package", p.Name)
	case p.URL == "" && !versionText.MatchString(p.Version):
		return fmt.Errorf("%s: %q is no version", p.Name, p.Version)
	case strings.ContainsAny(p.URL, " \t\r\n\\"):
		return fmt.Errorf("%s: %q is no address", p.Name, p.URL)
	case len(p.Hashes) == 0 || slices.ContainsFunc(p.Hashes, func(h string) bool { return !hashText.MatchString(h) }):
		return fmt.Errorf("%s: has no hash such as sha256:0123", p.Name)
	}
	return nil
}

// requirements returns the packages as a requirements file.
func (l *Lock) requirements() []byte { return l.write(true) }

// versions returns the packages as a requirements file without hashes, to which other packages can be added.
func (l *Lock) versions() []byte { return l.write(false) }

func (l *Lock) write(hashes bool) []byte {
	var b bytes.Buffer
	for _, p := range l.Packages {
		if p.URL != "" {
			_, _ = fmt.Fprintf(&b, "%s @ %s", p.Name, p.URL)
		} else {
			_, _ = fmt.Fprintf(&b, "%s==%s", p.Name, p.Version)
		}
		for _, h := range p.Hashes {
			if !hashes {
				break
			}
			_, _ = fmt.Fprintf(&b, " --hash=%s", h)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// check refuses a lock of other requirements, of another Python or of another machine.
func (l *Lock) check(j *job) error {
	const advice = "choose packages anew by build lock"
	differs := func(what, lock, here, advice string) error {
		return fmt.Errorf("%s was written for %s %s, and here is %s: %s", LockFile(j.app), what, lock, here, advice)
	}
	switch {
	case l.Sum != j.sum:
		return fmt.Errorf("the requirements have changed since %s was written: %s", LockFile(j.app), advice)
	case minor(l.Python) != minor(j.python.Version):
		return differs("Python", l.Python, j.python.Version, "name another interpreter by --python, or "+advice)
	case l.Platform != j.python.Platform:
		return differs("the platform", l.Platform, j.python.Platform, advice)
	case l.SystemSite != j.SystemSite:
		return differs("--system-site-packages", fmt.Sprint(l.SystemSite), fmt.Sprint(j.SystemSite),
			"give the same flag, or "+advice)
	}
	return nil
}

// equal returns an error if other packages were installed than those of the lock.
func (l *Lock) equal(installed []Package) error {
	text := func(p Package) string { return p.Name + " " + p.Version }
	for _, p := range l.Packages {
		if !slices.ContainsFunc(installed, func(q Package) bool { return text(p) == text(q) }) {
			return fmt.Errorf("%s of the lock file was not installed", text(p))
		}
	}
	if len(installed) != len(l.Packages) {
		return fmt.Errorf("%d packages were installed, and the lock file has %d", len(installed), len(l.Packages))
	}
	return nil
}
