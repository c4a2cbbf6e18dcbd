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
	counting, _ := f.counting()
	for _, o := range counting {
		o.rules.Reset(now)
	}
	a.opts.Log.Info("the counts of a stream were reset", "stream", f.name)
	return c.JSON(f.reportCounts(now))
}

func (f *runner) reportCounts(now time.Time) reportCounts {
	list, _ := f.modelCounts(now)
	return reportCounts{Stream: f.name, Models: list}
}

// modelCounts are the counts by model; all is false while a model is not loaded, which may have tracks.
func (f *runner) modelCounts(now time.Time) (list []sinks.ModelCounts, all bool) {
	counting, all := f.counting()
	list = []sinks.ModelCounts{}
	for _, c := range counting {
		list = append(list, sinks.ModelCounts{Model: c.Model, Counts: c.rules.Counts(now)})
	}
	return list, all
}

// counting returns the models that apply rules, or have applied rules before they were unloaded; all is false while a
// model is not loaded, which may have tracks.
func (f *runner) counting() (out []*consumer, all bool) {
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
	minutes := rules.HeatMinutes
	for name, value := range c.Queries() {
		if name != "minutes" {
			return stream.Errorf(stream.InvalidArgument, "", "%.40q is not an option of heat: want minutes", name)
		}
		if minutes, err = strconv.Atoi(value); err != nil || minutes < 1 || minutes > rules.HeatMinutes {
			return stream.Errorf(stream.InvalidArgument, name, "%.40q is not a number from 1 to %d", value,
				rules.HeatMinutes)
		}
	}
	if now := f.settings(); now.Rules.Empty() {
		return stream.Errorf(stream.NotFound, "rules", "the stream %s has no rules: with a line or a zone, the server "+
			"follows objects", f.name)
	}
	now, out := time.Now(), reportHeat{Stream: f.name, Models: []modelHeat{}}
	counting, _ := f.counting()
	for _, o := range counting {
		out.Models = append(out.Models, modelHeat{o.Model, o.rules.Heat(now, minutes)})
	}
	return c.JSON(out)
}
