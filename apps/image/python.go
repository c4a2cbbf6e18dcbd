package image

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/ociimage"
)

// interpreter is a Python of this machine, or of the base image.
type interpreter struct {
	program string // path on this machine, "" for the base image's
	prefix  string // folder with lib/python3.x
	version string // such as 3.11
	at      string // path in the image
}

// omitted are parts of the standard library: parts without a use for a service, and parts of this machine.
var omitted = regexp.MustCompile(`^(test|idlelib|tkinter|turtledemo|ensurepip|config-.*|site-packages|` +
	`dist-packages|lib-dynload/_tkinter.*)$`)

// python adds the interpreter of the environment, or the named interpreter.
func (o *Options) python(libs *libraries, parts *[]part) (p interpreter, err error) {
	switch {
	case o.Environment != "":
		p, err = environmentPython(o.Environment)
	case o.Python != "":
		p, err = findPython(o.Python)
	default:
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if o.Base != nil {
		p.at, err = o.Base.python(p.version)
		return p, err
	}
	return p, p.copy(libs, parts)
}

// environmentPython returns the interpreter of an environment.
func environmentPython(dir string) (interpreter, error) {
	config, err := readConfig(dir)
	if err != nil {
		return interpreter{}, err
	}
	parts := strings.Split(config["version"], ".")
	if len(parts) < 2 || parts[0] != "3" {
		return interpreter{}, fmt.Errorf("environment: %s/pyvenv.cfg has version %q: make the environment anew by "+
			"python3 -m venv or uv venv", dir, config["version"])
	}
	version := parts[0] + "." + parts[1]
	for _, name := range []string{filepath.Join(config["home"], "python"+version),
		filepath.Join(dir, "bin/python"), filepath.Join(config["home"], "python3")} {
		p, err := interpreterAt(name)
		if err == nil && p.version == version {
			return p, nil
		}
	}
	return interpreter{}, fmt.Errorf("environment: the Python %s of %s is not in %s (pyvenv.cfg): make the "+
		"environment anew on this machine", version, dir, config["home"])
}

// readConfig returns the lines of pyvenv.cfg.
func readConfig(dir string) (map[string]string, error) {
	text, ok, err := textFile(filepath.Join(dir, "pyvenv.cfg"), 1<<16)
	if err != nil || !ok {
		return nil, fmt.Errorf("environment: %s is no Python environment, it has no pyvenv.cfg that can be read: make "+
			"one by python3 -m venv %s", dir, dir)
	}
	config := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, is := strings.Cut(line, "="); is {
			config[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	if config["version"] == "" {
		config["version"] = config["version_info"] // of uv and virtualenv
	}
	return config, nil
}

// findPython returns the interpreter of a name in PATH, or of a path. Scripts in PATH that start an interpreter, such
// as pyenv's, are passed over.
func findPython(name string) (interpreter, error) {
	if strings.Contains(name, "/") {
		return interpreterAt(name)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if p, err := interpreterAt(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return interpreter{}, fmt.Errorf("python: PATH has no interpreter %s that can be copied: install Python 3.9 or "+
		"newer, or take a base image with Python", name)
}

// interpreterAt returns the interpreter of a path.
func interpreterAt(name string) (interpreter, error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return interpreter{}, fmt.Errorf("python: %w", err)
	}
	if _, ok, err := ociimage.ReadNeeds(real); err != nil || !ok {
		return interpreter{}, fmt.Errorf("python: %s is no interpreter, but perhaps a script that starts one", real)
	}
	prefix := filepath.Dir(filepath.Dir(real))
	found, err := filepath.Glob(filepath.Join(prefix, "lib/python3.*/os.py"))
	if err != nil {
		return interpreter{}, err
	}
	own := strings.TrimPrefix(filepath.Base(real), "python")
	for _, lib := range found {
		version := strings.TrimPrefix(filepath.Base(filepath.Dir(lib)), "python")
		if version == own || len(found) == 1 {
			return interpreter{program: real, prefix: prefix, version: version,
				at: PythonAt + "/bin/python" + version}, nil
		}
	}
	return interpreter{}, fmt.Errorf("python: %s has no standard library in %s/lib", real, prefix)
}

// owns reports whether a file, by its path without links, belongs to the installation. Links to other files are not
// followed: code of packages can make such links to any file of this machine.
func (p interpreter) owns(real string) bool {
	folders := []string{p.prefix + "/lib/python" + p.version, p.prefix + "/lib/python3"}
	if p.prefix == "/usr" {
		folders = append(folders, "/usr/share", "/etc/python"+p.version)
	}
	return slices.ContainsFunc(folders, func(dir string) bool { return strings.HasPrefix(real, dir+"/") })
}

// copy adds the interpreter and the standard library.
func (p interpreter) copy(libs *libraries, parts *[]part) error {
	libs.add(p.at[1:], p.program)
	libs.tree.Link(path.Join(path.Dir(p.at), "python3")[1:], path.Base(p.at))
	if err := libs.need(p.program); err != nil {
		return fmt.Errorf("python: %w", err)
	}
	*parts = append(*parts, part{typ: "application", name: "python", version: p.version,
		purl: "pkg:generic/python@" + p.version})
	inside := "lib/python" + p.version
	return libs.copyPython(p, filepath.Join(p.prefix, inside), path.Join(PythonAt[1:], inside), omitted.MatchString)
}

// copyPython adds a folder with Python code, without compiled code, which has the times of this machine. Links to
// files of the interpreter become files.
func (l *libraries) copyPython(p interpreter, from, to string, omit func(rel string) bool) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == from {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case omit(rel), d.Name() == "__pycache__":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir(), strings.HasSuffix(rel, ".pyc"):
			return nil
		}
		return l.copyPythonFile(p, name, path.Join(to, rel))
	})
}

func (l *libraries) copyPythonFile(p interpreter, name, to string) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil // a link that leads nowhere
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil {
		return err
	}
	if real != filepath.Join(folder, filepath.Base(name)) && !p.owns(real) {
		l.notes = append(l.notes, fmt.Sprintf("left out the link %s to %s, which is no file of the interpreter", name,
			real))
		return nil
	}
	st, err := os.Stat(real)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return nil
	}
	l.tree[to] = ociimage.Entry{From: real, Mode: ociimage.Rights(st.Mode())}
	l.from[to] = real
	if strings.Contains(path.Base(name), ".so") {
		return l.optional(real, "")
	}
	return nil
}

