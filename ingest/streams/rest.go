package streams

import (
	"errors"
	"math"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/httpd"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/rules"
)

func (a *Adapter) routes(app fiber.Router) {
	app.Post("/v2/streams", a.create)
	app.Get("/v2/streams", a.index)
	app.Get("/v2/streams/:name", a.show)
	app.Patch("/v2/streams/:name", a.patch)
	app.Delete("/v2/streams/:name", a.delete)
	app.Post("/v2/streams/:name/reset", a.resetStream)
	app.Get("/v2/events", a.listEvents)
	app.Get("/v2/streams/:name/counts", a.showCounts)
	app.Post("/v2/streams/:name/counts/reset", a.resetCounts)
	app.Get("/v2/streams/:name/heat", a.showHeat)
	app.Get("/v2/streams/:name/results", a.watchResults)
	app.Get("/v2/streams/:name/video", a.watchVideo)
	a.clipRoutes(app)
}

func (a *Adapter) create(c *fiber.Ctx) error {
	object, err := a.body(c)
	if err != nil {
		return err
	}
	cfg, err := parse(object)
	if err == nil && a.ready() {
		err = a.mayRead(cfg)
	}
	if err == nil && a.ready() {
		err = a.maySend(nil, cfg)
	}
	if err == nil && a.ready() {
		err = a.checkRules(cfg)
	}
	if err == nil {
		err = a.checkClips(cfg)
	}
	if err != nil {
		return err
	}
	undo, err := a.makeFile(nil, cfg, accountOf(c))
	if err != nil {
		return err
	}
	kept, err := a.opts.Store.add(cfg)
	if err == nil {
		if err = a.add(cfg, "request", kept); err != nil {
			err = errors.Join(err, a.opts.Store.remove(kept))
		}
	}
	if err != nil {
		undo()
		return err
	}
	f, err := a.find(cfg.Name)
	if err != nil {
		return err
	}
	c.Location(httpd.Relative(c, "/v2/streams/"+cfg.Name))
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
	err = a.opts.Store.remove(f.stored)
	f.forget.Store(true)
	a.remove(f)
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
	model := strings.Clone(c.Query("model"))
	if _, err := f.watchedModel(model); err != nil {
		return err
	}
	enter := func() (*watcher, error) { return found(f.results.watch(watchRoom, false, model)) }
	if isSocket(c) {
		return a.watchSocket(c, f, messages, enter, f.results.removeWatcher)
	}
	m := events
	if strings.Contains(c.Get(fiber.HeaderAccept), lines.mime) {
		m = lines
	}
	return a.watched(c, m, f, enter, f.results.removeWatcher)
}

func (a *Adapter) watchVideo(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	one, err := f.watchedModel(c.Query("model"))
	if err != nil {
		return err
	}
	p := &f.preview
	if one != nil {
		p = one.preview
	}
	if isSocket(c) {
		if _, err := exec.LookPath("ffmpeg"); err != nil {
			return stream.Errorf(stream.Unavailable, "", "ffmpeg encodes the video for WebSocket, and is not "+
				"installed on the server: install ffmpeg, or watch without WebSocket")
		}
		return a.watchSocket(c, f, videoMessages, p.watchVideo, p.leaveVideo)
	}
	return a.watched(c, pictures, f, func() (*watcher, error) { return found(p.watchPictures()) }, p.leave)
}

func (a *Adapter) patch(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	object, err := a.body(c)
	if err != nil {
		return err
	}
	if f, err = a.change(f, object, accountOf(c)); err != nil {
		return err
	}
	return c.JSON(f.report())
}

func (a *Adapter) resetStream(c *fiber.Ctx) error {
	f, err := a.reset(strings.Clone(c.Params("name")))
	if err != nil {
		return err
	}
	return c.JSON(f.report())
}

