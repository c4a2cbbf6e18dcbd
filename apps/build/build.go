// Package build makes what an application needs before it runs: a Python environment with the packages of its
// requirements, downloaded files, and the files of its setup commands.
//
// The package owns the environments, their keys and their lock files. The package must not know the form of
// configuration files, nor how an application is served.
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
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"millrace/apps"
	"millrace/apps/guard"
	"millrace/apps/modelsource"
	"millrace/apps/program"
	"millrace/internal/filelock"
	"millrace/internal/rootfile"
)

// Options are the options of Build.
type Options struct {
	Dir           string // holds apps.Folder; "" = the working directory
	Python        string // interpreter: a path, or a name in PATH
	Tool          string // of Tools
	Wheels        string // folder of packages in place of an index; "" = the index
	SystemSite    bool   // packages of the interpreter's system are visible in the environment
	Network       bool   // for setup commands
	SystemInstall bool   // install Debian packages
	Pass          []string
	Limit         time.Duration       // of each program
	Limits        program.Limits      // the same
	Rebuild       bool                // make the environment afresh, and run setup commands again
	Relock        bool                // choose the packages anew, without the lock file
	Sources       modelsource.Options // of files at addresses
	OnLine        func(step, line string)
	OnSystem      func(missing []string) // called before Debian packages are installed
	OnNote        func(note string)      // called with notes about .git folders and unread files, also before an error
}

// LimitName is the flag of Options.Limit.
const LimitName = "--build-timeout"

// Result is what Build did.
type Result struct {
	Environment *Environment `json:"environment"` // null = the application needs none
	Made        bool         `json:"made"`        // false = an earlier call made the environment
	Files       []string     `json:"files"`       // files that were downloaded
	Setup       []string     `json:"setup"`       // commands that ran
	System      []string     `json:"system"`      // Debian packages that were installed
}

// job is a call of Build.
type job struct {
	Options
	app    *apps.App
	needs  *apps.Needs
	base   string // folder of the application's environments
	dir    string // working folder of programs: that of the configuration file
	python interpreter
	tool   tool
	sum    string // digest of the requirements
	local  bool   // packages are in the application's folder
	reads  []string
	// options are the lines of the requirements that say where packages are.
	options []byte
	lock    *Lock  // nil = none
	locked  string // digest of the lock file
	pinned  []byte // requirements of a variant, from the lock file
	wheels  string // digest
	noted   []string
}

// Build makes the environment of an application, unless an earlier call made the environment from equal requirements,
// and runs the setup commands. The caller must keep the application in use, see apps.App.Step. At any time one call at
// most works on environments of applications of a name.
func Build(ctx context.Context, app *apps.App, needs *apps.Needs, o Options) (*Result, error) {
	if err := program.Check(); err != nil {
		return nil, err
	}
	j := &job{Options: o, app: app, needs: needs, dir: filepath.Dir(app.File)}
	var err error
	if j.base, err = folder(app, o.Dir); err != nil {
		return nil, err
	}
	if err := makeBase(j.base); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(j.base, "build.lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	defer func() { _ = filelock.Close(lock) }()
	if err := filelock.TryLock(lock); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			err = fmt.Errorf("another build of %s is running: wait for its end", app.Name)
		}
		return nil, err
	}
	notes, err := guard.Settle(app.Root)
	for _, note := range notes {
		j.note(note)
	}
	if err != nil {
		return nil, fmt.Errorf("an earlier build was killed: %w", err)
	}
	r := &Result{Files: []string{}, Setup: []string{}, System: []string{}}
	if installed, err := j.system(ctx); err != nil {
		return nil, err
	} else if installed != nil {
		r.System = installed
	}
	if r.Environment, r.Made, err = j.environment(ctx); err != nil {
		return nil, err
	}
	if r.Files, err = j.download(ctx); err != nil {
		return nil, err
	}
	if r.Setup, err = j.setup(ctx, r.Environment); err != nil {
		return nil, err
	}
	return r, nil
}

