package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"millrace/apps/guard"
	"millrace/apps/program"
	"millrace/internal/rootfile"
)

// install makes a virtual environment with the packages, and returns the packages and the installer.
func (j *job) install(ctx context.Context, path string) ([]Package, string, error) {
	if j.tool.name == "uv" {
		return j.uv(ctx, path)
	}
	return j.pip(ctx, path)
}

// program returns a program of the installation, which writes in the environment. There is no cache: code of a package
// could put a package into the cache for later builds.
func (j *job) program(step, path string, args ...string) *program.Program {
	p := &program.Program{Args: args, Dir: j.dir, Network: j.Wheels == "", Pass: j.Pass, Limit: j.Limit,
		LimitName: LimitName, Limits: j.Limits, OnLine: j.line(step), Write: []string{path},
		Read: slices.Concat(j.reads, []string{j.Wheels, "/etc/pip.conf", "/etc/xdg/pip", uvSettings},
			program.Installation(j.python.Path)),
		Env: []string{"VIRTUAL_ENV=" + path, "PIP_NO_CACHE_DIR=1", "PIP_DISABLE_PIP_VERSION_CHECK=1",
			"PIP_NO_INPUT=1", "UV_NO_CACHE=1", "UV_NO_PROGRESS=1", "UV_PYTHON_DOWNLOADS=never",
			"UV_LINK_MODE=copy", "UV_COMPILE_BYTECODE=1"}}
	// uv would take settings of the application, and of folders above it, which no key of an environment follows.
	if isFile(uvSettings) {
		p.Env = append(p.Env, "UV_CONFIG_FILE="+uvSettings)
	} else {
		p.Env = append(p.Env, "UV_NO_CONFIG=1")
	}
	if j.local { // the backends of packages in folders write beside them
		p.Write = append(p.Write, j.app.Root)
	}
	return p
}

// uvSettings are the settings of uv for all users of the machine.
const uvSettings = "/etc/uv/uv.toml"

func (j *job) run(ctx context.Context, p *program.Program) (out string, err error) {
	if !slices.Contains(p.Write, j.app.Root) {
		return p.Run(ctx)
	}
	err = guard.Run(j.app.Root, control, j.note, func() error {
		out, err = p.Run(ctx)
		return err
	})
	return out, err
}

// pip installs with the pip of the interpreter or, where that is missing or too old, with a pip in the environment.
func (j *job) pip(ctx context.Context, path string) ([]Package, string, error) {
	args := []string{j.python.Path, "-I", "-m", "venv", "--without-pip"}
	if j.SystemSite {
		args = append(args, "--system-site-packages")
	}
	// -I: modules of the application, such as venv.py, do not take the place of Python's modules.
	report, python := filepath.Join(path, "report.json"), filepath.Join(path, "bin", "python")
	calls := [][]string{append(args, path)}
	install := []string{j.python.Path, "-I", "-m", "pip", "--python", python}
	if !j.python.installs() {
		calls = append(calls, []string{python, "-I", "-m", "ensurepip", "--upgrade", "--default-pip"})
		install = []string{python, "-I", "-m", "pip"}
	}
	for _, args := range calls {
		_, err := j.run(ctx, j.program("environment", path, args...))
		if err != nil && slices.Contains(args, "ensurepip") {
			err = fmt.Errorf("%w\n(%s brings no pip: install the package python3-pip or python3-venv)", err,
				j.python.Path)
		}
		if err != nil {
			return nil, "", fmt.Errorf("environment: %w", err)
		}
	}
	install = append(install, "install", "--no-cache-dir", "--no-warn-script-location", "--report", report)
	if j.Wheels != "" {
		install = append(install, "--no-index", "--find-links", j.Wheels)
	}
	files, err := j.files(ctx, path)
	if err != nil {
		return nil, "", err
	}
	if j.lock != nil {
		install = append(install, "--require-hashes", "--no-deps")
	}
	for _, file := range files {
		install = append(install, "-r", file)
	}
	if _, err := j.run(ctx, j.program("packages", path, install...)); err != nil {
		return nil, "", j.explain(err)
	}
	packages, version, err := readReport(report)
	return packages, "pip " + version, errors.Join(err, removeOwn(path))
}

// explain adds what the user can do about packages that cannot be installed.
func (j *job) explain(err error) error {
	switch {
	case j.lock != nil:
		return fmt.Errorf("the packages of %s cannot be installed: %w\n(to choose packages anew: build lock)%s",
			LockFile(j.app), err, j.indexHint(err))
	case j.Wheels != "":
		return fmt.Errorf("the requirements%s cannot be installed from %s: %w", j.from(), j.Wheels, err)
	}
	return fmt.Errorf("the requirements%s cannot be installed: %w%s", j.from(), err, j.indexHint(err))
}

