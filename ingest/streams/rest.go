package streams

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
)

func (a *Adapter) routes(app fiber.Router) {
	app.Post("/v2/streams", a.create)
	app.Get("/v2/streams", a.index)
	app.Get("/v2/streams/:name", a.show)
	app.Patch("/v2/streams/:name", a.change)
	app.Delete("/v2/streams/:name", a.delete)
	app.Get("/v2/streams/:name/results", a.watchResults)
	app.Get("/v2/streams/:name/video", a.watchVideo)
}

func (a *Adapter) create(c *fiber.Ctx) error {
	object, err := body(c)
	if err != nil {
		return err
	}
	cfg, err := parse(object)
	if err == nil {
		err = cfg.settings().Validate(cfg.Source, a.publicOnly("request"))
	}
	if err != nil {
		return err
	}
	kept, err := a.opts.Store.add(cfg)
	if err != nil {
		return err
	}
	if err := a.add(cfg, "request", kept); err != nil {
		return errors.Join(err, a.opts.Store.remove(kept))
	}
	f, err := a.find(cfg.Name)
	if err != nil {
		return err
	}
	c.Location("/v2/streams/" + cfg.Name)
	return c.Status(http.StatusCreated).JSON(f.report())
}

func (a *Adapter) index(c *fiber.Ctx) error {
	out := []report{}
	for _, f := range a.list() {
		out = append(out, f.report())
	}
	return c.JSON(fiber.Map{"streams": out})
}

func (a *Adapter) show(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	return c.JSON(f.report())
}

func (a *Adapter) delete(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	err = a.opts.Store.remove(f.kept)
	f.cancel()
	<-f.done
	a.opts.Log.Info("a stream was removed", "stream", f.config.Name)
	if err != nil {
		return stream.Errorf(stream.CodeOf(err), "", "the stream has ended, but starts again with the server: %w", err)
	}
	return c.SendStatus(http.StatusNoContent)
}

func (a *Adapter) watchResults(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	if isSocket(c) {
		return a.watchSocket(c, f)
	}
	m := events
	if strings.Contains(c.Get(fiber.HeaderAccept), lines.mime) {
		m = lines
	}
	return a.watched(c, m, f, func() (*watcher, bool) { return f.results.watch(watchRoom, false) }, f.results.leave)
}

func (a *Adapter) watchVideo(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	return a.watched(c, pictures, f, f.preview.watchPictures, f.preview.leave)
}

func (a *Adapter) change(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	object, err := body(c)
	if err != nil {
		return err
	}
	if err := f.change(object); err != nil {
		return err
	}
	return c.JSON(f.report())
}

// change changes a stream while it runs, and what is stored of it. Changes are stored in the order in which they are applied.
func (f *runner) change(object map[string]any) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	next, err := f.apply(object)
	if err != nil {
		return err
	}
	f.a.opts.Log.Info("a stream was changed", "stream", f.config.Name, "change", changeText(object))
	if err := f.a.opts.Store.change(f.kept, next); err != nil {
		return stream.Errorf(stream.CodeOf(err), "", "the stream was changed, but the change could not be stored for the next start of the server: %w", err)
	}
	return nil
}

// changeText returns the keys and values of a change, sorted.
func changeText(object map[string]any) string {
	parts := make([]string, 0, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		parts = append(parts, fmt.Sprintf("%s=%v", key, object[key]))
	}
	return strings.Join(parts, " ")
}

// apply applies a change to a stream that may be running: all that the object says, or nothing.
func (f *runner) apply(object map[string]any) (Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, err := f.now.changed(object)
	if err != nil {
		return next, err
	}
	if f.stream != nil {
		if err := f.stream.Update(next.policy()); err != nil {
			return next, err
		}
		switch {
		case next.Paused && !f.now.Paused:
			f.stream.Pause()
		case f.now.Paused && !next.Paused:
			f.stream.Resume()
		}
	}
	f.now = next
	return next, nil
}

