// Package repository finds models in a folder:
//
//	NAME/config.yaml or NAME/config.pbtxt, or neither
//	NAME/VERSION/model.onnx
//
// The package reads both kinds of configuration into workers.Config, and writes the configuration of a loaded model.
// The package must not know protocols, nor the parsing of a YAML file.
package repository

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"millrace/internal/inferencepb"
	"millrace/internal/scratch"
	"millrace/internal/setting"
	"millrace/internal/textfile"
	"millrace/stream"
	"millrace/workers"
)

// Bounds on files and folders.
const (
	maxConfig    = 1 << 20
	maxModels    = 4096
	maxVersions  = 1024 // folders of one model
	maxSentFiles = 64   // of one load request
	maxFileName  = 255  // bytes of each part of the path of a sent file
)

// Options are the arguments of New.
type Options struct {
	Dir string // the folder; "" = only what load requests send
	// YAML reads a config.yaml. file is the path, for errors; source is the default of a configuration without a
	// source.
	YAML func(text []byte, file, source string) (workers.Config, error)
	// MaxSent is the largest number of bytes of kept files sent by load requests.
	MaxSent int64
}

// Repository implements workers.Repository.
type Repository struct {
	Options
	guard  textfile.Guard // for files on a hung file system
	mu     sync.Mutex
	sent   int64
	shapes map[string]textfile.Shape // of the read configurations, by path
}

var _ workers.Repository = (*Repository)(nil)

// New returns the repository of a folder. The folder must exist.
func New(o Options) (*Repository, error) {
	if o.Dir != "" {
		st, err := os.Stat(o.Dir)
		if err == nil && !st.IsDir() {
			err = errors.New("is not a folder")
		}
		if err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, "model_repository", "%s: %w", o.Dir, bare(err))
		}
		if o.Dir, err = filepath.EvalSymlinks(o.Dir); err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, "model_repository", "%w", err)
		}
		if o.Dir, err = filepath.Abs(o.Dir); err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, "model_repository", "%w", err)
		}
	}
	return &Repository{Options: o}, nil
}

// bare returns the error of the system without the operation and the path.
func bare(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

var (
	nameForm    = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)
	versionForm = regexp.MustCompile(`^[1-9][0-9]{0,17}$`)
)

// folder returns a model's folder, or "".
func (r *Repository) folder(name string) string {
	if r.Dir == "" || !nameForm.MatchString(name) {
		return ""
	}
	dir := filepath.Join(r.Dir, name)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return ""
	}
	return dir
}

// List implements workers.Repository: the versions of all models, without reading their
// configurations.
func (r *Repository) List() (out []workers.Listed) {
	names, err := r.Names()
	if err != nil {
		return nil // a load says why
	}
	for _, name := range names {
		found, _, err := versions(filepath.Join(r.Dir, name))
		if err == nil && !nameForm.MatchString(name) {
			err = stream.Errorf(stream.InvalidArgument, "",
				"the name of the folder is not that of a model: want letters, digits, dots, dashes and underscores")
		}
		if err != nil || len(found) == 0 {
			out = append(out, workers.Listed{Name: name, Err: err})
			continue
		}
		for _, v := range found {
			out = append(out, workers.Listed{Name: name, Version: v, Err: err})
		}
	}
	return out
}

// notModels are folders made by file systems and by Python.
var notModels = []string{"lost+found", "__pycache__", "System Volume Information"}

// Names returns the names of the models' folders.
func (r *Repository) Names() (out []string, err error) {
	if r.Dir == "" {
		return nil, nil
	}
	if out, err = textfile.Guarded(&r.guard, r.Dir, r.names); err != nil {
		return nil, stream.Errorf(stream.Unavailable, "model_repository", "%w", err)
	}
	return out, nil
}

