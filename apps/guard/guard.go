// Package guard keeps programs of an application from changing what git trusts: .git folders, whose configuration and
// hooks name programs that the next call of git would run with the rights of the user.
//
// The package owns the saved state of .git folders, and puts changed folders back, also after a process that was
// killed. The package must not know the purpose of the programs.
package guard

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"millrace/internal/rootfile"
)

// Limits of what is saved of the .git folders of an application, and of the search for them.
var (
	maxKept    int64 = 16 << 20 // bytes of a file; a larger file is compared only
	maxSaved   int64 = 64 << 20 // bytes together
	maxEntries       = 100_000  // files and folders in .git together
	maxSearch        = 4 << 20  // files and folders of the application
)

// saved is the state of all .git files and folders below a folder, without the objects.
type saved struct {
	Root    string           `json:"root"`
	Control string           `json:"control"` // end of the path of folders that no program may make; "" = none
	Git     []string         `json:"git"`     // paths in Root
	Closed  []string         `json:"closed"`  // folders of other users, which this user cannot read
	Entries map[string]entry `json:"entries"` // by path in Root
}

// entry is a file, a folder or a link.
type entry struct {
	Mode fs.FileMode `json:"mode"`
	Text []byte      `json:"text,omitempty"` // of a file or a link
	Sum  []byte      `json:"sum,omitempty"`  // of a large file
	Skip bool        `json:"skip,omitempty"` // a folder whose contents are not saved
}

// ErrRunning means that programs run which may change .git folders.
var ErrRunning = errors.New("another build is running")

// Run runs code of an application that may write in the folder root, but not in the .git folders there. The state of
// the .git folders is on the disk meanwhile. control is the end of the path of folders that the code may not make,
// such as .repo/.millrace. note is called with what Run does not see. Errors: ErrRunning.
func Run(root, control string, note func(string), run func() error) error {
	k, err := newKeeper(root)
	if err != nil {
		return fmt.Errorf("before programs of the application run: %w", err)
	}
	release, err := k.lock()
	if err != nil {
		return err
	}
	defer release()
	s := &saved{Root: root, Control: control, Entries: map[string]entry{}}
	if err := s.save(); err != nil {
		return fmt.Errorf("before programs of the application run: %w", err)
	}
	if err := k.write(s); err != nil {
		return err
	}
	if len(s.Closed) > 0 {
		note(s.closedNote())
	}
	failed := run()
	return errors.Join(failed, s.restore(k.file(), false))
}

// save finds the .git files and folders, and reads their contents.
func (s *saved) save() error {
	var total int64
	err := s.search(nil, func(name string, err error) error {
		path := filepath.Join(s.Root, name)
		switch {
		case errors.Is(err, fs.ErrPermission) && !own(path):
			s.Closed = append(s.Closed, name)
			return nil
		case err != nil:
			return err
		case s.isControl(path):
			return fmt.Errorf("%s holds files about applications, which programs of this application could change: "+
				"remove the folder, or move the application to a folder of its own", path)
		}
		s.Git = append(s.Git, name)
		return s.add(name, &total)
	})
	if err != nil {
		return err
	}
	return s.addTargets(&total)
}

func (s *saved) closedNote() string {
	return fmt.Sprintf("%s has folders of other users, which cannot be read: changes of a .git there are not seen: %s",
		s.Root, quoted(s.Closed))
}

func (s *saved) isControl(path string) bool {
	return s.Control != "" && strings.HasSuffix(path, string(filepath.Separator)+s.Control)
}

// own reports whether a file is this user's, whose programs can then open the file for themselves.
func own(path string) bool {
	st, err := os.Lstat(path)
	if err != nil {
		return true
	}
	of, ok := st.Sys().(*syscall.Stat_t)
	return !ok || int(of.Uid) == os.Getuid()
}

