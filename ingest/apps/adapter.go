package apps

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/internal/httpd"
	"millrace/internal/routines"
	"millrace/stream"
)

// Options are the adapter's settings. A zero field takes its default.
type Options struct {
	Root         string        // the program whose routes are at the root, too; "" = none
	Style        string        // that of Root, when it is known before Root is loaded; "" = it is not
	Styles       []*Style      // of programs that were written for other systems
	DrainTimeout time.Duration // for the requests in flight at the end; default 20s
	// Guard answers a request to a program at the root that may not use the server, and reports
	// true; declared says that the program has a route for it. nil = all may.
	Guard func(c *fiber.Ctx, declared bool) (refused bool, err error)
	// Key is the name of the header, the cookie and the query option with a client's key, which
	// programs do not see; "" = they see all.
	Key string
	// Session is the name of the cookie of a client's session, which programs do not see; "" = none.
	Session string
	Log     *slog.Logger // default slog.Default()
}

// Adapter is the adapter of the routes of programs.
type Adapter struct {
	http     *httpd.Server
	opts     Options
	styles   map[string]*Style
	contexts frames.Contexts
	requests ingest.Requests[service]

	tasks   *routines.Group // of events
	noModel stream.FrameCounts
	serving chan struct{}

	statesMu sync.Mutex
	states   map[string]any      // of styles, by program
	warned   map[string]struct{} // of withheld

	rootStyle atomic.Value // the style of the program at the root, a string, once it was loaded

	base     context.Context // of the requests; ends when those in flight must end
	cancel   context.CancelCauseFunc
	awaitsMu sync.Mutex
	awaits   map[string]*await // by program
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
	_ ingest.Starter   = (*Adapter)(nil)
)

// service is what requests need of a running server.
type service struct {
	backend ingest.Backend // as the server itself sees it: which program answers does not depend on the client
	oneShot *ingest.OneShot
	ctx     context.Context // Adapter.base
}

// New registers the routes on h. They answer 503 until Serve is called. With a Root it must be
// called before the server's own routes are registered.
func New(h *httpd.Server, opts Options) *Adapter {
	if opts.DrainTimeout <= 0 {
		opts.DrainTimeout = 20 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	a := &Adapter{
		http: h, opts: opts, styles: byName(opts.Styles), contexts: frames.Contexts{Log: opts.Log},
		serving: make(chan struct{}), states: map[string]any{}, warned: map[string]struct{}{},
		awaits: map[string]*await{},
	}
	a.base, a.cancel = context.WithCancelCause(context.Background())
	a.tasks = routines.New(func(name string, value any, stack []byte) {
		opts.Log.Error("a panic ended a reply", "goroutine", name, "panic", value, "stack", string(stack))
	})
	h.App.Use(a.serveProgramAddress)
	if opts.Root != "" {
		h.App.Use(a.root)
	}
	h.App.Get("/apps", a.list)
	for _, path := range []string{"/apps/:name", "/apps/:name/*"} {
		h.App.Get(path, a.named)
		for _, method := range []string{fiber.MethodPost, fiber.MethodPut, fiber.MethodPatch, fiber.MethodDelete} {
			h.App.Add(method, path, a.named)
		}
	}
	return a
}

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	m := ingest.Metrics{Goroutines: map[string]int{}, NoModel: a.noModel.Totals(), Contexts: a.contexts.Broken()}
	for name, n := range a.tasks.Counts() {
		m.Goroutines["apps_"+name] = n
	}
	return m
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "apps" }

// Serving implements ingest.Starter.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Serve opens the routes. When ctx ends, new requests are refused with draining, those in
// flight finish, and those that take longer than DrainTimeout are ended.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	defer a.cancel(nil)
	s := &service{backend: gate.Owner(), oneShot: ingest.NewOneShot(gate, a.Name(), &a.noModel), ctx: a.base}
	a.requests.Open(s)
	close(a.serving)
	<-ctx.Done()
	a.requests.Drain(a.opts.DrainTimeout, func() { a.cancel(ingest.ErrDraining) })
	s.oneShot.Close()
	a.tasks.Stop()
	a.tasks.Wait()
	return nil
}

// named answers a request below /apps/NAME.
func (a *Adapter) named(c *fiber.Ctx) error {
	name, err := url.PathUnescape(c.Params("name"))
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "", "the path is malformed: %w", err)
	}
	return a.serve(c, strings.Clone(name), "/"+c.Params("*"), false)
}

// serveProgramAddress answers requests to apps.address, where programs are the only routes.
func (a *Adapter) serveProgramAddress(c *fiber.Ctx) error {
	switch path := c.Path(); {
	case !httpd.ToPrograms(c) || path == "/apps" || strings.HasPrefix(path, "/apps/"):
		return c.Next()
	case a.opts.Root != "":
		return a.serve(c, a.opts.Root, path, true)
	case path == "/" && (c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead):
		return httpd.Redirect(c, "/apps", fiber.StatusFound)
	}
	return fiber.ErrNotFound
}

