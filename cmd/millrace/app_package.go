package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"

	"millrace/apps"
	"millrace/apps/build"
	"millrace/apps/image"
	"millrace/apps/source"
	"millrace/config"
	"millrace/internal/secret"
	"millrace/workers"
)

// appPackage packs the application as a container image.
func appPackage(flags *pflag.FlagSet) appStep {
	var p appPackaging
	appRegistryFlags(flags)
	flags.String("out", "",
		"package, publish, deploy: the image: a file (default NAME.tar), or FOLDER/ for an OCI layout")
	flags.StringVar(&p.environment, "environment", "",
		"package: folder of a Python environment (venv) for the image (default: the environment of build)")
	flags.StringVar(&p.base, "base", "",
		"package: image to build upon, in place of this machine's libraries: a file, a folder, or REGISTRY/NAME:TAG")
	flags.StringArrayVar(&p.exclude, "exclude", nil,
		"package: path of a file or folder of the application to leave out; may be repeated")
	flags.BoolVar(&p.ffmpeg, "with-ffmpeg", false, "package: copy this machine's ffmpeg into the image")
	return appStep{name: "package", short: "pack program, environment and application as a container image",
		flags: []string{"python"}, run: func(c *appCall) (any, error) { return p.run(c) }}
}

// publishFlags are the flags of package that publish reads, too.
var publishFlags = []string{"out", "image", "registry-user", "registry-password", "registry-ca", "registry-plain-http"}

// appPackaging are the flags of package alone.
type appPackaging struct {
	environment, python, base string
	exclude                   []string
	ffmpeg                    bool
}

// appPackageResult is what package prints as JSON.
type appPackageResult struct {
	Command string   `json:"command"`
	Image   string   `json:"image"`
	Output  string   `json:"output"`
	Digest  string   `json:"digest"`
	Bytes   int64    `json:"bytes"`   // of the compressed layers
	Changes []string `json:"changes"` // local changes of the clone that are in the image, such as paths of files
	Notes   []string `json:"notes"`
}

func (p *appPackaging) run(c *appCall) (*appPackageResult, error) {
	app, release, err := c.use()
	if err != nil {
		return nil, err
	}
	defer release()
	if p.python, err = c.Flags().GetString("python"); err != nil {
		return nil, err
	}
	releaseEnvironment, err := p.takeEnvironment(c, app)
	if err != nil {
		return nil, err
	}
	defer releaseEnvironment()
	o, err := p.options(app)
	if err != nil {
		return nil, err
	}
	needs, err := c.needs(app)
	if err != nil {
		return nil, err
	}
	name := c.imageName()
	if name == "" && needs.Image != "" {
		if name = needs.Image; image.CheckName(name) != nil { // of no registry
			name = "localhost/" + name
		}
	}
	if name == "" {
		name = "localhost/" + strings.ToLower(app.Name) + ":latest"
	}
	if err := image.CheckName(name); err != nil {
		return nil, err
	}
	output, layout, err := c.imageFile(app)
	if err != nil {
		return nil, err
	}
	if o.Exclude, err = exclusions(app, needs, output, p.exclude); err != nil {
		return nil, usagef("--exclude: %w", err)
	}
	changes, err := packedChanges(app, o.Exclude)
	if err != nil {
		return nil, err
	}
	label, err := p.excludedLabel(app, o)
	if err != nil {
		return nil, err
	}
	o.Labels = map[string]string{labelExcluded: label}
	bar := newProgress(c.ErrOrStderr())
	defer bar.end()
	o.Progress = packageProgress(bar)
	if p.base != "" {
		registry := c.registry().ForBase(p.base, c.imageName())
		registry.Progress = packageProgress(bar)
		if o.Base, err = image.OpenBase(c.Context(), p.base, registry); err != nil {
			return nil, fmt.Errorf("--base: %w", err)
		}
		defer func() { _ = o.Base.Close() }()
	}
	img, err := image.Build(c.Context(), o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = img.Close() }()
	write := img.WriteArchive
	if layout {
		write = img.WriteLayout
	}
	if err := write(output, name); err != nil {
		return nil, err
	}
	size, err := img.Size()
	if err != nil {
		return nil, err
	}
	bar.end()
	if len(changes) > 0 {
		img.Notes = append(img.Notes, fmt.Sprintf("the image has local changes, which its commit %s lacks: %s. Commit "+
			"them to the repository, so that the image can be made again", app.Commit, apps.Names(changes)))
	}
	img.Notes = append(img.Notes, syntaxNotes(c, app, o)...)
	for _, note := range img.Notes {
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "millrace: %s\n", note)
	}
	c.print("packed %s as %s: %s, %s", name, output, units.BytesSize(float64(size)), img.Digest)
	return &appPackageResult{"package", name, output, img.Digest, size, append([]string{}, changes...),
		append([]string{}, img.Notes...)}, nil
}