// report is a stream in the replies of GET.
type report struct {
	Name        string                   `json:"name"`
	Source      string                   `json:"source"`                   // without passwords
	Transport   string                   `json:"rtsp_transport,omitempty"` // tcp or udp, of an rtsp or rtsps source
	Model       string                   `json:"model,omitempty"`          // as is Version, of a stream with one model
	Version     string                   `json:"version,omitempty"`
	Models      []reportModel            `json:"models"`
	Origin      string                   `json:"origin"` // config or request
	State       sources.State            `json:"state"`
	Since       time.Time                `json:"since"`
	Retry       *time.Time               `json:"retry,omitempty"`
	Error       *reportError             `json:"error,omitempty"` // the last one, of the source or a model
	Paused      bool                     `json:"paused"`
	Policy      *reportPolicy            `json:"policy,omitempty"` // of a stream with one model
	Width       int                      `json:"width,omitempty"`
	Height      int                      `json:"height,omitempty"`
	PixelAspect float64                  `json:"pixel_aspect,omitempty"` // width of a pixel of the frames by its height; 0 = unknown, which means 1
	FPS         float64                  `json:"fps,omitempty"`          // declared by the source, and at most the setting fps
	Measured    float64                  `json:"measured_fps"`           // frames per second that were read in the last ten seconds
	Settings    map[string]any           `json:"settings,omitempty"`     // of the source that are set, such as fps, width and decode
	Rules       *rules.Rules             `json:"rules,omitempty"`        // lines and zones
	Restarts    uint64                   `json:"restarts"`
	Frames      uint64                   `json:"frames"`
	Skipped     uint64                   `json:"skipped"` // pictures of a video with decode reference or key that became no frame
	Results     uint64                   `json:"results"`
	Errors      uint64                   `json:"errors"`
	Drops       map[stream.Reason]uint64 `json:"drops"`
	Lost        reportLost               `json:"lost"`
	Last        *time.Time               `json:"last,omitempty"` // the newest result
	Watchers    int                      `json:"watchers"`
	Sinks       map[string]sinks.Stats   `json:"sinks"`
}

// reportModel is one model of a stream. The counts are the numbers of the endings of the model's frames.
type reportModel struct {
	Model   string                   `json:"model"`
	Version string                   `json:"version,omitempty"`
	State   sources.State            `json:"state"` // running while it is loaded
	Since   time.Time                `json:"since"`
	Retry   *time.Time               `json:"retry,omitempty"`
	Error   *reportError             `json:"error,omitempty"` // why it waits, or why the newest frame failed
	Policy  reportPolicy             `json:"policy"`
	Results uint64                   `json:"results"`
	Errors  uint64                   `json:"errors"`
	Drops   map[stream.Reason]uint64 `json:"drops"`
	Last    *time.Time               `json:"last,omitempty"` // the newest result
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
	Video   uint64 `json:"video"`   // encoded pictures that slow watchers did not get
}

func (f *runner) report() report {
	st, t := f.state(), f.stats()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := &f.now
	r := report{
		Name: f.name, Source: video.Redact(now.Source), Transport: now.transport(), Model: now.Model,
		Version: now.Version,
		Origin:  f.origin, State: st.State, Since: st.Since.UTC(), Retry: utc(st.Retry), Error: errorReport(st.Err),
		Width: st.Info.Width, Height: st.Info.Height, PixelAspect: math.Round(st.Info.PixelAspect*1e6) / 1e6,
		FPS: st.Info.FPS, Settings: now.sourceSettings(),
		Measured: f.rate.perSecond(time.Now()), Restarts: t.Restarts, Frames: t.Frames, Skipped: t.Skipped,
		Results: t.Answered, Errors: t.Failed, Drops: t.Drops, Last: utc(t.Last), Watchers: t.Watchers,
		Lost: reportLost{Frames: t.Lost, Results: t.ResultsLost, Lines: t.WatchersLost,
			Video: t.VideoLost},
		Sinks: t.Sinks, Paused: now.Paused,
	}
	if !now.Rules.Empty() {
		r.Rules = now.rules()
	}
	for _, c := range f.consumers {
		var m ModelStats
		if i := slices.IndexFunc(t.Models, func(m ModelStats) bool { return m.consumer == c.id }); i >= 0 {
			m = t.Models[i] // else it was added since
		}
		if m.Failure != nil && (st.State == sources.Running || st.State == sources.Ended) {
			r.Error = errorReport(m.Failure)
		}
		r.Models = append(r.Models, c.report(&m))
	}
	if len(now.Models) == 0 {
		r.Policy = &r.Models[0].Policy
	}
	return r
}

// report returns a model for a reply. runner.mu is held.
func (c *consumer) report(m *ModelStats) reportModel {
	p := c.Policy
	if c.feed != nil {
		p = c.feed.stream.Policy()
	}
	problem := c.err
	if problem == nil {
		problem = m.Failure
	}
	drops := m.Drops
	if drops == nil {
		drops = map[stream.Reason]uint64{}
	}
	return reportModel{
		Model: c.Model, Version: c.Version, State: c.state, Since: c.since.UTC(), Retry: utc(c.retry),
		Error: errorReport(problem),
		Policy: reportPolicy{p.Mode, p.MaxAge.Milliseconds(), p.Deadline.Milliseconds(), p.MaxFPS, p.Window,
			p.Priority.String()},
		Results: m.Answered, Errors: m.Failed, Drops: drops, Last: utc(m.Last),
	}
}

// utc returns a time for a reply, nil for the zero time.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func errorReport(err error) *reportError {
	if err == nil {
		return nil
	}
	text := err.Error()
	var of *video.Error
	if errors.As(err, &of) { // the state has the source
		text = of.Problem()
	}
	return &reportError{stream.CodeOf(err), video.KindOf(err), text}
}
