package streams

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/sinks"
	"millrace/stream"
	"millrace/stream/rules"
)

// reportCounts are the counts of a stream's rules, by model: each model has tracks of its own.
type reportCounts struct {
	Stream string              `json:"stream"`
	Models []sinks.ModelCounts `json:"models"` // with tracks
}

// showCounts answers with the counts of a stream.
func (a *Adapter) showCounts(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	return c.JSON(f.reportCounts(time.Now()))
}

// resetCounts makes the counts of a stream 0.
func (a *Adapter) resetCounts(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	now := time.Now()
	for _, o := range f.counting() {
		o.rules.Reset(now)
	}
	a.opts.Log.Info("the counts of a stream were reset", "stream", f.name)
	return c.JSON(f.reportCounts(now))
}

func (f *runner) reportCounts(now time.Time) reportCounts {
	out := reportCounts{Stream: f.name, Models: []sinks.ModelCounts{}}
	for _, c := range f.counting() {
		out.Models = append(out.Models, sinks.ModelCounts{Model: c.Model, Counts: c.rules.Counts(now)})
	}
	return out
}

// counting returns the models that apply rules, or have applied rules before they were unloaded.
func (f *runner) counting() (out []*consumer) {
	out, _ = f.countingNow()
	return out
}

// countingNow is counting; all is false while a model is not loaded, which may have tracks.
func (f *runner) countingNow() (out []*consumer, all bool) {
	if now := f.settings(); now.Rules.Empty() {
		return nil, true
	}
	all = true
	for _, c := range f.list() {
		model, _, err := f.a.backend.Models().Model(c.Model, c.Version)
		if err == nil && model.AppliesRules || err != nil && c.rules.Changes() > 0 {
			out = append(out, c)
		}
		all = all && err == nil
	}
	return out, all
}

// sinkCounts are the counts for sinks.
func (f *runner) sinkCounts() (out []sinks.ModelCounts, all bool) {
	list, all := f.countingNow()
	for _, c := range list {
		out = append(out, sinks.ModelCounts{Model: c.Model, Counts: c.rules.Counts(time.Now())})
	}
	return out, all
}

// reportHeat is where the objects of a stream were, by model: each model has tracks of its own.
type reportHeat struct {
	Stream string      `json:"stream"`
	Models []modelHeat `json:"models"` // with tracks
}

type modelHeat struct {
	Model string `json:"model"`
	rules.HeatMap
}

// showHeat answers with where the objects of a stream were.
func (a *Adapter) showHeat(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	minutes := 60
	if text := c.Query("minutes"); text != "" {
		if minutes, err = strconv.Atoi(text); err != nil || minutes < 1 || minutes > 60 {
			return stream.Errorf(stream.InvalidArgument, "minutes", "%.40q: want 1 to 60", text)
		}
	}
	if now := f.settings(); now.Rules.Empty() {
		return stream.Errorf(stream.NotFound, "rules", "the stream %s has no rules: with a line or a zone, the server "+
			"follows objects", f.name)
	}
	now, out := time.Now(), reportHeat{Stream: f.name, Models: []modelHeat{}}
	for _, o := range f.counting() {
		out.Models = append(out.Models, modelHeat{o.Model, o.rules.Heat(now, minutes)})
	}
	return c.JSON(out)
}