// syntaxNotes returns notes on packed Python files with errors of syntax.
func syntaxNotes(c *appCall, app *apps.App, o image.Options) []string {
	interpreter, environment := o.Python, ""
	if o.Environment != "" {
		environment, _ = filepath.Abs(o.Environment)
		interpreter = filepath.Join(environment, "bin/python3")
	}
	if interpreter == "" {
		return nil
	}
	var files []string
	err := filepath.WalkDir(app.Root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == app.Root {
			return err
		}
		name, err := filepath.Rel(app.Root, file)
		if err != nil {
			return err
		}
		asked := filepath.ToSlash(name)
		if d.IsDir() {
			if asked += "/"; d.Name() == ".git" || o.Exclude(asked) || file == environment {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() && filepath.Ext(name) == ".py" && !o.Exclude(asked) {
			files = append(files, name)
		}
		return nil
	})
	var wrong []string
	if err == nil {
		wrong, err = build.SyntaxErrors(c.Context(), interpreter, app.Root, files)
	}
	switch {
	case err != nil:
		return []string{fmt.Sprintf("the syntax of Python files was not checked: %v", err)}
	case len(wrong) > 0:
		return []string{"Python files of the image have errors: " + strings.Join(wrong, "; ")}
	}
	return nil
}

// packedChanges returns the local changes of a clone, without those of files that the image lacks.
func packedChanges(app *apps.App, exclude func(name string) bool) ([]string, error) {
	changes, err := app.Changes()
	return slices.DeleteFunc(changes, func(name string) bool {
		for at := name; at != "."; at = path.Dir(at) {
			if exclude(at) || exclude(at+"/") {
				return true
			}
		}
		return secret.IsWithin(app.Root, name)
	}), err
}

// labelExcluded is the label with the paths that the label image.LabelFiles leaves out, in JSON.
const labelExcluded = "millrace.excluded"

// excludedLabel returns the value of labelExcluded.
func (p *appPackaging) excludedLabel(app *apps.App, o image.Options) (string, error) {
	excluded := []string{}
	for _, name := range p.exclude {
		excluded = append(excluded, filepath.ToSlash(filepath.Clean(name)))
	}
	if o.Environment != "" {
		path, err := filepath.Abs(o.Environment)
		if err != nil {
			return "", err
		}
		if name, err := filepath.Rel(app.Root, path); err == nil && filepath.IsLocal(name) {
			excluded = append(excluded, filepath.ToSlash(name))
		}
	}
	text, err := json.Marshal(excluded)
	return string(text), err
}

// checkFiles refuses an image that package of an earlier call has not packed from the files of the application.
func (c *appCall) checkFiles(app *apps.App, file string, contents *image.Contents) error {
	if c.wants["package"] {
		return nil
	}
	if contents.Revision != app.Commit {
		of := "no commit"
		if contents.Revision != "" {
			of = fmt.Sprintf("the commit %q", contents.Revision)
		}
		now := app.Root + " is not a clone"
		if app.Cloned() {
			now = "the clone is at " + app.Commit
		}
		return fmt.Errorf("%s is of %s, and %s: add the command package", file, of, now)
	}
	packed := contents.Labels[image.LabelFiles]
	if packed == "" {
		return fmt.Errorf("%s has no label %s, by which changes of files are seen: an older version of millrace, or "+
			"another program, has packed the image: add the command package", file, image.LabelFiles)
	}
	var more []string
	if err := json.Unmarshal([]byte(contents.Labels[labelExcluded]), &more); err != nil {
		return fmt.Errorf("%s: the label %s: %w: add the command package", file, labelExcluded, err)
	}
	needs, err := c.needs(app)
	if err != nil {
		return err
	}
	exclude, err := exclusions(app, needs, file, nil)
	if err != nil {
		return err
	}
	digest, err := image.FilesDigest(c.Context(), app.Root, func(name string) bool {
		return exclude(name) || slices.Contains(more, strings.TrimSuffix(name, "/"))
	})
	if err == nil && digest != packed {
		err = fmt.Errorf("files of %s have changed since %s was packed: add the command package", app.Root, file)
	}
	return err
}

// takeEnvironment takes the environment of build, unless the flags name another one, or an interpreter alone.
func (p *appPackaging) takeEnvironment(c *appCall, app *apps.App) (release func(), err error) {
	if p.environment != "" || p.python != "" && !c.wants["build"] {
		return func() {}, nil
	}
	env, release, err := c.environment(app)
	if env != nil {
		p.environment, p.python = env.Path, ""
	}
	return release, err
}

// options returns what the image has.
func (p *appPackaging) options(app *apps.App) (image.Options, error) {
	inside, err := filepath.Rel(app.Root, app.File)
	if err != nil {
		return image.Options{}, err
	}
	inside = filepath.ToSlash(inside)
	o := image.Options{Application: app.Root, Environment: p.environment, Python: p.python, FFmpeg: p.ffmpeg,
		Title: app.Name, Revision: app.Commit}
	if app.Cloned() && app.Source.Kind != source.File { // a path of this machine says nothing elsewhere
		o.Source = app.Source.Address()
	}
	python := true
	if app.Format == apps.Millrace.Name {
		o.Configuration = inside
		if python, err = hasPython(app.File); err != nil {
			return o, err
		}
	} else {
		o.GRPC, o.Variables = -1, []string{appLogFormat}
		o.Arguments = []string{app.Format, "--config", image.ApplicationAt + "/" + inside,
			"--host", "0.0.0.0", "--port", "8000", "run"}
	}
	if python && o.Environment == "" && o.Python == "" && p.base == "" {
		o.Python = "python3"
	}
	commit := time.Time{}
	if app.Cloned() {
		if commit, err = source.CommitTime(app.Root); err != nil {
			return o, err
		}
	}
	o.Time, err = image.SourceTime(commit)
	return o, err
}

// hasPython reports whether a model of the configuration file is in Python.
func hasPython(file string) (bool, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return false, err
	}
	for _, m := range cfg.Models {
		kind := m.Kind
		if kind == "" {
			if kind, _, err = workers.KindOf(m.Source); err != nil {
				return false, fmt.Errorf("%s: models: %s: %w", file, m.Name, err)
			}
		}
		if kind == "python" {
			return true, nil
		}
	}
	return false, nil
}

