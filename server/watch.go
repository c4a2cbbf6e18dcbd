package server

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/internal/modelurl"
	"millrace/stream"
	"millrace/workers"
)

const (
	// watchPeriod is the time between two looks for changed files of programs. A change is
	// taken when two looks have found the same files.
	watchPeriod = 300 * time.Millisecond
	// maxVisited is the most files and folders visited to find a program's files, and maxDepth the most levels below
	// its folder.
	maxVisited = 4096
	maxDepth   = 8
	// The watch ignores a settings file that the program itself writes: a settings file that changes at maxMoves
	// looks in a row, or alone causes more than maxAlone reloads in a row with at most aloneLooks looks between two
	// reloads.
	maxMoves           = 10
	maxSettingsReloads = 2
	aloneLooks         = 30
)

// fileState identifies the content of a file.
type fileState struct {
	size  int64
	mtime time.Time
}

// watchedProgram is a program with watched files.
type watchedProgram struct {
	source, main string // the configured source, and its file
	loaded, seen map[string]fileState
	fixed        bool            // the folder is too large: look only at the known files
	written      map[string]bool // settings files that changed during the last load
	ignored      map[string]bool // settings files that the program writes
	moves        map[string]int  // consecutive looks at which a settings file had changed
	// loads in a row for files of settings alone, by file; "" = new files and missing files
	settingsReloads map[string]int
	empty           map[string]bool // empty files that were not empty at the load
	emptyLooks      int             // consecutive looks with empty files
	since           int             // looks since the last reload for settings files alone
}

// newWatched returns a program with the current state of its files.
func newWatched(source string) *watchedProgram {
	w := &watchedProgram{source: source, main: fileOf(source), ignored: map[string]bool{}}
	w.loaded = w.files()
	w.seen = w.loaded
	return w
}

// programWatch loads programs again when their files change, with the setting programs.watch. The list of programs is
// safe for concurrent use.
type programWatch struct {
	on       bool // the setting
	models   *workers.Manager
	life     *lifecycle
	log      *slog.Logger
	programs *programs

	mu  sync.Mutex
	all map[string]*watchedProgram
}

// newProgramWatch returns the watch of the files of programs; on is the setting.
func newProgramWatch(on bool, of *programs) *programWatch {
	return &programWatch{on: on, models: of.models, life: of.life, log: of.log, programs: of}
}

// start watches the programs of the configuration, from the state of their files before the load.
func (l *programWatch) start(models []workers.Config) {
	if !l.on {
		return
	}
	all := map[string]*watchedProgram{}
	for _, m := range models {
		m = m.WithDefaults()
		if !IsProgram(m.Kind) {
			continue
		}
		if w := l.watchedProgram(m); w != nil {
			all[m.Name] = w
		}
	}
	if len(all) == 0 {
		l.log.Warn("nothing is watched: the configuration has no program whose files are known", "setting", "watch")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = all
}

// watchedProgram returns a program with the state of its files before the load, or nil without known files.
func (l *programWatch) watchedProgram(m workers.Config) *watchedProgram {
	source := sourceOf(m)
	if source == "" {
		l.log.Warn("a program is not watched, because the server does not know its file: set command, or an entry of "+
			"args, to the path", "model", m.Name, "setting", "watch")
		return nil
	}
	w := newWatched(source)
	l.logFixed(m.Name, w)
	return w
}

// begin records the state of a model's files before a Reload loads the model. The caller calls watch after the
// load: watch starts the watch if the model is a program, and ends the watch of the previous program.
func (l *programWatch) begin(m workers.Config) (watch func()) {
	if !l.on {
		return func() {}
	}
	m = m.WithDefaults()
	var w *watchedProgram
	if IsProgram(m.Kind) {
		w = l.watchedProgram(m)
	}
	return func() {
		if w != nil {
			l.logOwn(m.Name, w.wasLoaded())
			if l.hasDaemons(m.Name) {
				w = nil
			}
		}
		l.set(m.Name, w)
	}
}

// set watches a program; w nil = the program is not watched.
func (l *programWatch) set(name string, w *watchedProgram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w == nil {
		delete(l.all, name)
	} else {
		l.all[name] = w
	}
}

// now returns a copy of the list.
func (l *programWatch) now() map[string]*watchedProgram {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.all)
}

