package build

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/textfile"
)

// project is the name of the file with the metadata of a Python project.
const project = "pyproject.toml"

// Limits of requirements.
const (
	maxText  = 1 << 20
	maxFiles = 100     // requirements files that name each other
	maxLocal = 100_000 // files of packages in the application's folder
)

var hasProject = regexp.MustCompile(`(?m)^\s*dependencies\s*=|^\s*\[\s*project\s*\]`)

// hasDependencies reports whether a pyproject.toml describes a project, and not only settings of tools.
func hasDependencies(file string) bool {
	text, err := textfile.Read(file, maxText)
	return err == nil && hasProject.Match(text)
}

// requirements reads all that determines the packages of an application: the files, the files named by them, and
// packages in the application's folder.
type requirements struct {
	root  string // the application
	dir   string // working folder of the installer, where paths of packages begin
	base  string // dir without links; the digest has paths from here, which are the same in a clone and in a folder
	hash  hash.Hash
	seen  map[string]bool
	found []string // folders with packages, of --find-links
	// options are the lines that say where packages are, and which packages installers choose. Paths are absolute.
	options []string
	files   int  // of packages
	local   bool // packages are in the application's folder
}

// digest returns the digest of requirements files and packages, and whether packages are in the application's folder.
// The installer runs in the folder dir.
func digest(root, dir string, files, packages []string) (sum string, local bool, err error) {
	r, err := inspect(root, dir, files, packages)
	if err != nil {
		return "", false, err
	}
	return r.sum(), r.local, nil
}

func (r *requirements) sum() string { return hex.EncodeToString(r.hash.Sum(nil)) }

// reads returns the files and folders of the application that an installer needs. A package in the application may
// take any file of the application.
func (r *requirements) reads() []string {
	if r.local {
		return []string{r.root}
	}
	return append(slices.Sorted(maps.Keys(r.seen)), r.found...)
}

func inspect(root, dir string, files, packages []string) (*requirements, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	base, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	r := &requirements{root: root, dir: dir, base: base, hash: sha256.New(), seen: map[string]bool{}}
	for _, file := range files {
		if err := r.file(file); err != nil {
			return nil, err
		}
	}
	for _, p := range packages {
		if err := r.line(dir, p); err != nil {
			return nil, err
		}
		r.add("package", []byte(p))
	}
	return r, nil
}

func (r *requirements) add(name string, text []byte) {
	_, _ = fmt.Fprintf(r.hash, "%q %d\n%s\n", name, len(text), text)
}

// inside returns the path of a file in the application without links, and the path from the working folder.
func (r *requirements) inside(file string) (real, rel string, err error) {
	if real, err = filepath.EvalSymlinks(file); err != nil {
		return "", "", err
	}
	if in, err := filepath.Rel(r.root, real); err != nil || !filepath.IsLocal(in) {
		return "", "", fmt.Errorf("%s is outside of the application %s: copy it into the application", file, r.root)
	}
	rel, err = filepath.Rel(r.base, real)
	return real, rel, err
}