// optional adds the libraries of a Python module. A module whose libraries are not on this machine does not work here
// either.
func (l *libraries) optional(file, folder string) error {
	err := l.needWithin(file, folder)
	if m := (missing{}); errors.As(err, &m) {
		l.notes = append(l.notes, fmt.Sprintf("%s needs %s, which is not on this machine", filepath.Base(m.file),
			m.name))
		return nil
	}
	return err
}

// environment is an environment that is being copied.
type environment struct {
	tree     ociimage.Tree
	libs     *libraries
	dir      string // on this machine, without links
	python   interpreter
	packages string // folder of packages in the image
	app      string // folder of the application
	parts    *[]part
}

// environmentTree returns the layer with the Python environment, at EnvironmentAt.
func environmentTree(o *Options, p interpreter, libs *libraries, parts *[]part) (ociimage.Tree, error) {
	config, err := readConfig(o.Environment)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(o.Environment)
	if err != nil {
		return nil, err
	}
	at := EnvironmentAt[1:]
	e := &environment{tree: ociimage.Tree{}, libs: libs, dir: dir, python: p, app: o.Application,
		parts:    parts,
		packages: path.Join(at, "lib/python"+p.version, "site-packages")}
	e.tree.Text(at+"/pyvenv.cfg", fmt.Sprintf("home = %s\ninclude-system-site-packages = %s\nversion = %s\n",
		path.Dir(p.at), orFalse(config["include-system-site-packages"]), p.version))
	for _, name := range []string{"python", "python3", "python" + p.version} {
		e.tree.Link(at+"/bin/"+name, p.at)
	}
	if err := filepath.WalkDir(dir, e.copy); err != nil {
		return nil, err
	}
	if err := e.records(); err != nil {
		return nil, err
	}
	if orFalse(config["include-system-site-packages"]) == "true" && o.Base == nil {
		if err := systemPackages(p, libs, parts); err != nil {
			return nil, err
		}
	}
	return e.tree, nil
}

