package main

import (
	"fmt"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"

	"millrace/apps"
	"millrace/apps/source"
)

// appInit clones the repository.
func appInit(flags *pflag.FlagSet) appStep {
	discard := flags.Bool("discard", false, "init: remove the local changes of an earlier clone")
	return appStep{name: "init", short: "clone REPO afresh into .repo/NAME", run: func(c *appCall) (any, error) {
		o := c.options
		o.Discard = *discard
		bar := newProgress(c.ErrOrStderr())
		if bar.overwrite {
			o.Fetch.Progress = appProgress(bar)
		}
		app, result, err := apps.Init(c.Context(), c.source, o)
		bar.end()
		if err != nil {
			return nil, err
		}
		c.take(app)
		if result == nil {
			c.print("%s is used in place, with %s", app.Root, app.File)
		} else {
			c.print("cloned %s at %s into %s: %s, %s", c.source, result.Commit[:12], app.Root,
				quantity(result.Files, "file", "files"), units.BytesSize(float64(result.Bytes)))
			for _, line := range result.Notes() {
				_, _ = fmt.Fprintf(c.ErrOrStderr(), "millrace: %s\n", line)
			}
		}
		return appInitResult{"init", app.Name, app.Root, app.File, app.Format, c.source.String(), result}, nil
	}}
}

// appInitResult is what init prints as JSON.
type appInitResult struct {
	Command string         `json:"command"`
	Name    string         `json:"name"`
	Root    string         `json:"root"`
	Config  string         `json:"config"`
	Format  string         `json:"format"`
	Source  string         `json:"source"`
	Clone   *source.Result `json:"clone"` // null for a folder
}

// appProgress shows the bytes received, some times each second.
func appProgress(bar *progress) func(string, int64) {
	var last time.Time
	return func(repository string, received int64) {
		if now := time.Now(); now.Sub(last) > 200*time.Millisecond {
			last = now
			bar.line(fmt.Sprintf("%s: %s", repository, units.BytesSize(float64(received))))
		}
	}
}
