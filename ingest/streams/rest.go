package streams

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/sources"
	"millrace/internal/httpd"
	"millrace/internal/video"
	"millrace/stream"
)

// maxBody bounds a request's body.
const maxBody = 64 << 10

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
	var cfg Config
	if err := decode(c, &cfg); err != nil {
		return err
	}
	err := cfg.Validate()
	if err == nil {
		err = cfg.fromRequest()
	}
	if err == nil {
		err = a.traceable(cfg, "request")
	}
	if err != nil {
		return err
	}
	kept, err := a.opts.Keeper.add(cfg)
	if err != nil {
		return err
	}
	if err := a.add(cfg, "request", kept); err != nil {
		return errors.Join(err, a.opts.Keeper.remove(kept))
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
	err = a.opts.Keeper.remove(f.kept)
	f.cancel()
	<-f.gone
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
	return a.watched(c, m, f, func() (*watcher, bool) { return f.hub.watch(watchRoom, false) }, f.hub.leave)
}

func (a *Adapter) watchVideo(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	return a.watched(c, pictures, f, f.film.attend, f.film.leave)
}

// patch is what can be changed while a stream runs. What is left out stays.
type patch struct {
	Paused     *bool    `json:"paused"`
	Policy     *string  `json:"policy"`
	MaxAgeMS   *int     `json:"max_age_ms"`
	DeadlineMS *int     `json:"deadline_ms"`
	MaxFPS     *float64 `json:"max_fps"`
	Window     *int     `json:"window"`
	Priority   *string  `json:"priority"`
}

func (a *Adapter) change(c *fiber.Ctx) error {
	f, err := a.find(c.Params("name"))
	if err != nil {
		return err
	}
	var p patch
	if err := decode(c, &p); err != nil {
		return err
	}
	if err := f.change(p); err != nil {
		return err
	}
	if err := a.opts.Keeper.change(f.kept, p); err != nil {
		return stream.Errorf(stream.CodeOf(err), "", "the stream is changed, but not for the next start of the server: %w", err)
	}
	return c.JSON(f.report())
}

// over lays the patch over a policy.
func (p patch) over(now stream.Policy) (stream.Policy, error) {
	zero := func(field string) error {
		return stream.Errorf(stream.InvalidArgument, field, "0 is not possible here: name a value, or make the stream anew without it")
	}
	next := now
	if p.Policy != nil {
		next.Mode = stream.Mode(*p.Policy)
		if next.Mode != now.Mode {
			return now, stream.Errorf(stream.Conflict, "policy", "is %s and cannot change: make the stream anew", now.Mode)
		}
	}
	for _, d := range []struct {
		field string
		from  *int
		set   func(int)
	}{
		{"max_age_ms", p.MaxAgeMS, func(n int) { next.MaxAge = time.Duration(n) * time.Millisecond }},
		{"deadline_ms", p.DeadlineMS, func(n int) { next.Deadline = time.Duration(n) * time.Millisecond }},
		{"window", p.Window, func(n int) { next.Window = n }},
	} {
		if d.from == nil {
			continue
		}
		if *d.from == 0 {
			return now, zero(d.field)
		}
		d.set(*d.from)
	}
	if p.MaxFPS != nil {
		if *p.MaxFPS == 0 {
			return now, zero("max_fps")
		}
		next.MaxFPS = *p.MaxFPS
	}
	if p.Priority != nil {
		var ok bool
		if next.Priority, ok = priorities[*p.Priority]; !ok {
			return now, stream.Errorf(stream.InvalidArgument, "priority", "%.40q is no priority: want normal, high or low", *p.Priority)
		}
	}
	return next, next.Validate()
}