func (r *Repository) names() (out []string, err error) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Dir, bare(err))
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || slices.Contains(notModels, e.Name()) || len(out) >= maxModels {
			continue
		}
		st, err := os.Stat(filepath.Join(r.Dir, e.Name()))
		switch {
		case err == nil && st.IsDir():
			out = append(out, e.Name())
		case err != nil && !errors.Is(err, fs.ErrNotExist): // the folder may exist
			return nil, fmt.Errorf("%s: %w", filepath.Join(r.Dir, e.Name()), bare(err))
		}
	}
	return out, nil
}

// versions returns the versions of a model's folder, the lowest first, and notes on similar names.
func versions(dir string) (found, notes []string, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, nil, stream.Errorf(stream.NotFound, "", "%s: %w", dir, bare(err))
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(maxVersions)
	if err != nil && err != io.EOF {
		return nil, nil, stream.Errorf(stream.NotFound, "", "%s: %w", dir, bare(err))
	}
	for _, e := range entries {
		st, err := os.Stat(filepath.Join(dir, e.Name()))
		switch {
		case err != nil || !st.IsDir() || strings.HasPrefix(e.Name(), "."):
		case versionForm.MatchString(e.Name()):
			found = append(found, e.Name())
		default:
			notes = append(notes, fmt.Sprintf("the folder %q: a version is a number from 1", e.Name()))
		}
	}
	slices.SortFunc(found, workers.CompareVersions)
	slices.Sort(notes)
	return found, notes, nil
}

// Find implements workers.Repository.
func (r *Repository) Find(name string, known *workers.Definition, how workers.Load) (*workers.Definition, error) {
	def, err := r.find(name, known, how)
	if err != nil || def == nil || how.Config == nil && how.Files == nil {
		return def, err
	}
	for _, cfg := range def.Versions {
		if kind, _ := workers.Lookup(cfg.Kind); kind.Outbound {
			if def.Files != nil {
				def.Files.Remove()
			}
			return nil, stream.Errorf(stream.PermissionDenied, "config", "and files of a load request cannot be of "+
				"a model of kind %s, which connects to other machines: set the parameters of the kind, or use the "+
				"server's configuration", cfg.Kind)
		}
	}
	return def, nil
}

func (r *Repository) find(name string, known *workers.Definition,
	how workers.Load) (def *workers.Definition, err error) {
	if how.Config == nil && how.Files == nil {
		if dir := r.folder(name); dir != "" {
			return r.read(name, dir, how)
		}
		return nil, nil
	}
	if !nameForm.MatchString(name) {
		return nil, stream.Errorf(stream.InvalidArgument, "model",
			"%q is not a model's name: want 1 to 128 letters, digits, dots, dashes or underscores", name)
	}
	if how.Files != nil {
		sent, err := r.write(name, how.Files)
		if err != nil {
			return nil, err
		}
		def, err = r.read(name, sent.Folder, how)
		if err != nil {
			sent.Remove()
			return nil, sent.Named(err)
		}
		def.Files = sent
		r.keepHostParams(name, known, def)
		return def, nil
	}
	if known != nil {
		return r.override(known, how.Config)
	}
	if dir := r.folder(name); dir != "" {
		return r.read(name, dir, how)
	}
	return nil, stream.Errorf(stream.NotFound, "config",
		"%q is in no repository: send its files, too, as file:1/model.onnx", name)
}

// keepHostParams gives the versions of def, sent by a request, the parameters Kind.HostParams of the model of the same
// name in the configuration or the folder, if of the same kind.
func (r *Repository) keepHostParams(name string, known, def *workers.Definition) {
	if dir := r.folder(name); known == nil && dir != "" {
		known, _ = r.read(name, dir, workers.Load{}) // an unreadable folder has no parameters
	}
	if known == nil || len(known.Versions) == 0 {
		return
	}
	of := known.Versions[len(known.Versions)-1]
	kind, _ := workers.Lookup(of.Kind)
	for i := range def.Versions {
		cfg := &def.Versions[i]
		if cfg.Kind != of.Kind {
			continue
		}
		for _, key := range kind.HostParams {
			if value, set := of.Params[key]; set {
				cfg.Params = maps.Clone(cfg.Params)
				if cfg.Params == nil {
					cfg.Params = stream.Params{}
				}
				cfg.Params[key] = value
			}
		}
	}
}

