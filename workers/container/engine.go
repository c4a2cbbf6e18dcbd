package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"millrace/stream"
)

// Options are the settings of the administrator.
type Options struct {
	Host   string   // address of the engine, such as unix:///run/docker.sock
	Images []string // the images that models may have: names with or without tags or digests
	User   string   // UID:GID of the processes in containers; "" = see userOf
	Data   string   // the data folder of the server; "" = none
	Log    *slog.Logger
}

// Engine is the connection to a container engine, with the working folders. All methods are safe for concurrent use.
type Engine struct {
	opts   Options
	folder string // of the working folders
	uid    int
	gid    int
	images []reference.Named
	client *client.Client

	mu             sync.Mutex
	id             string // of the data folder; "" until Open
	orphansRemoved bool   // containers of an earlier process were removed

	models models
}

// defaultUser is the user of containers of a server that runs as root.
const defaultUser = 65532

// New returns the engine of the settings, without a connection. Errors name the setting.
func New(o Options) (*Engine, error) {
	e := &Engine{opts: o}
	var err error
	if e.uid, e.gid, err = userOf(o.User); err != nil {
		return nil, err
	}
	for i, name := range o.Images {
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, fmt.Sprintf("containers.images[%d]", i),
				"%.100q is no name of an image: %w", name, err)
		}
		e.images = append(e.images, named)
	}
	if o.Data != "" {
		folder, err := filepath.Abs(o.Data)
		if err != nil {
			return nil, err
		}
		e.folder = filepath.Join(folder, "containers")
	}
	if o.Host != "" {
		if !strings.HasPrefix(o.Host, "unix://") {
			return nil, stream.Errorf(stream.InvalidArgument, "containers.host",
				"%.100q is no socket of this machine: want unix:///PATH, since containers get folders of this machine",
				o.Host)
		}
		if e.client, err = client.New(client.WithHost(o.Host)); err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, "containers.host", "%w", err)
		}
	}
	return e, nil
}

// userOf reads UID:GID. Without a text, the user is defaultUser for a server that runs as root, and otherwise the
// user of the server, who can then remove the files of containers.
func userOf(text string) (uid, gid int, err error) {
	if text == "" {
		if uid, gid = os.Getuid(), os.Getgid(); uid == 0 {
			return defaultUser, defaultUser, nil
		}
		return uid, gid, nil
	}
	u, g, found := strings.Cut(text, ":")
	uid, errU := strconv.Atoi(u)
	gid, errG := strconv.Atoi(g)
	if !found || errU != nil || errG != nil || uid < 0 || gid < 0 {
		return 0, 0, stream.Errorf(stream.InvalidArgument, "containers.user", "%.40q is not UID:GID with numbers", text)
	}
	return uid, gid, nil
}

// Close closes the connection.
func (e *Engine) Close() {
	if e.client != nil {
		_ = e.client.Close()
	}
}

// checkConfigured returns why no model of the kind can be loaded, or nil.
func (e *Engine) checkConfigured() error {
	switch {
	case e == nil || e.client == nil:
		return stream.Errorf(stream.Unsupported, "containers.host",
			"is unset, and models of the kind container need a container engine: set the setting to the engine's "+
				"socket, such as unix:///run/docker.sock or unix:///run/podman/podman.sock")
	case e.folder == "":
		return stream.Errorf(stream.Unsupported, "data",
			"is unset, and models of the kind container need it: set the setting to a folder")
	}
	return nil
}

// Labels of containers.
const (
	labelOwner = "millrace.data" // the id of the data folder
	labelRun   = "millrace.run"  // the id of the run
	labelModel = "millrace.model"

	labelInstance = "millrace.instance" // number of the instance of a model that serves
)

// openTime bounds the removal of the containers of an earlier process.
const openTime = 30 * time.Second

// Open removes what an earlier process with the data folder has left: working folders and, if the engine answers,
// containers. The caller holds the lock of the data folder. Without an answer of the engine, the first load of a model
// tries again.
func (e *Engine) Open(ctx context.Context) error {
	if e.checkConfigured() != nil {
		return nil
	}
	e.mu.Lock()
	err := e.open()
	e.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if err := e.removeOrphans(ctx); err != nil {
		e.opts.Log.Warn("the container engine does not answer: models of the kind container cannot run", "setting",
			"containers.host", "error", err)
	}
	return nil
}

// open makes the folders, and reads or makes the id of the data folder.
func (e *Engine) open() error {
	for _, name := range []string{"runs", "models"} {
		if err := os.RemoveAll(filepath.Join(e.folder, name)); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(e.folder, name), 0o711); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(e.folder, "networks"), 0o700); err != nil {
		return err
	}
	name := filepath.Join(e.folder, "id")
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		b = []byte(rand.Text())
		err = os.WriteFile(name, b, 0o600)
	}
	e.id = strings.TrimSpace(string(b))
	if err == nil && e.id == "" {
		err = fmt.Errorf("%s is empty: remove the file", name)
	}
	return err
}

