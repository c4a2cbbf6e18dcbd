package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"

	"millrace/apps"
	"millrace/apps/deploy"
	"millrace/apps/image"
	"millrace/apps/kubernetes"
	"millrace/apps/source"
	"millrace/internal/sshclient"
	"millrace/internal/textfile"
)

// deployFlags are flags of package that deploy reads, too; targetFlags are flags of deploy that remove and logs read.
var (
	deployFlags = []string{"out", "image"}
	targetFlags = []string{"target", "target-folder", "name"}
)

// appDeploying are the flags of deploy.
type appDeploying struct {
	with, http, grpc, health string
	secrets, secretFiles     []string
	podman                   []string
	stopFirst, force         bool
	manifests                string
	wait                     time.Duration
}

// appDeploy runs the image of package on hosts.
func appDeploy(flags *pflag.FlagSet) appStep {
	var d appDeploying
	flags.String("target", "", "deploy, remove, logs: the hosts, over SSH: [USER@]HOST[:PORT][,...]")
	flags.String("target-folder", "", "deploy, remove, logs: absolute path of the folder on the hosts (default "+
		"/var/lib/millrace-apps/NAME, or ~/.local/share/millrace-apps/NAME without root)")
	flags.String("name", "", "deploy, remove, logs: name of the application on the hosts (default the last part of "+
		"--config, in lower case)")
	flags.StringVar(&d.with, "with", deploy.Podman, "deploy: podman or systemd: who runs the application there")
	flags.StringVar(&d.http, "http", deploy.DefaultHTTP, "deploy: address of REST and WebSocket on the hosts")
	flags.StringVar(&d.grpc, "grpc", deploy.DefaultGRPC, "deploy: address of gRPC on the hosts, or off")
	flags.StringVar(&d.health, "health", "", "deploy: address of the health check on the hosts, such as "+
		"https://models.example.org (default: that of --http)")
	flags.StringArrayVar(&d.secrets, "secret", nil,
		"deploy: NAME:VARIABLE: the variable NAME of the application gets the value of VARIABLE here; may be repeated")
	flags.StringArrayVar(&d.secretFiles, "secret-file", nil,
		"deploy: NAME:FILE: the variable NAME of the application gets the content of FILE; may be repeated")
	flags.StringArrayVar(&d.podman, "podman-option", nil,
		"deploy: further option of podman create, such as --memory=4g; may be repeated")
	flags.BoolVar(&d.stopFirst, "stop-first", false, "deploy: stop the old release before the new one starts, for "+
		"memory or a folder that only one can use; meanwhile requests are refused")
	flags.BoolVar(&d.force, "force", false, "deploy: make a new release, although the image, the settings and the "+
		"secrets are those of the release that serves")
	flags.StringVar(&d.manifests, "kubernetes", "", "deploy: write manifests for --image into this folder, "+
		"in place of --target")
	flags.DurationVar(&d.wait, "ready-timeout", deploy.DefaultWait,
		"deploy: time limit for the release to become ready")
	return appStep{name: "deploy", short: "run the image of package on hosts with Podman or systemd",
		flags: deployFlags, run: func(c *appCall) (any, error) { return d.run(c) }}
}

// appDeployResult is what deploy prints as JSON.
type appDeployResult struct {
	Command string          `json:"command"`
	Name    string          `json:"name"`
	Targets []deploy.Result `json:"targets"`
}

func (d *appDeploying) run(c *appCall) (any, error) {
	app, err := c.application()
	if err != nil {
		return nil, err
	}
	if d.manifests != "" {
		return d.writeManifests(c, app)
	}
	targets, o, err := c.targets()
	if err != nil {
		return nil, err
	}
	if d.with != deploy.Podman && d.with != deploy.Systemd {
		return nil, usagef("--with: %q is neither %s nor %s", d.with, deploy.Podman, deploy.Systemd)
	}
	if d.wait <= 0 {
		return nil, usagef("--ready-timeout: %s is not a duration above 0", d.wait)
	}
	if o.Secrets, err = d.allSecrets(c); err != nil {
		return nil, err
	}
	img, contents, err := c.openImage(app)
	if err != nil {
		return nil, err
	}
	defer func() { _ = img.Close() }()
	o.Image = contents
	o.Commit = o.Image.Revision
	o.With, o.HTTP, o.GRPC, o.Health, o.Podman = d.with, d.http, d.grpc, d.health, d.podman
	o.StopFirst, o.Force, o.Wait = d.stopFirst, d.force, d.wait
	bar := newProgress(c.ErrOrStderr())
	defer bar.end()
	o.Progress = deployProgress(bar)
	result := &appDeployResult{"deploy", o.Name, []deploy.Result{}}
	o.Failed = func(r deploy.Result) { result.Targets = append(result.Targets, r) }
	err = deploy.Run(c.Context(), targets, o, deployer(), func(r deploy.Result) {
		bar.end()
		for _, note := range r.Notes {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "millrace: %s: note: %s\n", r.Target, note)
		}
		if r.Unchanged {
			c.print("%s: unchanged: release %d serves at %s (--force makes a new release)", r.Target, r.Release, o.HTTP)
		} else {
			c.print("%s: release %d serves at %s: %s copied, %.1f s", r.Target, r.Release, o.HTTP,
				units.BytesSize(float64(r.Copied)), r.Seconds)
		}
		result.Targets = append(result.Targets, r)
	})
	return c.partly(result, err)
}

