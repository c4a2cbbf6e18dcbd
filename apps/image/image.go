// Package image packs an application and the millrace program as a container image, and publishes images.
//
// An image has, from the lowest layer up: the system (the libraries that are needed, the Python interpreter, ffmpeg
// and certificates, all taken from this machine, or a base image in their place), the program, the Python
// environment, and the application. Equal contents give an equal image, byte for byte: files have fixed owners, rights
// and times, and the folders in which application and environment lie on this machine leave no trace. Only the
// application's layer and the configuration have the time that the caller gives, so that a new commit keeps the
// digests of the other layers.
//
//	img, err := image.Build(ctx, image.Options{
//		Application: "app", Configuration: "millrace.yaml", Environment: "app/.venv",
//		Title: "greet", Revision: sha, Time: commit,
//	})
//	if err != nil {
//		return err
//	}
//	defer img.Close()
//	if err := img.WriteArchive("greet.tar", "localhost/greet:v1"); err != nil { // podman load -i greet.tar
//		return err
//	}
//	at, err := image.Publish(ctx, img, "registry.example.com/team/greet:v1", image.RegistryOptions{
//		User: "ann", PasswordVariable: "REGISTRY_PASSWORD",
//	})
//
// The package owns what an image of an application contains, and how it reaches a registry. It must not know where
// applications come from, nor who builds their environments.
package image

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"millrace/internal/ociimage"
	"millrace/internal/scratch"
)

// Paths within images.
const (
	ApplicationAt = "/app"              // the application, and the working directory
	EnvironmentAt = "/usr/local/venv"   // the Python environment
	PythonAt      = "/usr/local/python" // the interpreter copied from this machine
	programAt     = "usr/local/bin/millrace"
	librariesAt   = "usr/local/lib/millrace"
	documentsAt   = "usr/share/doc/millrace"
	stateAt       = "var/lib/millrace"
)

// fixed is the time of all files below the application's layer, the earliest time of ZIP archives.
var fixed = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Options describe an image.
type Options struct {
	Application string // folder of the application

	// Exclude reports whether a file or folder is left out, by slash-separated path within the application. Folders
	// are asked with a trailing slash. .git, __pycache__ and Environment are always left out.
	Exclude func(name string) bool

	Configuration string   // millrace.yaml of the application, by path within the application; "" = none
	Arguments     []string // of millrace in the image; nil = serve, with Configuration and the ports
	Variables     []string // further variables of the image, as NAME=value
	HTTP, GRPC    int      // ports; 0 = 8000 and 8001; GRPC below 0 = off

	Program     string // the millrace program; "" = the running program
	Environment string // folder of a Python environment (venv); "" = none

	// Python is an interpreter to copy without an environment: a path, or a name in PATH; "" = none. With
	// Environment, the environment's interpreter is copied, and Python must be "".
	Python string

	FFmpeg       bool   // copy ffmpeg and ffprobe, as found in PATH, with their libraries
	Certificates string // file with certificate authorities; "" = those of this machine's system
	Base         *Base  // image in place of this machine's libraries and Python; nil = none

	Time                             time.Time // of the image; see SourceTime
	Title, Version, Revision, Source string    // labels org.opencontainers.image.*
	Labels                           map[string]string

	Progress func(p Progress)         // called by the goroutine of the call; nil = none
	search   func() ([]string, error) // folders of libraries, for tests
}

// Progress says how far a call is.
type Progress struct {
	Step        string // for a message, such as "Python environment"
	Done, Total int64  // layers of a build, bytes of a publication; Total 0 = not known yet
}

// Image is a built or opened image.
type Image struct {
	Digest string   // of the manifest: sha256:...
	SBOM   []byte   // CycloneDX 1.5 in JSON; nil for an opened image
	Notes  []string // what a reader of the command's output should know, such as missing certificates

	image v1.Image
	at    time.Time
	dir   *scratch.Folder // of the layers; nil = none
}