// addTargets adds the folders to which .git files and links lead: those of submodules made by other programs.
func (s *saved) addTargets(total *int64) error {
	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return err
	}
	for _, name := range slices.Clone(s.Git) {
		e := s.Entries[name]
		path, ok := strings.CutPrefix(string(e.Text), "gitdir: ")
		if !ok && e.Mode.Type() != fs.ModeSymlink {
			continue
		}
		path = strings.TrimRight(path, "\r\n")
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, filepath.Dir(name), path)
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			continue // leads nowhere
		}
		path, err := filepath.Rel(root, path)
		if _, known := s.Entries[path]; err != nil || known || !filepath.IsLocal(path) || path == "." {
			continue
		}
		s.Git = append(s.Git, path)
		if err := s.add(path, total); err != nil {
			return err
		}
	}
	return nil
}

// search calls found with each .git and each control folder below Root, which search does not enter, and with each
// folder that cannot be read. enter is called with other folders before search reads them; nil = none.
func (s *saved) search(enter func(name string, d fs.DirEntry), found func(name string, err error) error) error {
	n := 0
	return filepath.WalkDir(s.Root, func(path string, d fs.DirEntry, err error) error {
		name, outside := filepath.Rel(s.Root, path)
		if outside != nil {
			return outside
		}
		if n++; n > maxSearch {
			return fmt.Errorf("%s has more than %d files and folders: remove those that the application does not need",
				s.Root, maxSearch)
		}
		_, known := s.Entries[name] // such as a folder to which a .git file leads
		switch {
		case err != nil, name != "." && d.Name() == ".git", s.isControl(path):
			if err = found(name, err); err != nil {
				return err
			}
		case !known && d.IsDir() && enter != nil:
			enter(name, d)
			return nil
		case !known:
			return nil
		}
		if d != nil && d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// add reads a .git file or folder.
func (s *saved) add(git string, total *int64) error {
	return filepath.WalkDir(filepath.Join(s.Root, git), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(s.Root, path)
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if len(s.Entries) >= maxEntries || *total > maxSaved {
			return fmt.Errorf("%s has more than %d files and folders, or more than %d MiB, besides its objects: pack "+
				"its references with git pack-refs --all, or use a clone of the repository",
				filepath.Join(s.Root, git), maxEntries, maxSaved>>20)
		}
		e := entry{Mode: st.Mode()}
		switch {
		case st.IsDir():
			e.Skip = objects(path)
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			e.Text = []byte(to)
		case !st.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file, and git makes no such file: remove it", path)
		case st.Size() > maxKept && (strings.HasPrefix(st.Name(), "config") ||
			filepath.Base(filepath.Dir(path)) == "hooks"):
			return fmt.Errorf("%s is larger than %d MiB, and git runs programs for it: remove it", path, maxKept>>20)
		case st.Size() > maxKept:
			e.Sum, err = sumOf(os.DirFS(filepath.Dir(path)), st.Name())
		default:
			e.Text, err = rootfile.Read(filepath.Dir(path), st.Name(), maxKept)
			*total += int64(len(e.Text))
		}
		if err != nil {
			return err
		}
		s.Entries[name] = e
		if e.Skip {
			return fs.SkipDir
		}
		return nil
	})
}

// objects reports whether a folder holds the objects of a repository, of Git LFS or of git-annex, and not a module.
func objects(path string) bool {
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	if filepath.Base(path) != "objects" || exists(filepath.Join(path, "HEAD")) {
		return false
	}
	parent := filepath.Dir(path)
	return exists(filepath.Join(parent, "HEAD")) || slices.Contains([]string{"lfs", "annex"}, filepath.Base(parent))
}

func sumOf(in fs.FS, name string) ([]byte, error) {
	f, err := in.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return sum.Sum(nil), err
}

// restore puts everything back that was changed, removes the file with the state, and returns an error that names the
// changes. An error at one file does not end the work, and the state stays for the next call. After a while, what git
// changes in a commit may be the user's work, and stays.
func (s *saved) restore(file string, later bool) error {
	if st, err := os.Lstat(s.Root); err == nil && st.Mode().Perm()&0o700 != 0o700 {
		_ = os.Chmod(s.Root, st.Mode().Perm()|0o700)
	}
	root, err := os.OpenRoot(s.Root)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	r := &restoring{root: root, saved: s, later: later}
	var names []string
	for name := range s.Entries {
		names = append(names, name)
	}
	slices.Sort(names) // a folder comes before its contents
	for _, name := range names {
		r.fail(r.put(name, s.Entries[name]))
	}
	for _, name := range names {
		if e := s.Entries[name]; e.Mode.IsDir() && !e.Skip {
			r.fail(r.removeNew(name))
		}
	}
	r.fail(r.removeFound())
	for _, name := range slices.Backward(names) {
		if e := s.Entries[name]; e.Mode.IsDir() {
			r.fail(root.Chmod(name, e.Mode.Perm()))
		}
	}
	if r.failed == nil {
		r.fail(os.Remove(file))
	}
	if len(r.changed) > 0 {
		slices.Sort(r.changed)
		r.notes = append([]error{fmt.Errorf("code of the application has changed %s, which was put back: do not run "+
			"this application", quoted(r.changed))}, r.notes...)
	}
	return errors.Join(append(r.notes, r.failed)...)
}

// removeFound removes new .git files and folders anywhere below Root.
func (r *restoring) removeFound() error {
	var remove []string
	err := r.saved.search(func(name string, d fs.DirEntry) {
		st, err := d.Info()
		if err == nil && st.Mode().Perm()&0o500 != 0o500 && !slices.Contains(r.saved.Closed, name) {
			_ = r.root.Chmod(name, st.Mode().Perm()|0o700)
		}
	}, func(name string, err error) error {
		_, had := r.saved.Entries[name]
		switch {
		case had, err != nil && slices.Contains(r.saved.Closed, name):
		case err == nil, errors.Is(err, syscall.ENAMETOOLONG): // which may hide a .git
			remove = append(remove, name)
		default:
			r.fail(err)
		}
		return nil
	})
	for _, name := range remove {
		r.changed = append(r.changed, name)
		err = errors.Join(err, r.remove(name))
	}
	return err
}

// quoted lists names that a program has chosen.
func quoted(names []string) string {
	const most = 10
	names = slices.Compact(names)
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	text := make([]string, len(names))
	for i, name := range names {
		text[i] = name
		if q := fmt.Sprintf("%+q", name); q != `"`+name+`"` {
			text[i] = q
		}
		if len(text[i]) > 200 {
			text[i] = text[i][:200] + "..."
		}
	}
	return strings.Join(text, ", ") + more
}

// restoring is a call of saved.restore.
type restoring struct {
	root    *os.Root
	saved   *saved
	later   bool
	changed []string // paths
	notes   []error  // what nobody can put back
	failed  error    // what the next call may put back
}

// users reports whether a changed or new file in .git may be the work of the user.
func (r *restoring) users(name string) bool {
	if !r.later {
		return false
	}
	if st, err := r.root.Lstat(name); err != nil || !st.IsDir() && !st.Mode().IsRegular() {
		return false
	}
	for _, git := range r.saved.Git {
		in, err := filepath.Rel(git, name)
		if err != nil || !filepath.IsLocal(in) {
			continue
		}
		first, _, _ := strings.Cut(in, "/")
		return slices.Contains([]string{"HEAD", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "index", "packed-refs",
			"refs", "logs"}, first)
	}
	return false
}

func (r *restoring) fail(err error) { r.failed = errors.Join(r.failed, err) }

// put makes name be as saved.
func (r *restoring) put(name string, e entry) error {
	if err := r.folders(filepath.Dir(name)); err != nil {
		return err
	}
	st, err := r.root.Lstat(name)
	if err == nil && st.Mode().Type() != e.Mode.Type() {
		r.changed = append(r.changed, name)
		if err := r.remove(name); err != nil {
			return err
		}
		err = fs.ErrNotExist
	} else if err != nil {
		r.changed = append(r.changed, name)
	}
	there := err == nil
	switch {
	case there && r.users(name):
		return nil
	case e.Mode.IsDir():
		if !there {
			err = r.root.Mkdir(name, 0o700)
			if e.Skip {
				r.notes = append(r.notes, fmt.Errorf("%s is lost: clone the repository anew", name))
			}
		}
		if there && st.Mode().Perm() != e.Mode.Perm() {
			r.changed = append(r.changed, name)
		}
		if err == nil {
			err = r.root.Chmod(name, e.Mode.Perm()|0o700)
		}
		return err
	case e.Mode.Type() == fs.ModeSymlink:
		if there {
			if to, err := r.root.Readlink(name); err == nil && to == string(e.Text) {
				return nil
			}
			r.changed = append(r.changed, name)
			if err := r.root.Remove(name); err != nil {
				return err
			}
		}
		return r.root.Symlink(string(e.Text), name)
	}
	if there && st.Mode().Perm() != e.Mode.Perm() {
		r.changed = append(r.changed, name)
		if err := r.root.Chmod(name, e.Mode.Perm()); err != nil {
			return err
		}
	}
	if len(e.Sum) > 0 {
		if there {
			sum, err := sumOf(r.root.FS(), filepath.ToSlash(name))
			if err == nil && bytes.Equal(sum, e.Sum) {
				return nil
			}
		}
		r.changed = append(r.changed, name)
		r.notes = append(r.notes, fmt.Errorf("%s is damaged, and too large to be put back: clone the repository anew",
			name))
		return nil
	}
	if there && st.Size() == int64(len(e.Text)) {
		if text, err := rootfile.Read(r.root.Name(), name, maxKept); err == nil && bytes.Equal(text, e.Text) {
			return nil
		}
	}
	if there {
		r.changed = append(r.changed, name)
	}
	err = rootfile.Replace(r.root, name, bytes.NewReader(e.Text), 0o600)
	return errors.Join(err, r.root.Chmod(name, e.Mode.Perm()))
}

// folders makes the folders on the way to a name, in place of what programs have made there.
func (r *restoring) folders(name string) error {
	if name == "." {
		return nil
	}
	if err := r.folders(filepath.Dir(name)); err != nil {
		return err
	}
	st, err := r.root.Lstat(name)
	if err == nil && st.IsDir() {
		if st.Mode().Perm()&0o700 == 0o700 {
			return nil
		}
		return r.root.Chmod(name, 0o700|st.Mode().Perm())
	}
	if err == nil {
		r.changed = append(r.changed, name)
		if err := r.remove(name); err != nil {
			return err
		}
	}
	return r.root.Mkdir(name, 0o777)
}

// removeNew removes what is new in a folder.
func (r *restoring) removeNew(folder string) error {
	f, err := r.root.Open(folder)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close()
	for _, name := range names {
		name = filepath.Join(folder, name)
		if _, had := r.saved.Entries[name]; !had && !r.users(name) {
			r.changed = append(r.changed, name)
			err = errors.Join(err, r.remove(name))
		}
	}
	return err
}

// remove removes a file or a folder. A folder that cannot be removed, such as one with too many levels, is moved to
// the top, under a name that git does not know.
func (r *restoring) remove(name string) error {
	r.open(name)
	if err := r.root.RemoveAll(name); err == nil {
		return nil
	}
	aside := "removed-" + rand.Text()
	if err := r.root.Rename(name, aside); err != nil {
		return err
	}
	r.notes = append(r.notes, fmt.Errorf("%s cannot be removed, and is now %s: remove it", quoted([]string{name}),
		filepath.Join(r.root.Name(), aside)))
	return nil
}

// open makes folders writable that a program has closed. Errors are those of the removal.
func (r *restoring) open(name string) {
	st, err := r.root.Lstat(name)
	if err != nil || !st.IsDir() {
		return
	}
	_ = r.root.Chmod(name, 0o700)
	_ = filepath.WalkDir(filepath.Join(r.root.Name(), name), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			if name, err := filepath.Rel(r.root.Name(), path); err == nil {
				_ = r.root.Chmod(name, 0o700)
			}
		}
		return nil
	})
}
