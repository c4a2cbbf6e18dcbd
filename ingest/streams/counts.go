package streams

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/sinks"
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
	if now := f.settings(); now.Rules.Empty() {
		return nil
	}
	for _, c := range f.list() {
		model, _, err := f.a.backend.Models().Model(c.Model, c.Version)
		if err == nil && model.AppliesRules || err != nil && c.rules.Changes() > 0 {
			out = append(out, c)
		}
	}
	return out
}
