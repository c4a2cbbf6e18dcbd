package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"millrace/internal/filelock"
)

// markFile returns the file that makes an environment complete: the last file of a build. The file is beside the
// environment, where packages do not write.
func markFile(path string) string { return path + ".mark" }

// Environment is a Python environment that is complete.
type Environment struct {
	Path        string    `json:"path"`
	Key         string    `json:"key"`         // digest of all that determines the environment
	Interpreter string    `json:"interpreter"` // the Python on which the environment is built
	Python      string    `json:"python"`      // version
	Platform    string    `json:"platform"`
	Installer   string    `json:"installer"` // name and version
	SystemSite  bool      `json:"system_site_packages"`
	Sum         string    `json:"requirements"` // digest
	Packages    []Package `json:"packages"`
}

// Package is an installed package.
type Package struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	URL     string   `json:"url,omitempty"` // of a package that the requirements name by an address
	Hashes  []string `json:"hashes"`        // such as sha256:..., of the file; none for a folder or repository
}

func (e *Environment) key() string {
	if e == nil {
		return ""
	}
	return e.Key
}

// readEnvironment returns the environment in a folder; nil without a complete environment.
func readEnvironment(path string) (*Environment, error) {
	text, err := os.ReadFile(markFile(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := &Environment{}
	if json.Unmarshal(text, e) != nil || e.Path != path {
		return nil, nil
	}
	return e, nil
}

// environment returns the environment of the application, and whether this call made the environment.
func (j *job) environment(ctx context.Context) (env *Environment, made bool, err error) {
	if len(j.needs.Requirements)+len(j.needs.Packages) == 0 {
		return nil, false, os.RemoveAll(pointerFile(j.base, j.app, j.needs.Variant))
	}
	if err := j.determine(ctx); err != nil {
		return nil, false, err
	}
	key := j.key()
	path := filepath.Join(j.base, key[:20])
	if env, err = j.find(path, key); err != nil {
		return nil, false, err
	}
	if env == nil || j.Rebuild || j.Relock {
		if env, err = j.make(ctx, path, key); err != nil {
			return nil, false, err
		}
		made = true
	}
	p := pointer{File: j.app.File, Environment: filepath.Base(env.Path), Sum: j.sum, Lock: j.locked}
	if err := writeControl(pointerFile(j.base, j.app, j.needs.Variant), p); err != nil {
		return nil, false, err
	}
	return env, made, j.removeUnused()
}

// find returns the environment with the key or, with a lock file, an environment that has exactly the locked packages;
// nil without.
func (j *job) find(path, key string) (*Environment, error) {
	complete := func(path string) (*Environment, error) {
		env, err := readEnvironment(path)
		if err != nil || env == nil || !isFile(filepath.Join(path, "bin", "python")) {
			return nil, err
		}
		return env, nil
	}
	env, err := complete(path)
	if err != nil || env != nil && env.Key == key {
		return env, err
	}
	all, err := os.ReadDir(j.base)
	if err != nil || j.lock == nil {
		return nil, err
	}
	for _, e := range all {
		env, err := complete(filepath.Join(j.base, e.Name()))
		if err == nil && env != nil && env.Interpreter == j.python.Path && env.Python == j.python.Version &&
			env.SystemSite == j.SystemSite && reflect.DeepEqual(env.Packages, j.lock.Packages) {
			return env, nil
		}
	}
	return nil, nil
}

// determine finds all that determines the environment.
func (j *job) determine(ctx context.Context) (err error) {
	r, err := inspect(j.app.Root, j.dir, j.needs.Requirements, j.needs.Packages)
	if err != nil {
		return err
	}
	j.sum, j.local, j.reads = r.sum(), r.local, r.reads()
	j.options = []byte(strings.Join(append(r.options, ""), "\n"))
	if j.Wheels != "" {
		if j.Wheels, err = filepath.Abs(j.Wheels); err != nil {
			return err
		}
		if j.wheels, err = wheelsDigest(j.Wheels); err != nil {
			return err
		}
	}
	if j.python, err = findInterpreter(ctx, j.Python); err != nil {
		return err
	}
	if j.tool, err = findTool(ctx, j.Tool, j.SystemSite); err != nil {
		return err
	}
	j.noteUnread()
	if j.Relock {
		return nil
	}
	if j.locked, err = lockDigest(j.app); err != nil {
		return err
	}
	if j.lock, err = readLock(LockFile(j.app)); err != nil || j.lock == nil {
		return err
	}
	if j.needs.Variant != "" { // with packages that the lock file does not have
		j.pinned, j.lock = j.lock.versions(), nil
		return nil
	}
	return j.lock.check(j)
}

func (j *job) key() string {
	sum := sha256.New()
	packages := []byte(j.sum)
	if j.lock != nil {
		packages = j.lock.requirements()
	}
	packages = append(packages, j.pinned...)
	_, _ = fmt.Fprintf(sum, "1\n%q\n%s\n%q\n%q\n%v\n%s\n", packages, j.python, j.tool.text, j.wheels, j.SystemSite,
		j.app.Root)
	return hex.EncodeToString(sum.Sum(nil))
}

// make makes the environment at its final path, which scripts of packages contain. Without the mark, the folder is no
// environment, and the next call removes the folder.
func (j *job) make(ctx context.Context, path, key string) (*Environment, error) {
	if err := removeFolder(path); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		return nil, err
	}
	packages, version, err := j.install(ctx, path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	env := &Environment{Path: path, Key: key, Interpreter: j.python.Path, Python: j.python.Version,
		Platform: j.python.Platform, Installer: version, SystemSite: j.SystemSite, Sum: j.sum, Packages: packages}
	if j.lock != nil {
		if err := j.lock.equal(packages); err != nil {
			return nil, errors.Join(err, os.RemoveAll(path))
		}
	}
	return env, writeControl(markFile(path), env)
}

// removeFolder removes an environment that no process uses.
func removeFolder(path string) error {
	held, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(markFile(path))
	}
	if err != nil {
		return err
	}
	defer func() { _ = filelock.Close(held) }()
	if err := filelock.TryLock(held); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			return fmt.Errorf("a server uses the environment %s: stop it before the build", path)
		}
		return err
	}
	return errors.Join(os.RemoveAll(markFile(path)), os.RemoveAll(path))
}

// removeUnused removes environments of earlier builds, unless a process uses them.
func (j *job) removeUnused() error {
	entries, err := os.ReadDir(j.base)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(j.base, e.Name()))
		if err != nil {
			return err
		}
		var p pointer
		if json.Unmarshal(text, &p) == nil {
			used[p.Environment] = true
		}
	}
	for _, e := range entries {
		if e.IsDir() && len(e.Name()) == 20 && !used[e.Name()] {
			_ = removeFolder(filepath.Join(j.base, e.Name())) // in use: the next build tries again
		}
	}
	return nil
}