func orFalse(text string) string {
	if strings.EqualFold(text, "true") {
		return "true"
	}
	return "false"
}

// made are files of an environment for this machine, files that the image gets anew, and settings of installers:
// they may have passwords of package indexes.
var made = regexp.MustCompile(`^(pyvenv\.cfg|pip\.conf|uv\.toml|lib64|include|\..*|CACHEDIR\.TAG|bin/(python[0-9.]*|` +
	`[aA]ctivate.*|deactivate.*|pydoc\.bat))$`)

// machineFile reports whether a file in site-packages describes where packages came from on this machine.
func machineFile(name string) (bool, error) {
	switch path.Base(name) {
	case "uv_cache.json":
		return true, nil
	case "direct_url.json":
		text, ok, err := textFile(name, 1<<20)
		if err != nil || !ok {
			return true, err
		}
		var from struct{ URL string }
		return json.Unmarshal(text, &from) != nil || strings.HasPrefix(from.URL, "file:"), nil
	}
	return false, nil
}

func (e *environment) copy(name string, d fs.DirEntry, err error) error {
	if err != nil || name == e.dir {
		return err
	}
	rel, err := filepath.Rel(e.dir, name)
	if err != nil {
		return err
	}
	to := path.Join(EnvironmentAt[1:], rel)
	skip := error(nil)
	if d.IsDir() {
		skip = fs.SkipDir
	}
	if d.Name() == "__pycache__" || made.MatchString(rel) {
		return skip
	}
	if d.IsDir() || strings.HasSuffix(rel, ".pyc") {
		return nil
	}
	if own, err := machineFile(name); own || err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return fmt.Errorf("environment: %s: %w", rel, err)
	}
	if !strings.HasPrefix(real, e.dir+"/") && !e.python.owns(real) {
		return fmt.Errorf("environment: %s is a link to %s, which is outside of the environment: install the package "+
			"into the environment, with copies of its files", rel, real)
	}
	st, err := os.Stat(real)
	switch {
	case err != nil:
		return err
	case st.IsDir() && strings.HasPrefix(real, e.dir+"/"):
		return e.tree.File(to, name) // a link within the environment
	case !st.Mode().IsRegular():
		return fmt.Errorf("environment: %s leads to %s, which is no file: install the package into the environment",
			rel, real)
	}
	e.tree[to] = ociimage.Entry{From: real, Mode: ociimage.Rights(st.Mode())}
	base := path.Base(rel)
	switch {
	case path.Dir(rel) == "bin":
		return e.script(to, real)
	case path.Dir(to) == e.packages && strings.HasSuffix(base, ".pth"):
		return e.pth(to, real)
	case path.Dir(to) == e.packages && strings.HasPrefix(base, "__editable__"):
		return fmt.Errorf("environment: %s is of a package that was installed with -e (editable), whose files are "+
			"elsewhere: install the package without -e", base)
	case (base == "METADATA" || base == "PKG-INFO") && path.Dir(path.Dir(to)) == e.packages:
		return e.dist(real)
	case strings.Contains(base, ".so"):
		return e.libs.optional(real, e.dir)
	}
	return nil
}

// shebang finds the interpreter of an environment in the first lines of a script.
var shebang = regexp.MustCompile(`"[^"\n]*/bin/python[0-9.]*"|'[^'\n]*/bin/python[0-9.]*'|[^\s"'!]+/bin/python[0-9.]*`)

