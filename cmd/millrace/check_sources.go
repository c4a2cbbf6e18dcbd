package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/docker/go-units"

	"millrace/apps/modelsource"
	"millrace/server"
	"millrace/workers"
)

// checkedSources fetches the models and the repository that have addresses.
type checkedSources struct {
	*server.ModelSources
	bar *progress
}

// openSources opens the cache of model sources, with a line of progress on a terminal.
func openSources(cfg *server.Config, log *slog.Logger, to io.Writer) (*checkedSources, error) {
	c := &checkedSources{bar: newProgress(to)}
	var show func(modelsource.Progress)
	if c.bar.overwrite {
		show = sourceProgress(c.bar)
	}
	var err error
	c.ModelSources, err = server.OpenModelSources(cfg, log, show)
	return c, err
}

// sourceProgress shows the bytes received, some times each second. One source at a time is fetched.
func sourceProgress(bar *progress) func(modelsource.Progress) {
	var last time.Time
	return func(p modelsource.Progress) {
		now := time.Now()
		if now.Sub(last) < 200*time.Millisecond {
			return
		}
		last = now
		text := units.BytesSize(float64(p.Done))
		if p.Total > 0 {
			text += " of " + units.BytesSize(float64(p.Total))
		}
		bar.line(p.Source + ": " + text)
	}
}

func (c *checkedSources) close() {
	c.bar.end()
	_ = c.Close() // the next start removes the folder
}

// repository fetches the model repository of an address.
func (c *checkedSources) repository(ctx context.Context) []finding {
	state, _, err := c.UpdateRepository(ctx)
	c.bar.end()
	if err != nil {
		return []finding{{What: "source of model_repository", State: wrong, Detail: err.Error()}}
	}
	return stateOf("source of model_repository", state)
}

// model returns the configuration of a model with the fetched file in place of the address.
func (c *checkedSources) model(ctx context.Context, m workers.Config) (workers.Config, []finding, error) {
	local, state, used, err := c.Local(ctx, m)
	c.bar.end()
	if err != nil {
		return m, nil, err
	}
	used(true)
	return local, stateOf("source of "+m.Name, state), nil
}

// stateOf describes the state of a source; nil = no source.
func stateOf(what string, s *modelsource.Source) []finding {
	if s == nil {
		return nil
	}
	f := finding{What: what, State: "ok", Detail: fmt.Sprintf("%s at %s, %s", s.URL, s.Revision,
		units.BytesSize(float64(s.Bytes)))}
	if s.Stale != nil {
		f.State = "missing"
		f.Detail += fmt.Sprintf("\nthe cache has this earlier state, and the present one cannot be found: %v", s.Stale)
	}
	return []finding{f}
}