// SourceTime returns the time for an image: SOURCE_DATE_EPOCH if the environment has the variable, else the time of
// the commit, else a fixed time.
func SourceTime(commit time.Time) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	switch seconds, err := strconv.ParseInt(text, 10, 64); {
	case text == "" && commit.IsZero():
		return fixed, nil
	case text == "":
		return commit.UTC().Truncate(time.Second), nil
	case err != nil || seconds < 0 || seconds > 1<<33:
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is no time in seconds since 1970: unset the variable, "+
			"or set it by $(git log -1 --format=%%ct)", text)
	default:
		return time.Unix(seconds, 0).UTC(), nil
	}
}

// Build builds an image. The caller closes the image.
func Build(ctx context.Context, o Options) (*Image, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	img := &Image{at: o.Time, dir: dir}
	if err := img.build(ctx, &o); err != nil {
		return nil, errors.Join(err, img.Close())
	}
	return img, nil
}

// defaults checks the options, and replaces zero values.
func (o *Options) defaults() (err error) {
	if o.Program == "" {
		if o.Program, err = os.Executable(); err != nil {
			return err
		}
	}
	o.HTTP, o.GRPC = cmp.Or(o.HTTP, 8000), cmp.Or(o.GRPC, 8001)
	switch {
	case o.HTTP < 1 || o.HTTP > 65535 || o.GRPC > 65535 || o.HTTP == o.GRPC:
		return fmt.Errorf("the ports %d (HTTP) and %d (gRPC) have to be two different ports of 1 to 65535", o.HTTP,
			o.GRPC)
	case o.Python != "" && o.Environment != "":
		return errors.New("an interpreter and an environment: leave the interpreter out, the environment names its own")
	case o.Base != nil && o.Python != "":
		return errors.New("an interpreter and a base image: leave the interpreter out, it comes with the base image")
	case o.Base != nil && o.FFmpeg:
		return errors.New("ffmpeg and a base image: take a base image that has ffmpeg, or leave the base image out")
	}
	if st, err := os.Stat(o.Application); err != nil || !st.IsDir() {
		return fmt.Errorf("application: %q is no folder", o.Application)
	}
	if o.Application, err = filepath.Abs(o.Application); err != nil {
		return err
	}
	if o.Environment != "" {
		if o.Environment, err = filepath.Abs(o.Environment); err != nil {
			return err
		}
	}
	if c := o.Configuration; c != "" && !filepath.IsLocal(filepath.FromSlash(c)) {
		return fmt.Errorf("configuration: %q is not a path within the application", c)
	}
	if o.Time.IsZero() {
		o.Time = fixed
	}
	o.Time = o.Time.UTC().Truncate(time.Second)
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.search == nil {
		o.search = hostFolders
	}
	return nil
}

// arguments returns the arguments of millrace in the image.
func (o *Options) arguments() []string {
	if o.Arguments != nil {
		return o.Arguments
	}
	list := []string{"serve"}
	if o.Configuration != "" {
		list = append(list, "--config", path.Join(ApplicationAt, o.Configuration))
	}
	list = append(list, "--http", fmt.Sprint("0.0.0.0:", o.HTTP), "--grpc")
	if o.GRPC < 0 {
		return append(list, "off")
	}
	return append(list, fmt.Sprint("0.0.0.0:", o.GRPC))
}

// stage is the contents of a layer, and the words for the image's history.
type stage struct {
	what string
	tree ociimage.Tree
	at   time.Time
}