func (r *requirements) file(name string) error {
	real, rel, err := r.inside(name)
	if err != nil {
		return err
	}
	if r.seen[real] {
		return nil
	}
	if r.seen[real] = true; len(r.seen) > maxFiles {
		return fmt.Errorf("%s: more than %d requirements files", rel, maxFiles)
	}
	text, err := textfile.Read(real, maxText)
	if err != nil {
		return err
	}
	r.add(rel, text)
	if filepath.Base(real) == project {
		return nil
	}
	text = bytes.ReplaceAll(text, []byte("\\\n"), []byte(" "))
	for line := range strings.Lines(string(text)) {
		if err := r.line(filepath.Dir(real), line); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	return nil
}

var (
	included  = regexp.MustCompile(`^(?:-r|-c|--requirement|--constraint)[ =]*` + value)
	editable  = regexp.MustCompile(`^(?:-e|--editable)[ =]*` + value)
	findLinks = regexp.MustCompile(`^(?:-f|--find-links)[ =]*` + value)
	atFile    = regexp.MustCompile(`^[^ @]+\s*@\s*(file:.+)`)
	extras    = regexp.MustCompile(`\[[^]]*\]$`)
	ends      = regexp.MustCompile(`\s+#.*|\s*;.*|\s+--?[a-z].*`) // a comment, a condition, options
)

// value is the value of an option, in quotes or not.
const value = `("[^"]*"|'[^']*'|(?:\\.|\S)+)`

// chooses matches the options that say where packages are, and which files of packages installers choose.
var chooses = regexp.MustCompile(`^(?:-i|--(?:index-url|pypi-url|extra-index-url|no-index|no-binary|` +
	`only-binary|prefer-binary|trusted-host))(?:[ =]|$)`)

var escaped = regexp.MustCompile(`\\(.)`)

// unquote returns the text of a value.
func unquote(text string) string {
	if len(text) > 1 && (text[0] == '"' || text[0] == '\'') && text[len(text)-1] == text[0] {
		return text[1 : len(text)-1]
	}
	return escaped.ReplaceAllString(text, "$1")
}

// line adds the file or the package named by a line of a requirements file.
func (r *requirements) line(dir, line string) error {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "#") || line == "" {
		return nil
	}
	if m := included.FindStringSubmatch(line); m != nil {
		name := unquote(m[1])
		switch {
		case strings.Contains(name, "://"):
			return nil
		case !filepath.IsAbs(name):
			name = filepath.Join(dir, name)
		}
		return r.file(name)
	}
	if chooses.MatchString(line) {
		r.options = append(r.options, line)
	}
	name, links := ends.ReplaceAllString(line, ""), false
	if m := editable.FindStringSubmatch(line); m != nil {
		name = unquote(m[1])
	} else if m := findLinks.FindStringSubmatch(line); m != nil {
		if name, links = unquote(m[1]), true; strings.Contains(name, "://") {
			r.options = append(r.options, line)
		}
	} else if m := atFile.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	name = extras.ReplaceAllString(unquote(name), "")
	if path, is := strings.CutPrefix(name, "file:"); is {
		if name = strings.TrimPrefix(path, "//"); strings.Contains(name, "%") {
			if decoded, err := url.PathUnescape(name); err == nil {
				name = decoded
			}
		}
	}
	if links && !strings.Contains(name, ":") && !filepath.IsAbs(name) {
		name = "./" + name // a folder without a dot, too
	}
	if strings.HasPrefix(name, "-") || strings.Contains(name, ":") || !strings.ContainsAny(name, "/.") {
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.dir, name)
	}
	if _, err := os.Stat(name); err != nil {
		return nil // a name with a dot, or a missing path, which the installer reports
	}
	if links {
		real, _, err := r.inside(name)
		if err != nil {
			return err
		}
		r.found = append(r.found, real)
		r.options = append(r.options, "--find-links "+(&url.URL{Scheme: "file", Path: real}).String())
	} else {
		r.local = true
	}
	return r.tree(name)
}

// tree adds a file or folder of the application.
func (r *requirements) tree(name string) error {
	real, _, err := r.inside(name)
	if err != nil {
		return err
	}
	return filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{".git", ".repo", "__pycache__"}, d.Name()) ||
			path == filepath.Join(real, "build") && !isFile(filepath.Join(path, "__init__.py")) ||
			strings.HasSuffix(d.Name(), ".egg-info")): // files that a build makes
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		if r.files++; r.files > maxLocal {
			return fmt.Errorf("%s has more than %d files", name, maxLocal)
		}
		rel, err := filepath.Rel(r.base, path)
		if err != nil {
			return err
		}
		r.add(rel, nil)
		return hashFile(r.hash, path)
	})
}

func hashFile(into io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(into, f)
	return errors.Join(err, f.Close())
}

// wheelsDigest returns the digest of the packages in a folder.
func wheelsDigest(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("--wheels: %w", err)
	}
	sum, found := sha256.New(), false
	for _, e := range entries {
		name := e.Name()
		if !slices.ContainsFunc([]string{".whl", ".tar.gz", ".zip"}, func(end string) bool {
			return strings.HasSuffix(name, end)
		}) {
			continue
		}
		found = true
		_, _ = fmt.Fprintf(sum, "%q\n", name)
		if err := hashFile(sum, filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("--wheels: %w", err)
		}
	}
	if !found {
		return "", fmt.Errorf("--wheels: %s has no wheels: fill it by pip download -d %s, or leave the flag out", dir,
			dir)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