// partly returns a result. After a failure, --json prints what succeeded before.
func (c *appCall) partly(result any, err error) (any, error) {
	if err != nil && c.json {
		return nil, errors.Join(err, writeJSON(c.OutOrStdout(), result))
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// appManifestsResult is what deploy --kubernetes prints as JSON.
type appManifestsResult struct {
	Command string   `json:"command"`
	Name    string   `json:"name"`
	Folder  string   `json:"folder"`
	Files   []string `json:"files"`
}

func (d *appDeploying) writeManifests(c *appCall, app *apps.App) (*appManifestsResult, error) {
	for _, name := range []string{"target", "secret", "secret-file"} {
		if c.Flags().Changed(name) {
			return nil, usagef("--%s: is not for --kubernetes, whose manifests name a Secret: leave one out", name)
		}
	}
	if c.imageName() == "" {
		return nil, usagef("%s: is missing: want REGISTRY/NAME:TAG for the manifests", image.FlagReference)
	}
	if err := image.CheckName(c.imageName()); err != nil {
		return nil, err
	}
	o := kubernetes.Options{Name: c.hostName(), Image: c.imageName(),
		GRPC: app.Format == apps.Millrace.Name}
	files, err := kubernetes.Write(d.manifests, o)
	if err != nil {
		return nil, err
	}
	c.print("wrote %s in %s: kubectl apply -f %s", strings.Join(files, ", "), d.manifests, d.manifests)
	return &appManifestsResult{"deploy", o.Name, d.manifests, files}, nil
}

// hostName returns the name of the application on hosts, which need no clone.
func (c *appCall) hostName() string {
	if name := c.Flags().Lookup("name").Value.String(); name != "" {
		return name
	}
	return strings.ToLower(c.source.Name())
}

// origin returns the repository or folder of --config, "" without --config.
func (c *appCall) origin() string {
	if c.source.Kind == source.Folder && c.source.Repo != "" {
		if abs, err := filepath.Abs(c.source.Path()); err == nil {
			return abs
		}
	}
	return c.source.Address()
}

// targets returns the hosts of --target, and the options that all commands for hosts have.
func (c *appCall) targets() ([]deploy.Target, deploy.Options, error) {
	text := func(name string) string { return c.Flags().Lookup(name).Value.String() }
	o := deploy.Options{Name: c.hostName(), Folder: text("target-folder"), Source: c.origin(),
		SSH: sshclient.Options{Keys: c.options.Fetch.Keys, Agent: c.options.Fetch.Agent,
			KnownHosts: c.options.Fetch.KnownHosts}}
	if text("target") == "" {
		return nil, o, usagef("--target: is missing: want [USER@]HOST[:PORT][,...]")
	}
	targets, err := deploy.ParseTargets(text("target"))
	if err != nil {
		return nil, o, usagef("--target: %w", err)
	}
	return targets, o, nil
}

// openImage opens the image that package has written. An image of another commit than the clone is refused, and an
// image of files that have changed since.
func (c *appCall) openImage(app *apps.App) (*image.Image, *image.Contents, error) {
	file, _, err := c.imageFile(app)
	if err != nil {
		return nil, nil, err
	}
	img, err := image.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no image %s: add the command package", file)
	}
	if err != nil {
		return nil, nil, err
	}
	contents, err := img.Contents()
	if err == nil {
		err = c.checkFiles(app, file, contents)
	}
	if err != nil {
		return nil, nil, errors.Join(err, img.Close())
	}
	return img, contents, nil
}

// maxSecret is the largest secret, in bytes.
const maxSecret = 64 << 10

// takeSecrets removes the variables of --secret from the environment, which the application gets.
func (c *appCall) takeSecrets() error {
	specs, err := c.Flags().GetStringArray("secret")
	if err != nil {
		return err
	}
	for _, spec := range specs {
		name, variable, ok := strings.Cut(spec, ":")
		if !ok || name == "" || variable == "" {
			return errors.New("want NAME:VARIABLE, with the name of a variable that has the secret")
		}
		value, ok := os.LookupEnv(variable)
		if !ok {
			return fmt.Errorf("the variable %s for the secret %s is not set", variable, name)
		}
		c.secrets = append(c.secrets, deploy.Secret{Name: name, Value: []byte(value)})
	}
	for _, spec := range specs {
		_, variable, _ := strings.Cut(spec, ":")
		_ = os.Unsetenv(variable)
	}
	return deploy.CheckSecrets(c.secrets)
}

func (d *appDeploying) allSecrets(c *appCall) ([]deploy.Secret, error) {
	all := c.secrets
	for _, spec := range d.secretFiles {
		name, file, ok := strings.Cut(spec, ":")
		if !ok || name == "" || file == "" {
			return nil, usagef("--secret-file: want NAME:FILE")
		}
		value, err := textfile.Read(file, maxSecret)
		if err != nil {
			return nil, fmt.Errorf("--secret-file: %w", err)
		}
		all = append(all, deploy.Secret{Name: name, Value: []byte(strings.TrimSuffix(string(value), "\n"))})
	}
	if err := deploy.CheckSecrets(all); err != nil {
		return nil, usagef("--secret-file: %w", err)
	}
	return all, nil
}

// deployer returns the user and the host of this process, for messages about the lock.
func deployer() string {
	name, host := "somebody", "an unknown host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return fmt.Sprintf("%s on %s, process %d, since %s", name, host, os.Getpid(), time.Now().UTC().Format(time.RFC3339))
}

func deployProgress(bar *progress) func(host, text string) {
	if !bar.overwrite {
		return nil
	}
	return func(host, text string) { bar.line(host + ": " + text) }
}

// appRemove deletes the application from hosts.
func appRemove(flags *pflag.FlagSet) appStep {
	data := flags.Bool("with-data", false, "remove: also delete the application's own data on the hosts")
	return appStep{name: "remove", short: "stop the application on hosts, and delete it there", flags: targetFlags,
		takesName: true, run: func(c *appCall) (any, error) {
			targets, o, err := c.targets()
			if err != nil {
				return nil, err
			}
			bar := newProgress(c.ErrOrStderr())
			defer bar.end()
			o.Progress = deployProgress(bar)
			result := &appRemoveResult{"remove", o.Name, []string{}}
			err = deploy.Remove(c.Context(), targets, o, deployer(), *data, func(t deploy.Target, was bool) {
				bar.end()
				if was {
					c.print("%s: removed %s", t, o.Name)
				} else {
					c.print("%s: %s is not there any more", t, o.Name)
				}
				result.Targets = append(result.Targets, t.String())
			})
			return c.partly(result, err)
		}}
}

// appRemoveResult is what remove prints as JSON.
type appRemoveResult struct {
	Command string   `json:"command"`
	Name    string   `json:"name"`
	Targets []string `json:"targets"`
}

// appLogs prints the logs of the application on hosts.
func appLogs(flags *pflag.FlagSet) appStep {
	lines := flags.Int("lines", 100, "logs: number of lines")
	follow := flags.Bool("follow", false, "logs: print lines as they come, until SIGINT")
	return appStep{name: "logs", short: "print the log of the application on hosts", flags: targetFlags,
		takesName: true, run: func(c *appCall) (any, error) {
			targets, o, err := c.targets()
			switch {
			case err != nil:
				return nil, err
			case *lines < 0:
				return nil, usagef("--lines: %d is negative", *lines)
			case *follow && c.json:
				return nil, usagef("--follow: has no end for --json: leave one out")
			}
			texts := make([]appLogsOf, 0, len(targets))
			err = deploy.Logs(c.Context(), targets, o, *lines, *follow, func(t deploy.Target) io.Writer {
				if c.json {
					texts = append(texts, appLogsOf{Target: t.String()})
					return &texts[len(texts)-1]
				}
				if len(targets) > 1 {
					c.print("%s:", t)
				}
				return c.OutOrStdout()
			})
			if err != nil {
				return nil, err
			}
			return appLogsResult{"logs", o.Name, texts}, nil
		}}
}

// appLogsResult is what logs prints as JSON.
type appLogsResult struct {
	Command string      `json:"command"`
	Name    string      `json:"name"`
	Targets []appLogsOf `json:"targets"`
}

// appLogsOf is the log of a host.
type appLogsOf struct {
	Target string `json:"target"`
	Text   string `json:"text"`
}

// Write implements io.Writer.
func (l *appLogsOf) Write(p []byte) (int, error) {
	l.Text += string(p)
	return len(p), nil
}