// excluded leaves the folder of clones, the image itself, and the paths in more out of an image. A path that the
// application does not have is an error: a misspelled path would pack what the user wants to keep.
func excluded(root, output string, more []string) (func(name string) bool, error) {
	out, err := filepath.Rel(root, output)
	if err != nil {
		out = ""
	}
	out = filepath.ToSlash(out)
	bill := strings.TrimSuffix(out, path.Ext(out)) + ".cdx.json" // as package image writes it
	left := map[string]bool{apps.Folder: true, out: true, out + ".cdx.json": true, bill: true}
	for _, name := range more {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%q is no path within %s", name, root)
		}
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			return nil, err
		}
		left[filepath.ToSlash(filepath.Clean(name))] = true
	}
	return func(name string) bool { return left[strings.TrimSuffix(name, "/")] }, nil
}

// exclusions reports which files the image lacks: those of excluded, and files that the configuration names.
func exclusions(app *apps.App, needs *apps.Needs, output string, more []string) (func(name string) bool, error) {
	exclude, err := excluded(app.Root, output, more)
	if err == nil && needs.Exclude != nil {
		exclude = alsoExcluded(exclude, app, needs.Exclude)
	}
	return exclude, err
}

// alsoExcluded leaves out files of the configuration's folder that the configuration names, besides those of first.
func alsoExcluded(first func(string) bool, app *apps.App, named func(string) bool) func(name string) bool {
	dir, err := filepath.Rel(app.Root, filepath.Dir(app.File))
	if err != nil {
		return first
	}
	prefix := filepath.ToSlash(dir) + "/"
	if dir == "." {
		prefix = ""
	}
	return func(name string) bool {
		inside, is := strings.CutPrefix(strings.TrimSuffix(name, "/"), prefix)
		return first(name) || is && named(inside)
	}
}