// override returns the definition of a model of the configuration with the settings of a load request.
func (r *Repository) override(known *workers.Definition, text []byte) (*workers.Definition, error) {
	pb, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	kind, err := kindOf(pb)
	if err != nil {
		return nil, err
	}
	def := &workers.Definition{Versions: slices.Clone(known.Versions)}
	for i := range def.Versions {
		def.Versions[i] = def.Versions[i].WithDefaults() // with its own copy of Parts
		cfg := &def.Versions[i]
		switch file := pb.DefaultModelFilename; {
		case kind != "" && kind != cfg.Kind:
			return nil, stream.Errorf(stream.InvalidArgument, "backend",
				"is that of kind %s, and model %s of the configuration is of kind %s: leave it out", kind, cfg.Name,
				cfg.Kind)
		case file != "" && file != filename(*cfg):
			return nil, stream.Errorf(stream.InvalidArgument, "default_model_filename",
				"is %.64q, and the file of model %s is set in the configuration: leave it out", file, cfg.Name)
		}
		if def.Notes, err = apply(cfg, pb, true); err != nil {
			return nil, err
		}
		if err = r.readLabels(&cfg.Declared, ""); err != nil {
			return nil, err
		}
	}
	if pb.VersionPolicy != nil {
		def.Notes = append(def.Notes, "version_policy: a model of the configuration has one version")
	}
	return def, nil
}

// read reads a model's folder.
func (r *Repository) read(name, dir string, how workers.Load) (*workers.Definition, error) {
	found, notes, err := versions(dir)
	if err != nil {
		return nil, err
	}
	c, err := r.config(name, dir, how.Config)
	if err != nil {
		return nil, err
	}
	def := &workers.Definition{Notes: append(notes, c.notes...)}
	if len(found) == 0 && c.needsFile() {
		return nil, stream.Errorf(stream.InvalidArgument, "", "model %s has no version: want %s", name,
			filepath.Join(name, "1", "model.onnx"))
	}
	if len(found) == 0 {
		found = []string{"1"}
	}
	chosen, err := choose(found, c.base.Versions, how.Version)
	if err != nil {
		return nil, err
	}
	if how.Version == "" {
		for _, v := range c.base.Versions.Specific {
			if !slices.Contains(chosen, v) {
				def.Notes = append(def.Notes, fmt.Sprintf("versions.specific: names version %s, and there are %s", v,
					strings.Join(found, ", ")))
			}
		}
	}
	var errs []error
	for _, v := range chosen {
		cfg, more, err := r.version(c, name, dir, v)
		if err != nil {
			errs = append(errs, err)
			def.Unreadable = append(def.Unreadable, workers.Listed{Name: name, Version: v, Err: err})
			continue
		}
		def.Versions = append(def.Versions, cfg)
		for _, note := range more {
			if !slices.Contains(def.Notes, note) {
				def.Notes = append(def.Notes, note)
			}
		}
	}
	if len(def.Versions) == 0 {
		return def, setting.Join(errs...)
	}
	return def, nil
}

// choose returns the served versions, the lowest first.
func choose(found []string, policy workers.Versions, only string) ([]string, error) {
	switch {
	case only != "":
		if !slices.Contains(found, only) {
			return nil, stream.Errorf(stream.NotFound, "version", "%q is not one of %s", only,
				strings.Join(found, ", "))
		}
		return []string{only}, nil
	case policy.All:
		return found, nil
	case len(policy.Specific) > 0: // the present versions of the list: further versions may come later
		chosen := slices.DeleteFunc(slices.Clone(policy.Specific), func(v string) bool {
			return !slices.Contains(found, v)
		})
		if len(chosen) == 0 {
			return nil, stream.Errorf(stream.InvalidArgument, "versions.specific", "names %s, and there are %s",
				strings.Join(policy.Specific, ", "), strings.Join(found, ", "))
		}
		return chosen, nil
	}
	return found[len(found)-min(len(found), max(policy.Latest, 1)):], nil
}