// from returns the names of the requirements files for a message.
func (j *job) from() string {
	var names []string
	for _, file := range j.needs.Requirements {
		if name, err := filepath.Rel(j.app.Root, file); err == nil {
			file = name
		}
		names = append(names, file)
	}
	if len(names) == 0 {
		return ""
	}
	return " of " + strings.Join(names, " and ")
}

// indexHint says what to do about an index that cannot be reached, or lacks a package.
func (j *job) indexHint(err error) string {
	variable := "PIP_INDEX_URL"
	if j.tool.name == "uv" {
		variable = "UV_INDEX_URL"
	}
	lacks := func(text string) bool { return strings.Contains(err.Error(), text) }
	if !slices.ContainsFunc([]string{"No matching distribution", "connection broken", "Failed to fetch",
		"not found in the package registry"}, lacks) {
		return ""
	}
	return "\n(without an index: --wheels FOLDER; another index: --pass " + variable + ")"
}

// Files of a build in an environment. They name addresses, which no image may have.
const (
	lockedFile   = "locked.txt"
	optionsFile  = "options.txt"
	projectFile  = "project.txt"
	packagesFile = "packages.txt"
	resolvedFile = "resolved.txt"
)

// removeOwn removes the files of a build.
func removeOwn(path string) error {
	var errs []error
	for _, name := range []string{lockedFile, optionsFile, projectFile, packagesFile, resolvedFile} {
		errs = append(errs, os.RemoveAll(filepath.Join(path, name)))
	}
	return errors.Join(errs...)
}

// files returns the requirements files for the installer.
func (j *job) files(ctx context.Context, path string) (files []string, err error) {
	own := func(name string, text []byte) error {
		file := filepath.Join(path, name)
		files = append(files, file)
		return rootfile.Write(path, name, text)
	}
	if j.lock != nil {
		err = own(lockedFile, j.lock.requirements())
		if len(j.options) > 0 {
			err = errors.Join(err, own(optionsFile, j.options))
		}
		return files, err
	}
	for _, file := range j.needs.Requirements {
		if filepath.Base(file) != project {
			files = append(files, file)
			continue
		}
		out, err := j.run(ctx, j.program("requirements", path, j.python.Path, "-I", "-c", dependencies, file))
		if err == nil {
			err = own(projectFile, []byte(out))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if text := j.packages(); len(text) > 0 {
		err = own(packagesFile, text)
	}
	return files, err
}

// packages returns the requirements that are in no file of the application.
func (j *job) packages() []byte {
	text := slices.Clone(j.pinned)
	for _, p := range j.needs.Packages {
		text = append(append(text, p...), '\n')
	}
	return text
}

// readReport returns the packages in a report of pip.
func readReport(file string) ([]Package, string, error) {
	text, err := rootfile.Read(filepath.Dir(file), filepath.Base(file), maxReport)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("pip wrote no report: pip 22.2 or newer is needed, which Python 3.9 or newer brings")
		}
		return nil, "", err
	}
	var report struct {
		Version string `json:"pip_version"`
		Install []struct {
			Direct   bool `json:"is_direct"`
			Metadata struct{ Name, Version string }
			Download struct {
				URL     string `json:"url"`
				Archive *struct {
					Hash   string            `json:"hash"`
					Hashes map[string]string `json:"hashes"`
				} `json:"archive_info"`
			} `json:"download_info"`
		}
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, "", fmt.Errorf("the report of pip: %w", err)
	}
	packages := []Package{}
	for _, i := range report.Install {
		p := Package{Name: normal(i.Metadata.Name), Version: i.Metadata.Version, Hashes: []string{}}
		if i.Direct {
			p.URL = i.Download.URL
		}
		if a := i.Download.Archive; a != nil {
			if sum := a.Hashes["sha256"]; sum != "" {
				p.Hashes = []string{"sha256:" + sum}
			} else if kind, sum, ok := strings.Cut(a.Hash, "="); ok {
				p.Hashes = []string{kind + ":" + sum}
			}
		}
		packages = append(packages, p)
	}
	sortPackages(packages)
	return packages, report.Version, os.Remove(file)
}

func sortPackages(p []Package) {
	slices.SortFunc(p, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
}

var separators = regexp.MustCompile(`[-_.]+`)

// normal returns the name of a package as indexes compare names (PEP 503).
func normal(name string) string { return separators.ReplaceAllString(strings.ToLower(name), "-") }