// removeOrphans removes the containers and networks of an earlier process, once.
func (e *Engine) removeOrphans(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.id == "" {
		return stream.Errorf(stream.Unavailable, "", "the data folder is not open yet: try again")
	}
	if e.orphansRemoved {
		return nil
	}
	found, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true,
		Filters: make(client.Filters).Add("label", labelOwner+"="+e.id)})
	if err != nil {
		return unavailable(err)
	}
	for _, c := range found.Items {
		if err := e.remove(ctx, c.ID); err != nil {
			return unavailable(err)
		}
		e.opts.Log.Info("a container of an earlier process was removed", "container", c.ID, "model",
			c.Labels[labelModel], "run", c.Labels[labelRun])
	}
	if err := e.removeOrphanNetworks(ctx); err != nil {
		return unavailable(err)
	}
	e.orphansRemoved = true
	return nil
}

// remove removes a container, with SIGKILL if the container runs. A missing container is no error.
func (e *Engine) remove(ctx context.Context, id string) error {
	_, err := e.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// unavailable returns the error of an engine that does not do its work.
func unavailable(err error) error {
	return stream.Errorf(stream.Unavailable, "", "the container engine fails: %w", err)
}

// CheckImage returns nil for an image that models may have. Errors: of a load of a model with the image.
func (e *Engine) CheckImage(image string) error {
	if err := e.checkConfigured(); err != nil {
		return err
	}
	_, err := e.allowedImage(image)
	return err
}

// allowedImage returns the name of an image for the engine. Errors: PermissionDenied, when containers.images has no
// entry for the image: an entry without tag and digest allows all of the name.
func (e *Engine) allowedImage(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", stream.Errorf(stream.InvalidArgument, "container.image", "%.100q is no name of an image: %w", name,
			err)
	}
	full := reference.TagNameOnly(named).String()
	if !slices.ContainsFunc(e.images, func(entry reference.Named) bool {
		return entry.String() == full || reference.IsNameOnly(entry) && entry.Name() == named.Name()
	}) {
		return "", stream.Errorf(stream.PermissionDenied, "containers.images",
			"has no entry for the image %.200q: only images of the list run", name)
	}
	return full, nil
}

// image is an image that the engine has.
type image struct {
	id      string
	volumes []string // folders that would be writable volumes
	health  bool     // the image has a health check
}

// resolveImage returns an image that may run. With pull, the image may come from its registry.
func (e *Engine) resolveImage(ctx context.Context, name, pull string, log *slog.Logger) (image, error) {
	full, err := e.allowedImage(name)
	if err != nil {
		return image{}, err
	}
	if pull == "always" {
		if err := e.pull(ctx, full, log); err != nil {
			return image{}, err
		}
	}
	for {
		about, err := e.client.ImageInspect(ctx, full)
		switch {
		case errdefs.IsNotFound(err) && pull == "missing":
			if err := e.pull(ctx, full, log); err != nil {
				return image{}, err
			}
			pull = "never"
			continue
		case errdefs.IsNotFound(err):
			return image{}, stream.Errorf(stream.NotFound, "container.image",
				"the container engine has no image %s: build, load or pull the image, or set container.pull", full)
		case err != nil:
			return image{}, unavailable(err)
		}
		found := image{id: about.ID}
		if c := about.Config; c != nil {
			found.health = c.Healthcheck != nil
			for folder := range c.Volumes {
				found.volumes = append(found.volumes, folder)
			}
		}
		return found, nil
	}
}

// pull gets an image from its registry.
func (e *Engine) pull(ctx context.Context, full string, log *slog.Logger) error {
	log.Info("an image is pulled", "image", full)
	failed := func(err error) error {
		return stream.Errorf(stream.Unavailable, "container.pull", "the image %s cannot be pulled: %w", full, err)
	}
	progress, err := e.client.ImagePull(ctx, full, client.ImagePullOptions{})
	if err != nil {
		return failed(err)
	}
	defer func() { _ = progress.Close() }()
	last := ""
	for m, err := range progress.JSONMessages(ctx) {
		if err != nil {
			return failed(err)
		}
		if m.Error != nil {
			return failed(m.Error)
		}
		if m.Status != "" && m.Status != last {
			last = m.Status
			log.Debug("the pull of an image goes on", "image", full, "layer", m.ID, "status", m.Status)
		}
	}
	log.Info("an image was pulled", "image", full)
	return nil
}