// root answers a request to the program that is served alone, unless the server has a route
// for it and the program's style none in its place.
func (a *Adapter) root(c *fiber.Ctx) error {
	style := a.styles[a.opts.Style] // as long as the program is not loaded
	var program *Program
	if s := a.requests.Service(); s != nil {
		if m, _, err := s.backend.Models().Model(a.opts.Root, ""); err == nil {
			if m.App == nil {
				return c.Next()
			}
			a.rootStyle.Store(m.App.Style)
			style, program = a.styles[m.App.Style], &Program{Name: a.opts.Root, App: m.App}
		}
	}
	if style != nil && slices.Contains(style.Root, c.Path()) {
		return a.serve(c, a.opts.Root, c.Path(), true)
	}
	err := c.Next()
	var none *fiber.Error
	if !errors.As(err, &none) {
		return err
	}
	switch none.Code {
	case fiber.StatusNotFound:
		return a.serve(c, a.opts.Root, c.Path(), true)
	case fiber.StatusMethodNotAllowed: // at a path of the server's
		if program == nil {
			return err
		}
		if r, _ := program.route(c.Method(), c.Path()); r != nil {
			c.Response().Header.Del(fiber.HeaderAllow)
			return a.serve(c, a.opts.Root, c.Path(), true)
		}
	}
	return err
}

// serve answers a request to a program.
func (a *Adapter) serve(c *fiber.Ctx, name, path string, alone bool) error {
	s, err := a.requests.Begin()
	if err != nil {
		x := &Exchange{Ctx: c, Program: &Program{Name: name}, AtRoot: alone, Path: path, Began: c.Context().Time(),
			a: a}
		return x.starting(err)
	}
	x := &Exchange{Ctx: c, AtRoot: alone, Began: c.Context().Time(), a: a, s: s}
	if !x.atProgramAddress() { // also answers of the server with texts of the program
		c.Set(fiber.HeaderContentSecurityPolicy, sandbox)
	}
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	defer func() {
		if x != nil { // it has not become one of events
			a.requests.End()
		}
	}()
	if x.Path, err = url.PathUnescape(path); err != nil {
		err = stream.Errorf(stream.InvalidArgument, "", "the path is malformed: %w", err)
		a.noModel.Refuse("", err)
		return err
	}
	x.Path = strings.Clone(x.Path)
	if x.Program, err = find(s.backend.Models(), name); err != nil {
		x.Program = &Program{Name: name}
		if a.draining() { // its models are gone
			err = ingest.ErrDraining
		}
		return x.starting(err)
	}
	x.style = a.styles[x.Program.App.Style]
	if x.style == nil {
		x.style = &Style{}
	}
	var wrong *methodError
	if x.Route, err = x.Program.route(c.Method(), x.Path); errors.As(err, &wrong) {
		err = httpd.WithStatus(fiber.StatusMethodNotAllowed,
			stream.Errorf(stream.Unsupported, "", "program %s does not serve %s at %.256q: %w", name, c.Method(),
				x.Path, err))
	}
	if alone && a.opts.Guard != nil { // at other paths, the server's route has checked it
		if refused, err := a.opts.Guard(c, x.Route != nil); refused {
			return err
		}
	}
	x.client = ingest.ClientOf(httpd.ClientOf(c)).ForProgram(name)
	if x.Route == nil {
		return x.answerUndeclared(err)
	}
	label := x.Route.Path
	if !alone {
		label = "/apps/" + name + label
	}
	httpd.SetRoute(c, label)
	live, err := x.call()
	if live {
		x = nil
	}
	return err
}

// starting answers a request to a program that is not loaded.
func (x *Exchange) starting(err error) error {
	if code := stream.CodeOf(err); code == stream.Unavailable || code == stream.Draining {
		for _, style := range x.a.starting(x.Program.Name) {
			if done, err := style.Starting(x, err); done {
				return err
			}
		}
	}
	x.a.noModel.Refuse("", err)
	if s := x.a.requests.Service(); s != nil {
		if p, none := find(s.backend.Models(), x.Program.Name); none == nil && x.a.styles[p.App.Style] != nil {
			x.Program, x.s, x.style = p, s, x.a.styles[p.App.Style]
			return x.failed(err)
		}
	}
	if of, _ := x.a.rootStyle.Load().(string); x.Program.Name == x.a.opts.Root && x.a.styles[of] != nil {
		x.style = x.a.styles[of]
		return x.failed(err)
	}
	return err
}

// starting returns the styles that may answer for a program that is not loaded: its own, or,
// when that is not known, all by name.
func (a *Adapter) starting(name string) (out []*Style) {
	known := name == a.opts.Root && a.opts.Style != ""
	for _, of := range slices.Sorted(maps.Keys(a.styles)) {
		if s := a.styles[of]; s.Starting != nil && (!known || of == a.opts.Style) {
			out = append(out, s)
		}
	}
	return out
}

// answerUndeclared answers a request for which no route is declared, because of wrong if it is not nil.
func (x *Exchange) answerUndeclared(wrong error) error {
	if x.style.Serve != nil {
		if done, err := x.style.Serve(x); done {
			return err
		}
	}
	if done, err := x.builtin(); done {
		return err
	}
	var method *methodError
	switch {
	case wrong == nil:
		wrong = x.Program.noRoute(x.Path)
	case errors.As(wrong, &method):
		x.Ctx.Set(fiber.HeaderAllow, strings.Join(method.allowed, ", "))
	}
	return x.refuse(nil, wrong)
}

// CountRun passes a run of a batch to the StageCounter of the program whose stage the model is.
func (a *Adapter) CountRun(model string, rows int, gathered, took time.Duration) {
	i := strings.LastIndexByte(model, '.')
	if i < 0 {
		return
	}
	a.statesMu.Lock()
	state, ok := a.states[model[:i]].(StageCounter)
	a.statesMu.Unlock()
	if ok {
		state.CountRun(model[i+1:], rows, gathered, took)
	}
}
