package apps

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
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/apps/guard"
	"millrace/apps/source"
	"millrace/internal/cachedir"
	"millrace/internal/filelock"
	"millrace/internal/secret"
)

// Folder is the folder of clones in the working directory.
const Folder = ".repo"

const (
	Control = ".millrace" // folder in Folder: locks, environments, and clones in the making
	// Environments is the ending of the folder of environments, see App.Files.
	Environments = ".env"
	markFile     = "millrace.json" // in .git of a clone
)

// Options are the options of Init.
type Options struct {
	Dir     string   // holds Folder; "" = the working directory
	Formats []Format // besides Millrace, in the order in which their default names are looked for
	Discard bool     // remove local changes of an earlier clone
	Fetch   source.Options
}

// mark is what a clone says about itself.
type mark struct {
	Version    int                  `json:"version"`
	Repository string               `json:"repository"` // without credentials
	Ref        string               `json:"ref"`        // as the user wrote it
	Commit     string               `json:"commit"`
	Submodules []source.Submodule   `json:"submodules,omitempty"`
	Made       map[string]time.Time `json:"made,omitempty"` // new files of steps, with the times of their last change
}

// clone is the place of a clone.
type clone struct {
	source source.Source
	root   string // the clone
	dir    string // Folder
	base   string // in the control folder, without the ending
}

// Files returns the path of the files that steps keep about the application outside of the application, without the
// ending: steps add endings such as .env. dir is that of Options. For a folder used in place that holds dir, the files
// are in the user's cache folder, since programs of the application may write everywhere in the folder.
func (a *App) Files(dir string) (string, error) {
	base, folders, err := a.files(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(folders[0]), 0o777); err != nil {
		return "", err
	}
	return base, makeFolders(folders...)
}

// files returns the path of Files, and the folders of the path in which programs must not write.
func (a *App) files(dir string) (base string, folders []string, err error) {
	c, err := cloneOf(dir, a.Source)
	if err != nil {
		return "", nil, err
	}
	if a.Cloned() {
		return c.base, c.folders(), nil
	}
	root, err := filepath.EvalSymlinks(a.Root)
	if err != nil {
		return "", nil, err
	}
	if at, err := filepath.EvalSymlinks(filepath.Dir(c.dir)); err != nil {
		return "", nil, err
	} else if !Within(root, at) {
		return c.base, c.folders(), nil
	}
	cache, err := cachedir.Dir()
	if err == nil {
		cache, err = filepath.EvalSymlinks(cache)
	}
	if err != nil {
		return "", nil, err
	}
	if Within(root, cache) {
		return "", nil, fmt.Errorf("the application's folder %s holds the cache folder %s, where programs of the "+
			"application must not write: name a folder below, or set XDG_CACHE_HOME to another folder", a.Root, cache)
	}
	sum := sha256.Sum256([]byte(root))
	at := filepath.Join(cache, "apps", hex.EncodeToString(sum[:10]))
	return filepath.Join(at, a.Source.Name()), []string{filepath.Dir(at), at}, nil
}

// ErrKilled means that a step was killed while programs of the application ran.
var ErrKilled = errors.New("an earlier build was killed")

// settle puts back what programs of a killed step have changed in .git folders of an application's folder. notes are
// for the user.
func settle(root, name string) (notes []string, err error) {
	notes, err = guard.Settle(root)
	if errors.Is(err, guard.ErrRunning) {
		return notes, fmt.Errorf("commands of a build of %s are running, which may change .git folders: wait for "+
			"the end of the build", name)
	}
	if err != nil {
		return notes, fmt.Errorf("%w: %w", ErrKilled, err)
	}
	return notes, nil
}

// Within reports whether a clean absolute path is a folder or a path in the folder.
func Within(folder, path string) bool {
	name, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(name)
}

func (c *clone) folders() []string { return []string{c.dir, filepath.Dir(c.base)} }

// control makes the control folder.
func (c *clone) control() error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o777); err != nil {
		return err
	}
	return makeFolders(c.folders()...)
}

// makeFolders makes the missing ones of folders in which programs of applications must not write. A link in the place
// of a folder is refused: a program may have made the link.
func makeFolders(paths ...string) error {
	for _, path := range paths {
		if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if st, err := os.Lstat(path); err != nil {
			return err
		} else if !st.IsDir() {
			return fmt.Errorf("%s is a link or a file, and must be a folder: remove it", path)
		}
	}
	return nil
}