// ForTests returns the needs of an application's tests: the packages of the application and those of
// tests/requirements.txt, in a further environment. The result is needs without the file.
func ForTests(app *apps.App, needs *apps.Needs) *apps.Needs {
	file := filepath.Join(filepath.Dir(app.File), "tests", "requirements.txt")
	if !isFile(file) {
		return needs
	}
	of := *needs
	of.Variant, of.Setup, of.System, of.Files = "-test", nil, nil, nil
	of.Requirements = append(slices.Clip(of.Requirements), file)
	return &of
}

// folder returns the folder of an application's environments.
func folder(app *apps.App, dir string) (string, error) {
	base, err := app.Files(dir)
	return base + apps.Environments, err
}

// control is the end of the path of folders that programs must not make.
var control = filepath.Join(apps.Folder, apps.Control)

// makeBase makes the folder of environments, and refuses links in it, which only a program of an application can have
// made.
func makeBase(base string) error {
	if err := os.Mkdir(base, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := os.Lstat(base)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is no folder: remove it", base)
	}
	entries, err := os.ReadDir(base)
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link, which no build makes: remove the folder %s",
				filepath.Join(base, e.Name()), base)
		}
	}
	return err
}

func (j *job) line(step string) func(string) {
	if j.OnLine == nil {
		return nil
	}
	return func(line string) { j.OnLine(step, line) }
}

// note passes a note on, once.
func (j *job) note(text string) {
	if j.OnNote != nil && !slices.Contains(j.noted, text) {
		j.noted = append(j.noted, text)
		j.OnNote(text)
	}
}