// keep writes the patch into a configuration.
func (p patch) keep(c *Config) {
	set(&c.Paused, p.Paused)
	set(&c.MaxAgeMS, p.MaxAgeMS)
	set(&c.DeadlineMS, p.DeadlineMS)
	set(&c.MaxFPS, p.MaxFPS)
	set(&c.Window, p.Window)
	set(&c.Priority, p.Priority)
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// change changes a running flow: all of the patch, or nothing.
func (f *flow) change(p patch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, err := p.over(f.policy)
	if err != nil {
		return err
	}
	if f.stream != nil {
		if err := f.stream.Update(next); err != nil {
			return err
		}
	}
	f.policy = next
	if p.Paused == nil {
		return nil
	}
	f.paused = *p.Paused
	switch {
	case f.stream == nil:
	case f.paused:
		f.stream.Pause()
	default:
		f.stream.Resume()
	}
	return nil
}

// report is a stream as GET shows it.
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
	Error     *reportError             `json:"error,omitempty"` // the last, of the source or the model
	Paused    bool                     `json:"paused"`
	Policy    reportPolicy             `json:"policy"`
	Width     int                      `json:"width,omitempty"`
	Height    int                      `json:"height,omitempty"`
	FPS       float64                  `json:"fps,omitempty"` // of the source, as it says
	Restarts  uint64                   `json:"restarts"`
	Frames    uint64                   `json:"frames"`
	Results   uint64                   `json:"results"`
	Errors    uint64                   `json:"errors"`
	Drops     map[stream.Reason]uint64 `json:"drops"`
	Lost      reportLost               `json:"lost"`
	Last      *time.Time               `json:"last,omitempty"` // the newest result
	Watchers  int                      `json:"watchers"`
	Webhook   *reportHook              `json:"webhook,omitempty"`
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
	Results uint64 `json:"results"` // no sink was given
	Lines   uint64 `json:"lines"`   // watchers were too slow for
	File    uint64 `json:"file"`    // could not be written
}

type reportHook struct {
	Sent    uint64 `json:"sent"`
	Retries uint64 `json:"retries"`
	Lost    uint64 `json:"lost"`
	Error   string `json:"error,omitempty"`
}

func (f *flow) report() report {
	st, running := f.state()
	t := f.stats()
	r := report{
		Name: f.config.Name, Source: video.Redact(f.config.Source), Transport: f.config.transport(), Model: f.config.Model, Version: f.config.Version,
		Origin: f.origin, State: st.State, Since: st.Since.UTC(), Width: st.Info.Width, Height: st.Info.Height, FPS: st.Info.FPS,
		Restarts: t.Restarts, Frames: t.Frames, Results: t.Answered, Errors: t.Failed, Drops: t.Drops, Watchers: t.Watchers,
		Lost: reportLost{Frames: t.Lost, Results: t.ResultsLost, Lines: t.WatchersLost, File: t.FileErrors},
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
		r.Error = &reportError{sources.Code(st.Err), video.KindOf(st.Err), st.Err.Error()}
	}
	if h := f.hook; h != nil {
		r.Webhook = &reportHook{Sent: t.WebhookSent, Retries: t.WebhookRetries, Lost: t.WebhookLost}
		if text := h.failure.Load(); text != nil {
			r.Webhook.Error = *text
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Paused = f.paused
	p := f.policy
	if running != nil {
		p = running.Policy()
	}
	r.Policy = reportPolicy{p.Mode, p.MaxAge.Milliseconds(), p.Deadline.Milliseconds(), p.MaxFPS, p.Window, [...]string{"normal", "high", "low"}[p.Priority]}
	return r
}

// decode reads a request's body, strictly. Errors name the field.
func decode(c *fiber.Ctx, to any) error {
	body, err := httpd.ReadBody(c, maxBody, func(n int) ([]byte, error) { return make([]byte, n), nil })
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err = d.Decode(to)
	if err == nil {
		if _, more := d.Token(); more == io.EOF {
			return nil
		}
		err = errors.New("there is more behind the object")
	}
	var wrong *json.UnmarshalTypeError
	text := strings.TrimPrefix(err.Error(), "json: ")
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return stream.Errorf(stream.InvalidArgument, "", "the body %s", wrongType(wrong))
	case errors.As(err, &wrong):
		return stream.Errorf(stream.InvalidArgument, wrong.Field, "%s", wrongType(wrong))
	case strings.HasPrefix(text, "unknown field "):
		field, why := strings.Trim(strings.TrimPrefix(text, "unknown field "), `"`), "is no field of a stream"
		if _, change := to.(*patch); change {
			why = "cannot change while the stream runs: paused, max_age_ms, deadline_ms, max_fps, window and priority can. For others remove the stream and add it anew"
		}
		return stream.Errorf(stream.InvalidArgument, field, "%s", why)
	case len(body) == 0:
		return stream.Errorf(stream.InvalidArgument, "", "the body is empty: want a JSON object")
	}
	return stream.Errorf(stream.InvalidArgument, "", "the body is no JSON object: %s", text)
}
