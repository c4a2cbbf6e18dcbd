package ssf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"millrace/apps"
	"millrace/apps/source"
	"millrace/compat/style"
)

// origin is where the application comes from: a repository, or nil for a file.
type origin struct{ app *apps.App }

func (f origin) step(run func() error) error {
	if f.app == nil {
		return run()
	}
	return f.app.Step("", run)
}

func (f origin) use() (release func(), err error) {
	if f.app == nil {
		return func() {}, nil
	}
	return f.app.Use("")
}

// locate clones the repository of --config for init, and makes Config the path of the file. The variables with
// credentials are removed, so that the application does not get them.
func (o *Options) locate(c *style.Call) (origin, error) {
	var keys []string
	o.sshKeys = map[string]string{}
	for _, spec := range o.AddSSHKey {
		_, variable, named := strings.Cut(spec, ":")
		if !named {
			variable, spec = spec, spec+":"+spec
		}
		key := os.Getenv(variable)
		if key == "" {
			return origin{}, fails(sshStatus, "--add-ssh-key", "SSH key '%s' must be set in environment: export "+
				"%s=\"$(cat ~/.ssh/id_ed25519)\"", variable, variable)
		}
		o.sshKeys[variable] = key
		keys = append(keys, spec)
	}
	fetch, err := source.FromEnv(keys)
	if err != nil {
		return origin{}, usagef("--add-ssh-key: %w", err)
	}
	if !source.IsRemote(o.Config) {
		return origin{}, nil
	}
	s, err := source.Parse(o.Config)
	if err != nil {
		return origin{}, usagef("--config: %w", err)
	}
	options := apps.Options{Formats: []apps.Format{format}, Fetch: fetch}
	var app *apps.App
	if slices.Contains(o.Commands, "init") {
		var result *source.Result
		if app, result, err = apps.Init(c.Context, s, options); result != nil {
			for _, line := range result.Notes() {
				fmt.Fprintln(c.Err, "millrace: "+line)
			}
		}
		if err != nil {
			return origin{}, fails(gitStatus, "--config", "Git clone errored: %w", err)
		}
	} else {
		app, err = apps.Open(s, options)
	}
	if err != nil {
		return origin{}, fmt.Errorf("--config: %w", err)
	}
	if app.Format != name {
		return origin{}, style.StatusError{Status: configStatus, Err: errors.New("--config: " + app.File +
			" does not describe an application of Simple Server Framework: use millrace app")}
	}
	for _, note := range app.Notes {
		fmt.Fprintln(c.Err, "millrace: "+note)
	}
	o.Config = app.File
	return origin{app}, nil
}