// end ends the watch of a program, unless a newer watch has replaced w.
func (l *programWatch) end(name string, w *watchedProgram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[name] == w {
		delete(l.all, name)
	}
}

// sourceOf returns the file of a program: the file of its source, or the file in its command line.
func sourceOf(m workers.Config) string {
	if m.Source != "" && !modelurl.Is(m.Source) { // the setting poll watches an address
		return m.Source
	}
	isFile := func(path string) bool {
		st, err := os.Stat(path)
		return err == nil && st.Mode().IsRegular()
	}
	command, _ := m.Params["command"].(string)
	if isFile(command) {
		return command
	}
	dir, _ := m.Params["dir"].(string)
	text, _ := m.Params["args"].(string)
	var args []string
	_ = json.Unmarshal([]byte(text), &args) // the model's kind reports the error
	for _, a := range args {
		if !filepath.IsAbs(a) {
			a = filepath.Join(dir, a)
		}
		if isFile(a) {
			return a
		}
	}
	return ""
}

// logFixed logs that the server does not watch new files of a program.
func (l *programWatch) logFixed(name string, w *watchedProgram) {
	if w.fixed {
		l.log.Warn("the folder of a program has too many files, and new files are not watched: move the program to "+
			"a separate folder", "model", name, "looked_at", maxVisited, "found", len(w.loaded))
	}
}

// logOwn logs that settings files are no longer watched.
func (l *programWatch) logOwn(name string, files []string) {
	if files != nil {
		l.log.Warn("files of settings are not watched any more, because they change without end while the program "+
			"runs or is loaded: the program seems to write these files", "model", name, "files",
			strings.Join(files, " "))
	}
}

// emptyLooks is the number of consecutive looks with empty files before the log names the files.
const emptyLooks = 4

// logEmpty logs that the server does not reload a program because of empty files.
func (l *programWatch) logEmpty(name string, w *watchedProgram) {
	if len(w.empty) == 0 {
		w.emptyLooks = 0
		return
	}
	if w.emptyLooks++; w.emptyLooks == emptyLooks {
		l.log.Warn("files of a program have become empty: the program is loaded again when the files have content",
			"model", name, "files", strings.Join(slices.Sorted(maps.Keys(w.empty)), " "))
	}
}