func cloneOf(dir string, s source.Source) (*clone, error) {
	dir, err := filepath.Abs(filepath.Join(dir, Folder))
	if err != nil {
		return nil, err
	}
	name := s.Name()
	return &clone{source: s, dir: dir, root: filepath.Join(dir, name), base: filepath.Join(dir, Control, name)}, nil
}

// Init clones the repository of s afresh into .repo/NAME, and returns the application. Init replaces only clones that
// Init made, from the same repository, without local changes unless Options.Discard. A folder as the repository is used
// in place: the result is nil. At any time one Init at most works on a clone, and none while the clone is in use.
func Init(ctx context.Context, s source.Source, o Options) (*App, *source.Result, error) {
	if s.Kind == source.Folder {
		a, err := Open(s, o)
		return a, nil, err
	}
	c, err := cloneOf(o.Dir, s)
	if err != nil {
		return nil, nil, err
	}
	if err := c.control(); err != nil {
		return nil, nil, err
	}
	lock, err := c.lock(filelock.TryLock)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = filelock.Close(lock) }()
	notes, err := settle(c.root, s.Name())
	if err != nil {
		return nil, nil, err
	}
	if err := c.recover(); err != nil {
		return nil, nil, err
	}
	if err := c.mayReplace(o.Discard); err != nil {
		return nil, nil, err
	}
	next := c.base + ".new"
	defer func() { _ = os.RemoveAll(next) }()
	result, err := source.Fetch(ctx, s, next, o.Fetch)
	if err != nil {
		return nil, nil, err
	}
	m := mark{Version: 1, Repository: s.Address(), Ref: s.Ref, Commit: result.Commit, Submodules: result.Submodules}
	if err := m.write(next); err != nil {
		return nil, nil, err
	}
	if _, err := find(s, next, o.Formats); err != nil { // before the earlier clone is removed
		return nil, nil, err
	}
	if err := c.replace(next); err != nil {
		return nil, nil, err
	}
	a, err := find(s, c.root, o.Formats)
	if err != nil {
		return nil, nil, err
	}
	a.Commit, a.Notes = result.Commit, notes
	return a, result, nil
}

// Open returns the application of s as the last Init left the application, or of a folder.
func Open(s source.Source, o Options) (*App, error) {
	if s.Kind == source.Folder {
		root := s.Path()
		if !filepath.IsAbs(root) {
			root = filepath.Join(o.Dir, root)
		}
		notes, settled := settle(root, s.Name())
		st, err := os.Stat(root)
		switch {
		case errors.Is(err, fs.ErrNotExist) && len(notes) > 0:
			return nil, fmt.Errorf("there is no folder %s: %s", root, strings.Join(notes, "\n"))
		case errors.Is(err, fs.ErrNotExist) && strings.Contains(root, "@"):
			return nil, fmt.Errorf("there is no folder %s: a folder has no branch, which file:///PATH@BRANCH has", root)
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("there is no folder %s: compare the path", root)
		case err == nil && !st.IsDir():
			return nil, fmt.Errorf("%s is not a folder: write FOLDER|%s", root, filepath.Base(root))
		case err != nil:
			return nil, err
		}
		if settled != nil {
			return nil, settled
		}
		a, err := find(s, root, o.Formats)
		if err == nil {
			a.Notes = notes
		}
		return a, err
	}
	c, err := cloneOf(o.Dir, s)
	if err != nil {
		return nil, err
	}
	notes, err := settle(c.root, s.Name())
	if err != nil {
		return nil, err
	}
	m, err := c.mark()
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, fmt.Errorf("%s is not cloned yet: add the command init", s)
	case m.Repository != s.Address() || m.Ref != s.Ref:
		return nil, fmt.Errorf("%s is a clone of %s: add the command init for %s", c.root, m.text(), s)
	}
	a, err := find(s, c.root, o.Formats)
	if err == nil {
		a.Commit, a.Notes = m.Commit, notes
	}
	return a, err
}

func (m *mark) text() string {
	if m.Ref == "" {
		return m.Repository
	}
	return m.Repository + "@" + m.Ref
}