// report is a stream in the replies of GET.
type report struct {
	Name      string                   `json:"name"`
	Source    string                   `json:"source"`                   // without passwords
	Transport string                   `json:"rtsp_transport,omitempty"` // tcp or udp, of an rtsp or rtsps source
	Model     string                   `json:"model"`
	Version   string                   `json:"version,omitempty"`
	Origin    string                   `json:"origin"` // config or request
	State     sources.State            `json:"state"`
	Since     time.Time                `json:"since"`
	Retry     *time.Time               `json:"retry,omitempty"`
	Error     *reportError             `json:"error,omitempty"` // the last one, of the source or the model
	Paused    bool                     `json:"paused"`
	Policy    reportPolicy             `json:"policy"`
	Width     int                      `json:"width,omitempty"`
	Height    int                      `json:"height,omitempty"`
	FPS       float64                  `json:"fps,omitempty"` // declared by the source
	Restarts  uint64                   `json:"restarts"`
	Frames    uint64                   `json:"frames"`
	Results   uint64                   `json:"results"`
	Errors    uint64                   `json:"errors"`
	Drops     map[stream.Reason]uint64 `json:"drops"`
	Lost      reportLost               `json:"lost"`
	Last      *time.Time               `json:"last,omitempty"` // the newest result
	Watchers  int                      `json:"watchers"`
	Sinks     map[string]sinks.Stats   `json:"sinks"`
	Webhook   *sinks.Stats             `json:"webhook,omitempty"` // the same as sinks.webhook, for older clients
}

type reportError struct {
	Code    stream.Code `json:"code"`
	Kind    video.Kind  `json:"kind,omitempty"`
	Message string      `json:"message"`
}

type reportPolicy struct {
	Policy     stream.Mode `json:"policy"`
	MaxAgeMS   int64       `json:"max_age_ms,omitempty"`
	DeadlineMS int64       `json:"deadline_ms,omitempty"`
	MaxFPS     float64     `json:"max_fps,omitempty"`
	Window     int         `json:"window,omitempty"`
	Priority   string      `json:"priority"`
}

type reportLost struct {
	Frames  uint64 `json:"frames"`  // for want of memory
	Results uint64 `json:"results"` // that were not passed to any sink
	Lines   uint64 `json:"lines"`   // that slow watchers did not get
	File    uint64 `json:"file"`    // of sinks.file
}

func (f *runner) report() report {
	st, running := f.state()
	t := f.stats()
	r := report{
		Name: f.config.Name, Source: video.Redact(f.config.Source), Transport: f.config.transport(), Model: f.config.Model, Version: f.config.Version,
		Origin: f.origin, State: st.State, Since: st.Since.UTC(), Width: st.Info.Width, Height: st.Info.Height, FPS: st.Info.FPS,
		Restarts: t.Restarts, Frames: t.Frames, Results: t.Answered, Errors: t.Failed, Drops: t.Drops, Watchers: t.Watchers,
		Lost:  reportLost{Frames: t.Lost, Results: t.ResultsLost, Lines: t.WatchersLost, File: t.Sinks["file"].Lost},
		Sinks: t.Sinks,
	}
	if !st.Retry.IsZero() {
		at := st.Retry.UTC()
		r.Retry = &at
	}
	if !t.Last.IsZero() {
		at := t.Last.UTC()
		r.Last = &at
	}
	if st.Err != nil {
		r.Error = &reportError{stream.CodeOf(st.Err), video.KindOf(st.Err), st.Err.Error()}
	}
	if h, ok := t.Sinks["webhook"]; ok {
		r.Webhook = &h
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Paused = f.now.Paused
	p := f.now.policy()
	if running != nil {
		p = running.Policy()
	}
	r.Policy = reportPolicy{p.Mode, p.MaxAge.Milliseconds(), p.Deadline.Milliseconds(), p.MaxFPS, p.Window, p.Priority.String()}
	return r
}