// run reloads programs when their files change, until ctx ends. When a reload fails, the previous program
// keeps running.
func (l *programWatch) run(ctx context.Context) {
	if !l.on {
		return
	}
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for name, w := range l.now() {
		if w.wasLoaded(); l.hasDaemons(name) {
			l.end(name, w)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all := l.now() // a Reload may have changed the list
		for _, name := range slices.Sorted(maps.Keys(all)) {
			w := all[name]
			fixed := w.fixed
			changed, own := w.look()
			if !fixed {
				l.logFixed(name, w)
			}
			l.logOwn(name, own)
			l.logEmpty(name, w)
			if changed == nil || l.life.isDraining() {
				continue
			}
			l.reload(ctx, name, changed)
			l.logOwn(name, w.wasLoaded())
			if l.hasDaemons(name) {
				l.end(name, w)
			}
		}
	}
}

// hasDaemons reports whether a program has declared daemons. A reload would run a second copy of the daemons, so
// hasDaemons logs that the program is not watched.
func (l *programWatch) hasDaemons(name string) bool {
	g, err := l.models.Group(name, "")
	if err != nil || g.Model().App == nil {
		return false
	}
	daemons, _ := g.Model().App.Extra["daemons"].(string)
	if daemons == "" {
		return false
	}
	l.log.Warn("a program with daemons is not watched, because a second load would start the daemons twice: restart "+
		"the server to load changes", "model", name, "daemons", daemons, "setting", "watch")
	return true
}

// look returns the files that have changed since the load, once the changes have settled, or nil; and the settings
// files that are no longer watched. Settings files that keep changing do not delay changes of other files.
func (w *watchedProgram) look() (changed, own []string) {
	now := w.files()
	w.keepEmptied(now)
	moving := differing(w.seen, now)
	w.seen = now
	moves := map[string]int{}
	for _, file := range moving {
		if w.isCode(file) {
			continue
		}
		if moves[file] = w.moves[file] + 1; moves[file] == maxMoves {
			own = append(own, file)
		}
	}
	w.moves = moves
	w.since++
	if !slices.ContainsFunc(moving, w.isCode) {
		changed = slices.DeleteFunc(differing(w.loaded, now), func(file string) bool {
			return slices.Contains(moving, file)
		})
	}
	switch {
	case slices.ContainsFunc(changed, w.isCode):
		w.settingsReloads = nil
	case len(changed) > 0:
		written := w.countAlone(changed, now)
		changed = slices.DeleteFunc(changed, func(file string) bool { return slices.Contains(written, file) })
		own = append(own, written...)
	}
	if len(changed) > 0 {
		w.loaded = maps.Clone(now)
	}
	w.ignore(own)
	if len(changed) == 0 {
		return nil, own
	}
	return changed, own
}

// keepEmptied treats a file emptied since the load as unchanged, because programs empty a file before writing the
// file. keepEmptied records emptied files in w.empty.
func (w *watchedProgram) keepEmptied(now map[string]fileState) {
	empty := map[string]bool{}
	for file, state := range now {
		if was := w.loaded[file]; state.size == 0 && was.size > 0 {
			now[file], empty[file] = was, true
		}
	}
	w.empty = empty
}

// countAlone counts a change of settings files alone, and returns the settings files that have caused too many
// reloads.
func (w *watchedProgram) countAlone(changed []string, now map[string]fileState) (own []string) {
	if w.since > aloneLooks {
		w.settingsReloads = nil
	}
	w.since = 0
	alone := map[string]int{}
	for _, file := range changed {
		of := file
		if _, was := w.loaded[file]; !was {
			of = ""
		} else if _, is := now[file]; !is {
			of = ""
		}
		if alone[of] = w.settingsReloads[of] + 1; alone[of] > maxSettingsReloads {
			own = append(own, file)
		}
	}
	w.settingsReloads = alone
	return own
}

// ignore makes files be watched no more.
func (w *watchedProgram) ignore(own []string) {
	for _, file := range own {
		w.ignored[file] = true
		delete(w.loaded, file)
		delete(w.seen, file)
	}
}

// isCode reports whether a file is the program's source or a Python file, and not a settings file.
func (w *watchedProgram) isCode(file string) bool {
	return file == w.main || filepath.Ext(file) == ".py"
}

// wasLoaded records the load of the program. wasLoaded returns the settings files that changed during two loads in a
// row; the watch ignores these files from now on, to avoid endless reloads.
func (w *watchedProgram) wasLoaded() (own []string) {
	written := map[string]bool{}
	for _, file := range differing(w.loaded, w.files()) {
		switch {
		case w.isCode(file):
		case w.written[file]:
			own = append(own, file)
		default:
			written[file] = true
		}
	}
	w.written = written
	w.ignore(own)
	return own
}

// differing returns the files that differ between two looks.
func differing(a, b map[string]fileState) (names []string) {
	for file, state := range b {
		if a[file] != state {
			names = append(names, file)
		}
	}
	for file := range a {
		if _, is := b[file]; !is {
			names = append(names, file)
		}
	}
	slices.Sort(names)
	return names
}

// files returns the current state of the program's files.
func (w *watchedProgram) files() map[string]fileState {
	files := map[string]fileState{}
	if !w.fixed {
		files, w.fixed = filesOf(w.source)
	}
	if w.fixed { // the set of files found in a large folder can vary between looks
		for _, known := range []map[string]fileState{w.loaded, w.seen} {
			for file := range known {
				if st, err := os.Stat(file); err == nil {
					files[file] = fileState{st.Size(), st.ModTime()}
				}
			}
		}
	}
	for file := range w.ignored {
		if _, is := files[file]; !is {
			delete(w.ignored, file) // deleted file
		}
		delete(files, file)
	}
	return files
}

// reload replaces a program after its files changed.
func (l *programWatch) reload(ctx context.Context, name string, changed []string) {
	if _, err := l.models.Group(name, ""); err != nil {
		return // unloaded by a request
	}
	began := time.Now()
	_, err := l.models.Load(ctx, name, workers.Load{Params: stream.Params{"swap": true}})
	replaced := err == nil
	if replaced {
		err = l.programs.sync(ctx, name)
	}
	switch {
	case err == nil:
		l.log.Info("a program was loaded again, because its files have changed", "model", name, "files",
			strings.Join(changed, " "), "took", time.Since(began))
	case ctx.Err() == nil && replaced:
		l.log.Error("a program whose files have changed was loaded again without some of its stages: change a file "+
			"again, or load the program by a request", "model", name, "files", strings.Join(changed, " "), "error", err)
	case ctx.Err() == nil:
		l.log.Error("a program whose files have changed cannot be loaded: the previous program stays in service",
			"model", name, "files", strings.Join(changed, " "), "error", err)
	}
}

// fileOf returns the file of a source FILE or FILE:CLASS.
func fileOf(source string) string {
	if _, err := os.Stat(source); err != nil {
		source, _, _ = strings.Cut(source, ":")
	}
	return filepath.Clean(source)
}

// filesOf returns the files of a program: its source, the Python files in its folder and below, and the settings
// files in its folder. In a folder with more than maxVisited entries, filesOf returns the files of the upper levels,
// and over is true.
func filesOf(source string) (files map[string]fileState, over bool) {
	files = map[string]fileState{}
	source = fileOf(source)
	dir := filepath.Dir(source)
	st, err := os.Stat(source)
	switch {
	case err == nil && st.IsDir():
		dir = source
	case err == nil:
		files[source] = fileState{st.Size(), st.ModTime()}
	}
	visited := 0
	for depth, folders := 0, []string{dir}; depth <= maxDepth && len(folders) > 0; depth++ {
		var below []string
		for _, folder := range folders {
			// Ignore errors: the program's own load reports a missing or unreadable folder.
			_ = eachEntry(folder, func(e fs.DirEntry) bool {
				if visited++; visited > maxVisited {
					over = true
					return false
				}
				name := e.Name()
				path := filepath.Join(folder, name)
				if e.IsDir() {
					if !strings.HasPrefix(name, ".") && name != "__pycache__" && name != "node_modules" &&
						name != "venv" {
						below = append(below, path)
					}
					return true
				}
				if !isPart(name, depth == 0) {
					return true
				}
				if st, err := os.Stat(path); err == nil && !st.IsDir() {
					files[path] = fileState{st.Size(), st.ModTime()}
				}
				return true
			})
			if over {
				return files, true
			}
		}
		folders = below
	}
	return files, false
}

// isPart reports whether a file with the name, in the program's folder (beside) or below, belongs to the program.
func isPart(name string, beside bool) bool {
	switch filepath.Ext(name) {
	case ".py":
		return true
	case ".yaml", ".yml", ".json", ".toml":
		return beside
	}
	return false
}

// eachEntry calls do for each entry of a folder until do returns false, without reading the whole folder first.
func eachEntry(folder string, do func(fs.DirEntry) bool) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if !do(e) {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}