// configured is the configuration of a model's folder for all versions.
type configured struct {
	base   workers.Config
	pb     *inferencepb.ModelConfig // nil: none
	text   []byte                   // of config.yaml; nil: none
	path   string                   // of the configuration file
	sent   bool                     // pb came with a request
	notes  []string
	source string // the configuration's source instead of a file
}

// needsFile reports whether the versions have files.
func (c *configured) needsFile() bool {
	kind, ok := workers.Lookup(c.source)
	return !ok || kind.File != ""
}

// config reads the configuration of a model's folder, or sent instead.
func (r *Repository) config(name, dir string, sent []byte) (c *configured, err error) {
	c = &configured{base: workers.Config{Name: name}}
	yamlPath, textPath := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "config.pbtxt")
	yaml, err := r.readConfig(yamlPath)
	if err != nil {
		return nil, err
	}
	text, err := r.readConfig(textPath)
	switch {
	case err != nil:
		return nil, err
	case sent != nil:
		c.pb, err = parseJSON(sent)
		c.sent = true
	case text != nil:
		c.pb, err = parseText(text, textPath)
	case yaml != nil:
		c.text, c.path = yaml, yamlPath
		first, err := r.YAML(yaml, yamlPath, "")
		if err != nil && first.Source != "" {
			return nil, err
		}
		c.source = first.Source
		c.base.Versions = first.Versions
	}
	if err != nil {
		return nil, err
	}
	if c.pb != nil {
		if err := applyVersions(&c.base, c.pb); err != nil {
			return nil, err
		}
		if yaml != nil && sent == nil {
			if err := r.addYAML(&c.base, yaml, yamlPath, c.pb.VersionPolicy != nil); err != nil {
				return nil, err
			}
		}
		if c.source, err = kindOf(c.pb); err != nil {
			return nil, err
		}
	}
	if _, ok := workers.Lookup(c.source); c.source != "" && !ok {
		return nil, stream.Errorf(stream.InvalidArgument, "source",
			"%q is not a kind of worker: the files of a model in a repository are those of its versions", c.source)
	}
	return c, nil
}

// addYAML adds the settings of a config.yaml next to a config.pbtxt: versions and shadow, which config.pbtxt lacks.
// policy means that config.pbtxt chooses the versions.
func (r *Repository) addYAML(base *workers.Config, text []byte, path string, policy bool) error {
	const any = "identity" // versions and shadow are settings of every kind
	got, err := r.YAML(text, path, any)
	if err != nil {
		return err
	}
	versions, shadow := got.Versions, got.Shadow
	got.Versions, got.Shadow = workers.Versions{}, workers.Shadow{}
	named, _ := r.YAML(text, path, "") // the file's own source
	if empty, err := r.YAML(nil, path, any); err != nil || named.Source != "" || !reflect.DeepEqual(got, empty) {
		return stream.Errorf(stream.InvalidArgument, "", "%s is beside a config.pbtxt, and so may have the sections "+
			"versions and shadow only: put the rest there, or leave one of the files out", path)
	}
	if policy {
		if versions.Latest != 0 || versions.All || len(versions.Specific) > 0 {
			return stream.Errorf(stream.InvalidArgument, "versions",
				"%s chooses versions, and so does version_policy of config.pbtxt: leave one of them out", path)
		}
		weights := versions.Weights
		versions = base.Versions
		versions.Weights = weights
	}
	base.Versions, base.Shadow = versions, shadow
	return nil
}