// imageFile returns the absolute path of the image that package writes and publish reads.
func (c *appCall) imageFile(app *apps.App) (file string, layout bool, err error) {
	file, err = c.Flags().GetString("out")
	if err != nil {
		return "", false, err
	}
	if file == "" {
		file = app.Name + ".tar"
	}
	layout = strings.HasSuffix(file, "/")
	if st, err := os.Stat(file); err == nil && st.IsDir() && !layout {
		return "", false, usagef("--out: %s is a folder: write %s/ for an OCI layout", file, file)
	}
	if st, err := os.Stat(filepath.Dir(filepath.Clean(file))); err != nil || !st.IsDir() {
		return "", false, usagef("--out: there is no folder %s for the image", filepath.Dir(filepath.Clean(file)))
	}
	file, err = filepath.Abs(file)
	return file, layout, err
}

func (c *appCall) imageName() string { return c.Flags().Lookup("image").Value.String() }

// packageProgress shows how far a call is, on a terminal.
func packageProgress(bar *progress) func(image.Progress) {
	if !bar.overwrite {
		return nil
	}
	return func(p image.Progress) {
		if p.Total == 0 {
			bar.line(p.Step)
			return
		}
		bar.line(fmt.Sprintf("%s: %d of %d", p.Step, p.Done, p.Total))
	}
}

// appRegistryFlags adds the flags for registries, under the names that errors of package image have.
func appRegistryFlags(flags *pflag.FlagSet) {
	text := func(name, usage string) { flags.String(strings.TrimPrefix(name, "--"), "", usage) }
	text(image.FlagReference, "package, publish, deploy: REGISTRY/NAME:TAG (default of package: localhost/NAME:latest)")
	text(image.FlagUser, "package, publish: user at the registry (default: the login of docker or podman)")
	text(image.FlagPassword, "package, publish: name of the variable with the password or token of --registry-user")
	text(image.FlagCA, "package, publish: file with authorities of the registry's certificate")
	flags.Bool(strings.TrimPrefix(image.FlagPlainHTTP, "--"), false,
		"package, publish: HTTP without TLS to other machines")
}

// registry returns the options for registries.
func (c *appCall) registry() image.RegistryOptions {
	text := func(name string) string { return c.Flags().Lookup(strings.TrimPrefix(name, "--")).Value.String() }
	return image.RegistryOptions{User: text(image.FlagUser), PasswordVariable: text(image.FlagPassword),
		Password: c.password,
		CA:       text(image.FlagCA), PlainHTTP: text(image.FlagPlainHTTP) == "true"}
}

// takePassword removes the variable of --registry-password from the environment, which the application gets.
func (c *appCall) takePassword() error {
	if name := c.Flags().Lookup(strings.TrimPrefix(image.FlagPassword, "--")).Value.String(); name != "" {
		c.password = os.Getenv(name)
		return os.Unsetenv(name)
	}
	return nil
}

// appPublish pushes the image that package has written.
func appPublish(*pflag.FlagSet) appStep {
	step := appStep{name: "publish", short: "push the image of package to a registry", flags: publishFlags}
	step.run = func(c *appCall) (any, error) {
		reference := c.imageName()
		if reference == "" {
			return nil, usagef("%s: is missing: want REGISTRY/NAME:TAG", image.FlagReference)
		}
		app, err := c.application()
		if err != nil {
			return nil, err
		}
		img, _, err := c.openImage(app)
		if err != nil {
			return nil, err
		}
		defer func() { _ = img.Close() }()
		bar := newProgress(c.ErrOrStderr())
		defer bar.end()
		o := c.registry()
		o.Progress = packageProgress(bar)
		at, err := image.Publish(c.Context(), img, reference, o)
		if err != nil {
			return nil, err
		}
		bar.end()
		c.print("published %s", at)
		return appPublishResult{"publish", reference, at}, nil
	}
	return step
}

// appPublishResult is what publish prints as JSON.
type appPublishResult struct {
	Command   string `json:"command"`
	Image     string `json:"image"`
	Published string `json:"published"` // the reference by digest
}