// setup runs the setup commands, and returns the names of those that ran. In a clone, commands run once.
func (j *job) setup(ctx context.Context, env *Environment) ([]string, error) {
	ran := []string{}
	if len(j.needs.Setup) == 0 {
		return ran, nil
	}
	text, err := json.Marshal(j.needs.Setup)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s\n%s\n%s\n", j.app.Commit, env.key(), text)
	digest := hex.EncodeToString(sum.Sum(nil))
	done := filepath.Join(".git", "millrace-setup-"+id(j.app))
	old, err := rootfile.Read(j.app.Root, done, 1<<10)
	if err == nil && string(old) == digest && !j.Rebuild && j.app.Cloned() {
		return ran, nil
	}
	err = guard.Run(j.app.Root, control, j.note, func() error {
		for _, c := range j.needs.Setup {
			p := Program(c, j.app, env)
			p.Write = append(p.Write, j.app.Root)
			p.Network, p.Pass, p.Limit, p.LimitName, p.OnLine = j.Network, j.Pass, j.Limit, LimitName, j.line(c.Name)
			p.Limits = j.Limits
			if _, err := p.Run(ctx); err != nil {
				hint := ""
				if !j.Network {
					hint = "\n(commands have no network, unless --allow-network, and write only in " + j.app.Root + ")"
				}
				return fmt.Errorf("setup: %s: %w%s", c.Name, err, hint)
			}
			ran = append(ran, c.Name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if j.app.Cloned() {
		err = rootfile.Write(j.app.Root, done, []byte(digest))
	}
	return ran, err
}

// Program returns the program of a command of an application, with access to the application for reading, and with
// the interpreter of the environment, or of PATH without an environment.
func Program(c apps.Command, app *apps.App, env *Environment) *program.Program {
	p := &program.Program{Args: c.Args, Stdin: c.Stdin, Dir: filepath.Dir(app.File),
		Read: append([]string{app.Root}, c.Read...)}
	if env != nil {
		p.Bin = filepath.Join(env.Path, "bin")
		p.Env = []string{"VIRTUAL_ENV=" + env.Path}
		p.Read = append(append(p.Read, env.Path), program.Installation(env.Interpreter)...)
		if python := filepath.Join(p.Bin, c.Args[0]); isFile(python) { // not looked for in the variables of the program
			p.Args = append([]string{python}, c.Args[1:]...)
		}
	} else if python, err := exec.LookPath("python3"); err == nil {
		p.Read = append(p.Read, program.Installation(python)...)
	}
	return p
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// id distinguishes configuration files.
func id(app *apps.App) string {
	sum := sha256.Sum256([]byte(app.File))
	return hex.EncodeToString(sum[:8])
}

// pointer says which environment belongs to a configuration file.
type pointer struct {
	File        string `json:"file"`
	Environment string `json:"environment"` // name of the folder
	Sum         string `json:"requirements"`
	Lock        string `json:"lock"` // digest of the lock file by which Build worked; "" = none
}

// pointerFile returns the path of the pointer to the environment of a variant.
func pointerFile(base string, app *apps.App, variant string) string {
	return filepath.Join(base, id(app)+variant+".json")
}

func readPointer(base string, app *apps.App, variant string) (*pointer, error) {
	text, err := os.ReadFile(pointerFile(base, app, variant))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &pointer{}
	if json.Unmarshal(text, p) != nil || p.File != app.File || !filepath.IsLocal(p.Environment) {
		return nil, nil
	}
	return p, nil
}

// Open returns the environment that Build made for an application, which no Build removes until release is called.
// The environment is nil for an application without requirements. An application without a build, and one with other
// requirements or another lock file than at the last build, are refused. dir is that of Options.
func Open(app *apps.App, needs *apps.Needs, dir string) (env *Environment, release func(), err error) {
	lock, err := lockDigest(app)
	if err != nil {
		return nil, func() {}, err
	}
	return open(app, needs, dir, func(p *pointer) bool { return p.Lock == lock })
}

// Relock writes the lock file from the environment that Build made; nil = the application has no requirements. The
// environment then is that of the lock file.
func Relock(app *apps.App, needs *apps.Needs, dir string) (*Lock, error) {
	var of pointer
	env, release, err := open(app, needs, dir, func(p *pointer) bool {
		of = *p
		return true
	})
	if err != nil || env == nil {
		return nil, err
	}
	defer release()
	l, err := WriteLock(app, env)
	if err != nil {
		return nil, err
	}
	if of.Lock, err = lockDigest(app); err != nil {
		return nil, err
	}
	base, err := folder(app, dir)
	if err != nil {
		return nil, err
	}
	return l, writeControl(pointerFile(base, app, needs.Variant), of)
}

func open(app *apps.App, needs *apps.Needs, dir string, valid func(*pointer) bool) (env *Environment, release func(),
	err error) {
	release = func() {}
	base, err := folder(app, dir)
	if err != nil {
		return nil, release, err
	}
	if err := checkPlaced(base, app, needs.Files); err != nil {
		return nil, release, err
	}
	p, err := readPointer(base, app, needs.Variant)
	if err != nil {
		return nil, release, err
	}
	if p == nil {
		if len(needs.Requirements)+len(needs.Packages) > 0 {
			err = fmt.Errorf("the packages of %s are not installed in %s: add the command build", app.Name, base)
		}
		return nil, release, err
	}
	sum, _, err := digest(app.Root, filepath.Dir(app.File), needs.Requirements, needs.Packages)
	if err != nil {
		return nil, release, err
	}
	path := filepath.Join(base, p.Environment)
	held, err := os.Open(path)
	if err == nil {
		if env, err = keep(held, path); err != nil || env == nil {
			_ = filelock.Close(held)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, release, err
	}
	if env == nil {
		return nil, release, changed(app)
	}
	release = func() { _ = filelock.Close(held) }
	if p.Sum != sum || !valid(p) || !isFile(filepath.Join(path, "bin", "python")) {
		release()
		return nil, func() {}, changed(app)
	}
	env.Sum = p.Sum // an environment may serve several lists of requirements with the same packages
	return env, release, nil
}

func changed(app *apps.App) error {
	return fmt.Errorf("the requirements of %s, its lock file or its environment have changed since the last build: "+
		"add the command build", app.Name)
}

// keep marks an open folder as in use, and returns the environment in the folder; nil when a build has removed the
// folder, or has not completed it.
func keep(held *os.File, path string) (*Environment, error) {
	if err := filelock.TryShare(held); err != nil {
		return nil, fmt.Errorf("another process replaces %s: wait for its end", path)
	}
	old, err := held.Stat()
	if err != nil {
		return nil, err
	}
	if now, err := os.Lstat(path); err != nil || !os.SameFile(old, now) {
		return nil, err
	}
	return readEnvironment(path)
}