func (img *Image) build(ctx context.Context, o *Options) error {
	machine, err := architecture(o.Program)
	if err != nil {
		return err
	}
	var parts []part
	stages, digest, err := img.stages(o, machine, &parts)
	if err != nil {
		return err
	}
	app := stages[len(stages)-1].tree
	if img.SBOM, err = bill(o, parts); err != nil {
		return err
	}
	app[documentsAt+"/sbom.cdx.json"] = ociimage.Entry{Text: img.SBOM, Mode: 0o644}
	if c := o.Configuration; c != "" {
		if _, has := app[path.Join(ApplicationAt[1:], c)]; !has {
			return fmt.Errorf("configuration: the application has no %s, or leaves the file out", c)
		}
	}
	var layers []ociimage.Addition
	for i, s := range stages {
		o.Progress(Progress{Step: s.what, Done: int64(i), Total: int64(len(stages))})
		if err := o.Base.check(s.tree); err != nil {
			return err
		}
		l, err := s.tree.Layer(ctx, img.dir.Path, s.at)
		if err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		layers = append(layers, ociimage.Addition{Layer: l, By: s.what})
	}
	o.Progress(Progress{Step: "image", Done: int64(len(stages)), Total: int64(len(stages))})
	var under v1.Image
	if o.Base != nil {
		under = o.Base.image
	}
	config := o.config(machine)
	config.Config.Labels[LabelFiles] = digest()
	if img.image, err = ociimage.Build(under, config, layers...); err != nil {
		return err
	}
	manifest, err := img.image.Digest()
	img.Digest = manifest.String()
	return err
}

// stages returns the contents of the layers from the lowest up; the application is the last. Once the layers are
// written, digest returns the label LabelFiles.
func (img *Image) stages(o *Options, machine string, parts *[]part) (list []stage, digest func() string, err error) {
	folders, err := o.search()
	if err != nil {
		return nil, nil, err
	}
	system := ociimage.Tree{}
	libs, err := newLibraries(system, folders, o.Program, o.Base)
	if err != nil {
		return nil, nil, err
	}
	program, err := programTree(o.Program, libs, parts)
	if err != nil {
		return nil, nil, err
	}
	python, err := o.python(libs, parts)
	if err != nil {
		return nil, nil, err
	}
	list = []stage{{"libraries of the system", system, fixed}, {"millrace", program, fixed}}
	links := map[string]string{}
	if o.Environment != "" {
		env, err := environmentTree(o, python, libs, parts)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, stage{"Python environment", env, fixed})
		if rel, err := filepath.Rel(o.Application, o.Environment); err == nil && filepath.IsLocal(rel) {
			links[filepath.ToSlash(rel)] = EnvironmentAt
		}
	}
	if o.FFmpeg {
		if err := libs.ffmpeg(); err != nil {
			return nil, nil, err
		}
	}
	app, err := applicationTree(o, links, libs)
	if err != nil {
		return nil, nil, err
	}
	if o.Base == nil {
		if err := root(system, o.Certificates, img); err != nil {
			return nil, nil, err
		}
		if err := libs.describe(parts); err != nil {
			return nil, nil, err
		}
	} else {
		system.Folder("etc/millrace", 0o755, 0)
		*parts = append(*parts, o.Base.part())
	}
	system.Folder(stateAt, 0o700, ociimage.User)
	img.Notes = append(img.Notes, libs.notes...)
	return append(list, stage{"application", app, o.Time}), hashed(app, links), nil
}