// script replaces the interpreter in a script.
func (e *environment) script(to, from string) error {
	text, ok, err := textFile(from, 1<<20)
	if err != nil || !ok || !strings.HasPrefix(string(text), "#!") {
		return err
	}
	lines := strings.SplitAfterN(string(text), "\n", 4)
	for i := range min(3, len(lines)) {
		lines[i] = shebang.ReplaceAllString(lines[i], EnvironmentAt+"/bin/python")
	}
	entry := e.tree[to]
	entry.From, entry.Text = "", []byte(strings.Join(lines, ""))
	e.tree[to] = entry
	return nil
}

// pth replaces the folders of the application in a file with search paths, and refuses other folders of this machine.
func (e *environment) pth(to, from string) error {
	text, ok, err := textFile(from, 1<<20)
	if err != nil || !ok {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		folder := strings.TrimSpace(line)
		if filepath.IsAbs(folder) {
			rel, err := filepath.Rel(e.app, folder)
			if err != nil || !filepath.IsLocal(rel) {
				return fmt.Errorf("environment: %s names the folder %s, which is not in the application: install the "+
					"package without -e (editable)", path.Base(to), folder)
			}
			line = path.Join(ApplicationAt, filepath.ToSlash(rel)) + "\n"
		}
		lines = append(lines, line)
	}
	e.tree[to] = ociimage.Entry{Text: []byte(strings.Join(lines, "")), Mode: 0o644}
	return nil
}

// dist adds a distribution to the parts.
func (e *environment) dist(file string) error {
	p, err := readDist(file)
	if err == nil && p.name != "" {
		*e.parts = append(*e.parts, p)
	}
	return err
}

// records writes the lists of installed files anew: without the files that are left out, and with the digests of
// scripts that were changed.
func (e *environment) records() error {
	for to, entry := range e.tree {
		if path.Base(to) != "RECORD" || !strings.HasSuffix(path.Dir(to), ".dist-info") {
			continue
		}
		text, ok, err := textFile(entry.From, 64<<20)
		if err != nil || !ok {
			return fmt.Errorf("environment: %s cannot be read (%v)", entry.From, err)
		}
		text, err = e.record(string(text))
		if err != nil {
			return fmt.Errorf("environment: %s: %w", entry.From, err)
		}
		e.tree[to] = ociimage.Entry{Text: text, Mode: 0o644}
	}
	return nil
}

func (e *environment) record(text string) ([]byte, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	kept := rows[:0]
	for _, row := range rows {
		if len(row) != 3 {
			continue
		}
		entry, has := e.tree[path.Join(e.packages, row[0])]
		if !has {
			continue
		}
		if entry.From == "" && row[1] != "" {
			sum := sha256.Sum256(entry.Text)
			row[1] = "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:])
			row[2] = strconv.Itoa(len(entry.Text))
		}
		kept = append(kept, row)
	}
	slices.SortFunc(kept, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	var out strings.Builder
	w := csv.NewWriter(&out)
	if err := w.WriteAll(kept); err != nil {
		return nil, err
	}
	return []byte(out.String()), nil
}

// systemPackages adds the packages that an environment takes from the interpreter's system.
func systemPackages(p interpreter, libs *libraries, parts *[]part) error {
	for _, inside := range []string{"lib/python" + p.version + "/site-packages", "lib/python3/dist-packages",
		"lib/python" + p.version + "/dist-packages"} {
		from := filepath.Join(p.prefix, inside)
		if st, err := os.Stat(from); err != nil || !st.IsDir() {
			continue
		}
		to := path.Join(PythonAt[1:], inside)
		if err := libs.copyPython(p, from, to, func(string) bool { return false }); err != nil {
			return err
		}
		for _, pattern := range []string{"*.dist-info/METADATA", "*.egg-info/PKG-INFO"} {
			found, err := filepath.Glob(filepath.Join(from, pattern))
			if err != nil {
				return err
			}
			for _, file := range found {
				d, err := readDist(file)
				if err != nil {
					return err
				}
				if d.name != "" {
					*parts = append(*parts, d)
				}
			}
		}
	}
	return nil
}