// lock opens and locks the lock file of the clone.
func (c *clone) lock(how func(*os.File) error) (*os.File, error) {
	f, err := os.OpenFile(c.base+".lock", os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := how(f); err != nil {
		_ = f.Close()
		if errors.Is(err, filelock.ErrLocked) {
			return nil, fmt.Errorf("another process uses %s (init, or a server that runs from the clone): wait for "+
				"its end, or stop it", c.root)
		}
		return nil, err
	}
	return f, nil
}

// recover removes what a killed Init left, and puts back a clone that was about to be replaced.
func (c *clone) recover() error {
	if _, err := os.Lstat(c.root); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(c.base+".old", c.root); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(os.RemoveAll(c.base+".new"), os.RemoveAll(c.base+".old"))
}

// replace makes next the clone.
func (c *clone) replace(next string) error {
	if err := os.Rename(c.root, c.base+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(next, c.root); err != nil {
		return err
	}
	return os.RemoveAll(c.base + ".old")
}

// mayReplace refuses to replace what Init did not make, and local changes.
func (c *clone) mayReplace(discard bool) error {
	if _, err := os.Lstat(c.root); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	m, err := c.mark()
	switch {
	case err != nil:
		return err
	case m == nil:
		return fmt.Errorf("%s was not made by init, and is left alone: move it away, or work in another folder", c.root)
	case discard:
		return nil
	case m.Repository != c.source.Address():
		return fmt.Errorf("%s is a clone of another repository, %s: work in another folder, or replace the clone by "+
			"millrace app ... init --discard", c.root, m.Repository)
	}
	files, err := m.changes(c.root)
	if err != nil {
		return fmt.Errorf("%s: %w: repair the clone, or replace it by millrace app ... init --discard", c.root, err)
	}
	if len(files) > 0 {
		return &ChangesError{Root: c.root, Files: files}
	}
	return nil
}

// changes returns the local changes of a clone: changed files, new files of no step, and a commit of the user.
func (m *mark) changes(root string) ([]string, error) {
	diff, err := source.Changes(root, m.Submodules)
	if err != nil {
		return nil, err
	}
	files := append(diff.Changed, m.withoutMade(root, diff.New)...)
	if diff.Head != m.Commit {
		files = append(files, "the commit "+diff.Head)
	}
	return files, nil
}

// Changes returns the local changes of a clone, such as paths of files; none for a folder that is used in place.
func (a *App) Changes() ([]string, error) {
	if !a.Cloned() {
		return nil, nil
	}
	m, err := readMark(a.Root)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%s was not made by init: add the command init", a.Root)
	}
	return m.changes(a.Root)
}

// ChangesError means that a clone has local changes, which Init keeps.
type ChangesError struct {
	Root  string
	Files []string // paths in Root
}

// maxNamed is the greatest number of files in a message.
const maxNamed = 10

// Names lists files of a repository for a message.
func Names(files []string) string {
	more := ""
	if len(files) > maxNamed {
		files, more = files[:maxNamed], fmt.Sprintf(" and %d more", len(files)-maxNamed)
	}
	files = slices.Clone(files)
	for i, name := range files { // which the repository chooses
		if quoted := strconv.QuoteToGraphic(name); quoted != `"`+name+`"` {
			files[i] = quoted
		}
	}
	return strings.Join(files, ", ") + more
}

func (e *ChangesError) Error() string {
	var secrets []string
	for _, name := range e.Files {
		if secret.IsWithin(e.Root, name) {
			secrets = append(secrets, name)
		}
	}
	do := "Commit and push them, or copy them"
	if len(secrets) > 0 {
		do += ", but do not commit " + Names(secrets) + ", since such files have passwords and keys"
	}
	return fmt.Sprintf("%s has local changes, which init keeps: %s. %s. Then remove them by millrace app ... init "+
		"--discard", e.Root, Names(e.Files), do)
}

// mark reads the mark of the clone; nil = none, or no clone.
func (c *clone) mark() (*mark, error) {
	if st, err := os.Lstat(c.root); err != nil || !st.IsDir() {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	return readMark(c.root)
}

func readMark(root string) (*mark, error) {
	data, err := os.ReadFile(filepath.Join(root, ".git", markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &mark{}
	if err := json.Unmarshal(data, m); err != nil || m.Version != 1 {
		return nil, nil // of another program
	}
	return m, nil
}

func (m *mark) write(root string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(root, ".git", markFile)
	if err := os.WriteFile(file+".new", append(data, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