// config returns the configuration of the image.
func (o *Options) config(machine string) v1.ConfigFile {
	c := v1.ConfigFile{Architecture: machine, OS: "linux", Created: v1.Time{Time: o.Time}}
	search := "/usr/local/bin:/usr/bin"
	if o.Base != nil {
		c.Config.Env, c.Variant = slices.Clone(o.Base.config.Config.Env), o.Base.config.Variant
		c.Config.Labels = maps.Clone(o.Base.config.Config.Labels)
		c.Config.Env = slices.DeleteFunc(c.Config.Env, func(v string) bool {
			if p, is := strings.CutPrefix(v, "PATH="); is {
				search = "/usr/local/bin:" + p
				return true
			}
			return strings.HasPrefix(v, "HOME=")
		})
	}
	if o.Base == nil && (o.Python != "" || o.Environment != "") {
		search = PythonAt + "/bin:" + search
	}
	if o.Environment != "" {
		search = EnvironmentAt + "/bin:" + search
	}
	c.Config.Env = append(append(c.Config.Env, "PATH="+search, "HOME=/"+stateAt), o.Variables...)
	if o.HTTP != 8000 {
		c.Config.Env = append(c.Config.Env, fmt.Sprint("MILLRACE_ADDR=127.0.0.1:", o.HTTP))
	}
	labels := map[string]string{"org.opencontainers.image.created": o.Time.Format(time.RFC3339)}
	for label, value := range map[string]string{"title": o.Title, "version": o.Version, "revision": o.Revision,
		"source": o.Source} {
		if value != "" {
			labels["org.opencontainers.image."+label] = value
		}
	}
	if o.Base != nil {
		labels["org.opencontainers.image.base.name"] = o.Base.name
		labels["org.opencontainers.image.base.digest"] = o.Base.digest
	}
	if c.Config.Labels == nil {
		c.Config.Labels = map[string]string{}
	}
	maps.Copy(c.Config.Labels, labels)
	maps.Copy(c.Config.Labels, o.Labels)
	c.Config.User = fmt.Sprintf("%[1]d:%[1]d", ociimage.User)
	c.Config.WorkingDir, c.Config.StopSignal = ApplicationAt, "SIGTERM"
	c.Config.Entrypoint, c.Config.Cmd = []string{"/" + programAt}, o.arguments()
	c.Config.ExposedPorts = map[string]struct{}{fmt.Sprint(o.HTTP, "/tcp"): {}}
	if o.GRPC > 0 {
		c.Config.ExposedPorts[fmt.Sprint(o.GRPC, "/tcp")] = struct{}{}
	}
	c.Config.Volumes = map[string]struct{}{"/" + stateAt: {}}
	c.Config.Healthcheck = ociimage.Health()
	return c
}

// WriteArchive writes the image as a file that is an OCI layout in a tar archive, and an input of `podman load` and
// `docker load` under a name, for example localhost/greet:v1. The bill of materials is written beside the file: for
// greet.tar, greet.cdx.json.
func (img *Image) WriteArchive(file, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".image-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = ociimage.WriteArchive(f, img.image, img.at, name)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if err := img.writeSBOM(strings.TrimSuffix(file, filepath.Ext(file))); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// WriteLayout writes the image as the folder of an OCI layout. The bill of materials is written beside the folder.
// An existing folder has to be empty, or an OCI layout, whose index then names only this image.
func (img *Image) WriteLayout(dir, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := ociimage.WriteLayout(dir, img.image, name); err != nil {
		return err
	}
	return img.writeSBOM(filepath.Clean(dir))
}

// CheckName refuses a name of an image that podman and docker would refuse.
func CheckName(text string) error {
	if _, err := name.NewTag(text, name.StrictValidation); err != nil {
		return fmt.Errorf("%s: %q is no name of an image (%w): take a name such as localhost/greet:v1", FlagReference,
			text, err)
	}
	return nil
}

func (img *Image) writeSBOM(stem string) error {
	if img.SBOM == nil {
		return nil
	}
	return os.WriteFile(stem+".cdx.json", img.SBOM, 0o644)
}

// Size returns the size of the compressed layers in bytes.
func (img *Image) Size() (int64, error) {
	m, err := img.image.Manifest()
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, l := range m.Layers {
		n += l.Size
	}
	return n, nil
}

// Close removes the files of the layers. The image cannot be used afterwards.
func (img *Image) Close() error {
	return removeFolder(img.dir)
}

// Open opens an image written before: the folder of an OCI layout, or an archive of OCI or of docker. The caller
// closes the image.
func Open(name string) (*Image, error) {
	img := &Image{}
	var err error
	if img.image, img.dir, err = openLocal(name); err != nil {
		return nil, err
	}
	digest, err := img.image.Digest()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), img.Close())
	}
	img.Digest = digest.String()
	config, err := img.image.ConfigFile()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), img.Close())
	}
	img.at = config.Created.UTC()
	return img, nil
}

// textFile returns the contents of a file of at most most bytes, or ok false for a larger file or for binary data.
func textFile(name string, most int64) (text []byte, ok bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, most+1))
	return text, err == nil && int64(len(text)) <= most && bytes.IndexByte(text[:min(len(text), 512)], 0) < 0, err
}