// readConfig returns a configuration file, or nil without a file. A file emptied or cut since the last read is an
// error.
func (r *Repository) readConfig(path string) (text []byte, err error) {
	text, err = textfile.Guarded(&r.guard, path, func() ([]byte, error) { return readConfig(r.Dir, path) })
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == nil {
		delete(r.shapes, path)
		return nil, nil
	}
	if err := r.shapes[path].Check(path, text); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "", "%w: write it again, or remove it", err)
	}
	if r.shapes == nil || len(r.shapes) > 2*maxModels {
		r.shapes = map[string]textfile.Shape{}
	}
	if strings.HasPrefix(path, r.Dir) { // the files of a load request are written once
		r.shapes[path] = textfile.ShapeOf(text)
	}
	return text, nil
}

func readConfig(root, path string) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, stream.Errorf(stream.InvalidArgument, "", "%s: %w", path, bare(err))
	case !st.Mode().IsRegular():
		return nil, stream.Errorf(stream.InvalidArgument, "", "%s is not a file", path)
	case st.Size() > maxConfig:
		return nil, stream.Errorf(stream.InvalidArgument, "", "%s is larger than 1 MiB", path)
	}
	if err := checkLinkTarget(root, path); err != nil {
		return nil, err
	}
	text, err := textfile.Read(path, maxConfig)
	if text == nil {
		text = []byte{}
	}
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "", "%s: %w", path, bare(err))
	}
	switch after, err := os.Stat(path); {
	case err != nil:
		return nil, stream.Errorf(stream.InvalidArgument, "", "%s: %w", path, bare(err))
	case !os.SameFile(st, after) || after.Size() != int64(len(text)) || !after.ModTime().Equal(st.ModTime()):
		return nil, stream.Errorf(stream.Unavailable, "",
			"%s has changed while it was read: load the model again when it is written", path)
	}
	return text, nil
}

// checkLinkTarget returns an error when a file is a link to a place outside of the repository.
func checkLinkTarget(root, path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "", "%s: %w", path, bare(err))
	}
	if root != "" && strings.HasPrefix(path, root+string(filepath.Separator)) &&
		!strings.HasPrefix(real, root+string(filepath.Separator)) {
		return stream.Errorf(stream.PermissionDenied, "",
			"%s is a link to %s, outside of the repository: put a copy there", path, real)
	}
	return nil
}

// version returns the configuration of one version.
func (r *Repository) version(c *configured, name, dir, version string) (cfg workers.Config, notes []string, err error) {
	folder := filepath.Join(dir, version)
	cfg = c.base
	kind, file := c.source, ""
	if c.pb != nil {
		file = c.pb.DefaultModelFilename
	}
	if c.needsFile() {
		if kind, file, err = fileOf(folder, kind, file); err != nil {
			return cfg, nil, err
		}
		err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return stream.Errorf(stream.InvalidArgument, "", "%s: %w", path, bare(err))
			}
			return checkLinkTarget(r.Dir, path)
		})
		if err != nil {
			return cfg, nil, err
		}
		file = filepath.Join(folder, file)
	}
	if c.text != nil {
		source := file
		if source == "" {
			source = kind
		}
		if cfg, err = r.YAML(c.text, c.path, source); err != nil {
			return cfg, nil, err
		}
		switch {
		case cfg.Name != "" && cfg.Name != name:
			return cfg, nil, stream.Errorf(stream.InvalidArgument, "name",
				"is %q in %s, and the folder is %q: leave it out", cfg.Name, c.path, name)
		case cfg.Version != "":
			return cfg, nil, stream.Errorf(stream.InvalidArgument, "version",
				"is set in %s: it is the name of the folder with the file", c.path)
		}
	}
	cfg.Name, cfg.Version, cfg.Kind, cfg.Source = name, version, kind, file
	if file != "" {
		cfg.Folder = folder
	}
	if c.pb != nil {
		if notes, err = apply(&cfg, c.pb, c.sent); err != nil {
			return cfg, nil, err
		}
		if err = r.readLabels(&cfg.Declared, dir); err != nil {
			return cfg, nil, err
		}
	}
	cfg = cfg.WithDefaults()
	return cfg, notes, cfg.Validate()
}

// fileOf returns the kind of a version and the name of the version's file. kind and file come from the configuration,
// or are "".
func fileOf(folder, kind, file string) (string, string, error) {
	has := func(name string) bool {
		st, err := os.Stat(filepath.Join(folder, name))
		return err == nil && st.Mode().IsRegular()
	}
	if file != "" && (!filepath.IsLocal(file) || filepath.Base(file) != file) {
		return "", "", stream.Errorf(stream.InvalidArgument, "default_model_filename",
			"%q is not the name of a file in the folder of a version", file)
	}
	var names []string
	for _, k := range workers.Kinds() {
		if k.File == "" || kind != "" && k.Name != kind {
			continue
		}
		switch {
		case file == "":
			names = append(names, k.File)
			if has(k.File) {
				return k.Name, k.File, nil
			}
		case has(file) && (kind != "" || k.Loads != nil && k.Loads(file)):
			return k.Name, file, nil
		}
	}
	if file != "" {
		names = []string{file}
	}
	return "", "", stream.Errorf(stream.NotFound, "", "%s has no file %s", folder, strings.Join(names, " or "))
}

// isFileName reports whether a part of the path of a sent file is allowed: models name files with weights freely, but
// hidden files and control characters are refused.
func isFileName(p string) bool {
	return p != "" && p[0] != '.' && utf8.ValidString(p) && !strings.ContainsFunc(p, func(r rune) bool {
		return unicode.IsControl(r) || r == '\\'
	})
}

// write writes the files of a load request into a temporary folder.
func (r *Repository) write(name string, files map[string][]byte) (*workers.SentFiles, error) {
	bad := func(path, format string, args ...any) (*workers.SentFiles, error) {
		return nil, stream.Errorf(stream.InvalidArgument, "file:"+path, format, args...)
	}
	if len(files) == 0 || len(files) > maxSentFiles {
		return nil, stream.Errorf(stream.InvalidArgument, "file", "%d files: want 1 to %d", len(files), maxSentFiles)
	}
	total := int64(0)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		parts := strings.Split(path, "/")
		if slices.ContainsFunc(parts, func(p string) bool { return len(p) > maxFileName }) {
			// The code expected by clients of other servers.
			return nil, stream.Errorf(stream.Internal, "file:"+strconv.QuoteToASCII(path)[1:64],
				"has a name of more than %d bytes: want VERSION/FILE, such as 1/model.onnx", maxFileName)
		}
		if len(parts) < 2 || len(parts) > 8 || !versionForm.MatchString(parts[0]) ||
			slices.ContainsFunc(parts[1:], func(p string) bool {
				return !isFileName(p)
			}) {
			return bad(strconv.QuoteToASCII(path)[1:min(len(path), 64)+1], "is not VERSION/FILE, such as 1/model.onnx")
		}
		total += int64(len(files[path]))
	}
	r.mu.Lock()
	fits := r.sent+total <= r.MaxSent
	if fits {
		r.sent += total
	}
	r.mu.Unlock()
	if !fits {
		return nil, stream.Errorf(stream.TooLarge, "file",
			"%d bytes, with those of the models that are loaded from sent files, are more than %d (sent_models)",
			total, r.MaxSent)
	}
	free := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent -= total
	}
	dir, err := scratch.Make(scratch.Model)
	if err != nil {
		free()
		return nil, stream.Errorf(stream.Unavailable, "file", "cannot be stored: %w", err)
	}
	sent := &workers.SentFiles{Folder: filepath.Join(dir.Path, name), Remove: sync.OnceFunc(func() {
		_ = dir.Remove()
		free()
	})}
	for path, data := range files {
		at := filepath.Join(sent.Folder, filepath.FromSlash(path))
		err := os.MkdirAll(filepath.Dir(at), 0o700)
		if err == nil {
			err = os.WriteFile(at, data, 0o600)
		}
		if err != nil {
			sent.Remove()
			return nil, stream.Errorf(stream.Unavailable, "file", "cannot be stored: %w", err)
		}
	}
	return sent, nil
}
