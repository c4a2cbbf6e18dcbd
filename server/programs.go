package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/batching"
	"millrace/config"
	"millrace/ingest/apps"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// programs are the models of programs with several stages (stream.App.Parts): each stage is a model NAME.STAGE of the
// program's kind, and each graph a model NAME.GRAPH. The server loads, replaces and unloads stages and graphs
// together with the program.
type programs struct {
	models   *workers.Manager
	life     *lifecycle
	log      *slog.Logger
	settings config.Programs
	routes   *apps.Adapter    // of the routes of programs; nil when http is off
	without  func(error) bool // config.Config.StartsWithout

	mu    sync.Mutex
	parts map[string]parts // by program
	turns map[string]*turn // by program
	root  error            // the last failure of the program at the root: of its start, or when Run has ended
}

// newPrograms returns the programs among the models, with the settings programs.
func newPrograms(c *config.Config, models *workers.Manager, life *lifecycle, log *slog.Logger) *programs {
	return &programs{settings: c.Programs, without: c.StartsWithout, models: models, life: life, log: log}
}

// fail keeps the last failure of the program at the root.
func (p *programs) fail(root error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.root = root
}

// startsWithout reports whether the server starts although the model has failed to start, and keeps the failure.
func (p *programs) startsWithout(model string, err error) bool {
	if model != p.settings.Root || p.without == nil || !p.without(err) {
		return false
	}
	p.log.Error("the program at the root has not started", "model", model, "error", err)
	p.fail(err)
	return true
}

// rootMissing reports whether the server has started without the program at the root.
func (p *programs) rootMissing() bool {
	if p.without == nil {
		return false
	}
	_, err := p.models.Group(p.settings.Root, "")
	return err != nil
}

// rootFailure returns the error of fail.
func (p *programs) rootFailure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.root
}

type parts struct {
	app   *stream.App // the program that describes the parts; nil = some parts failed to load
	times int         // factor for the stages' numbers of instances
	names []string
}

// turn serializes the changes of one program's parts.
type turn struct {
	free chan struct{} // holds a token while no change runs
	n    int           // changes that wait for or hold the token; under programs.mu
}

// begin waits for the turn of a program. The caller must call end after a successful begin.
func (p *programs) begin(ctx context.Context, name string) (end func(), err error) {
	p.mu.Lock()
	t := p.turns[name]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		if p.turns == nil {
			p.turns = map[string]*turn{}
		}
		p.turns[name] = t
	}
	t.n++
	p.mu.Unlock()
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.n--; t.n == 0 {
			delete(p.turns, name)
		}
	}
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// of returns the parts of a program, and whether the program has parts.
func (p *programs) of(name string) (parts, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, ok := p.parts[name]
	return all, ok
}

// with returns the program that a part belongs to.
func (p *programs) with(part string) (program string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for program, all := range p.parts {
		if slices.Contains(all.names, part) {
			return program, true
		}
	}
	return "", false
}

// set records the parts of a program, and removes the record when all has neither app nor names.
func (p *programs) set(name string, all parts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parts == nil {
		p.parts = map[string]parts{}
	}
	if p.parts[name] = all; all.app == nil && len(all.names) == 0 {
		delete(p.parts, name)
	}
}

// stage is one stage in a program's description.
type stage struct {
	Name        string              `json:"name"`
	Stage       string              `json:"stage"` // identifies the stage to the program
	Instances   int                 `json:"instances"`
	MaxBatch    int                 `json:"max_batch"`
	WaitMS      float64             `json:"wait_ms"`
	TimeoutMS   float64             `json:"timeout_ms"`
	Queue       int                 `json:"queue"`       // most requests that wait for it
	Environment []map[string]string `json:"environment"` // by instance
}

// graphOf is one graph in a program's description.
type graphOf struct {
	Name    string     `json:"name"`
	Steps   []stepInfo `json:"steps"`
	Outputs []string   `json:"outputs"`
	Queue   int        `json:"queue"` // most requests that wait for it
}

type stepInfo struct {
	Name      string            `json:"name"`
	Stage     string            `json:"stage"`
	Endpoint  string            `json:"endpoint"`
	Input     map[string]string `json:"input"`
	Output    map[string]string `json:"output"`
	When      graph.Condition   `json:"when"`
	TimeoutMS float64           `json:"timeout_ms"`
	Crop      *graph.Crop       `json:"crop"`
}

// maxParts is the largest number of stages and graphs of a program.
const maxParts = 64

// PartsOf returns the configurations of the stages and graphs in text, the description (stream.App.Parts) of a
// program loaded with cfg, in loading order. The instances of cfg multiply the instances of the stages.
func PartsOf(cfg workers.Config, text []byte) (out []workers.Config, err error) {
	bad := func(format string, args ...any) ([]workers.Config, error) {
		return nil, stream.Errorf(stream.InvalidArgument, "source", "the description of program %s %w", cfg.Name,
			fmt.Errorf(format, args...))
	}
	var all struct {
		Stages []stage   `json:"stages"`
		Graphs []graphOf `json:"graphs"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return bad("cannot be read: %w", err)
	}
	if n := len(all.Stages) + len(all.Graphs); n > maxParts {
		return bad("has %d stages and graphs: want at most %d", n, maxParts)
	}
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	seen, limits := map[string]bool{}, map[string]time.Duration{} // of runs, by stage
	for i := range all.Stages {
		s := &all.Stages[i]
		if s.Name == "" || seen[s.Name] {
			return bad("has a stage %q: want a name, and no other stage with this name", s.Name)
		}
		seen[s.Name] = true
		c := cfg
		c.Name = cfg.Name + "." + s.Name
		c.Params = maps.Clone(cfg.Params)
		if c.Params == nil {
			c.Params = stream.Params{}
		}
		c.Params["stage"] = s.Stage
		c.Instances = max(s.Instances, 1) * max(cfg.Instances, 1)
		if s.MaxBatch > 0 {
			c.Batching.MaxSize = s.MaxBatch
		}
		if s.MaxBatch > 1 && s.WaitMS > 0 {
			c.Batching.Kind = batching.Soft
			c.Parts = append(slices.DeleteFunc(slices.Clone(cfg.Parts), isSoft),
				&batching.SoftSettings{MaxDelay: ms(s.WaitMS)})
		}
		if s.TimeoutMS > 0 {
			c.Limits.Run = ms(s.TimeoutMS)
		}
		if s.Queue > 0 {
			c.Queue.MaxSize = s.Queue
		}
		if len(s.Environment) > 0 {
			list, err := environment(s.Environment)
			if err != nil {
				return bad("has variables of stage %s that cannot be set: %w", s.Name, err)
			}
			c.Params["instance_env"] = list
		}
		c.Batching.Buffers = 0 // from its instances
		limits[s.Name] = c.WithDefaults().Limits.Run
		out = append(out, c)
	}
	for i := range all.Graphs {
		g := &all.Graphs[i]
		if g.Name == "" || seen[g.Name] {
			return bad("has a graph %q: want a name, and no stage or other graph with this name", g.Name)
		}
		set, limit := graph.Settings{Outputs: g.Outputs}, time.Duration(0)
		for _, st := range g.Steps {
			if !seen[st.Stage] {
				return bad("has a graph %s with a step of stage %q, and no stage has this name", g.Name, st.Stage)
			}
			limit += limits[st.Stage]
			set.Steps = append(set.Steps, graph.Step{
				Name: st.Name, Model: cfg.Name + "." + st.Stage, Endpoint: st.Endpoint, Input: st.Input,
				Output: st.Output,
				When:   st.When, Timeout: ms(st.TimeoutMS), Crop: st.Crop,
			})
		}
		if err := set.Validate(); err != nil {
			return bad("has a graph %s that is not valid: %w", g.Name, err)
		}
		c := workers.Config{Name: cfg.Name + "." + g.Name, Kind: "graph", Version: cfg.Version, Params: set.Params()}
		c.Queue.MaxSize, c.Limits.Run = g.Queue, limit
		out = append(out, c)
	}
	for i := range all.Graphs {
		seen[all.Graphs[i].Name] = true
	}
	return out, nil
}

func isSoft(part any) bool {
	_, is := part.(*batching.SoftSettings)
	return is
}

// environment returns the variables of the instances in the notation of instance_env.
func environment(of []map[string]string) (string, error) {
	list := make([]string, len(of))
	for i, vars := range of {
		var entry []string
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			if strings.ContainsRune(vars[name], ';') {
				return "", fmt.Errorf("%s has a semicolon in its value", name)
			}
			entry = append(entry, name+"="+vars[name])
		}
		list[i] = strings.Join(entry, ";")
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// sync loads, replaces and removes stages and graphs to match the program loaded under name. Each change of a
// model must call syncProgram.
func (p *programs) sync(ctx context.Context, name string) error {
	end, err := p.begin(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	old, had := p.of(name)
	var next parts
	var cfgs []workers.Config
	if g, err := p.models.Group(name, ""); err == nil {
		if app := g.Model().App; app != nil && app.Parts != nil {
			cfg := g.Config()
			if next = (parts{app: app, times: cfg.Instances}); next.app == old.app && next.times == old.times {
				return nil
			}
			if cfgs, err = PartsOf(cfg, app.Parts); err != nil {
				return err
			}
		}
	}
	if next.app == nil && !had {
		return nil
	}
	var errs []error
	for _, c := range cfgs {
		if err := p.models.Define(c); err != nil {
			errs = append(errs, within(c.Name, err))
			break
		}
		next.names = append(next.names, c.Name)
		if err := p.loadPart(ctx, c, next.app != old.app); err != nil {
			errs = append(errs, err)
			break
		}
	}
	left := slices.DeleteFunc(slices.Clone(old.names), func(n string) bool { return slices.Contains(next.names, n) })
	if len(errs) == 0 {
		for i, gone := range slices.Backward(left) { // graphs before the stages that the graphs run
			if err := p.models.Remove(ctx, gone); err != nil {
				errs = append(errs, err)
				break
			}
			p.models.Forget(gone)
			left = left[:i]
		}
	}
	if len(errs) > 0 {
		next.names = append(next.names, left...)
		next.app = nil // the next call loads or removes the parts again
	}
	p.set(name, next)
	return errors.Join(errs...)
}

// follow updates stages and graphs after a request changed a program; err is the result of the request. The update
// also completes after the caller has left, because nobody would repeat the request to complete a partial change.
// follow returns the errors of both.
func (p *programs) follow(ctx context.Context, name string, err error) error {
	names := []string{name}
	if err != nil && ctx.Err() != nil { // the change may go on
		if p.models.Settle(p.life.changing, name) != nil {
			return err // the server drains, or too many wait
		}
		for _, g := range p.models.Groups() { // with a name chosen by the load
			if app := g.Model().App; app != nil && app.Parts != nil && strings.HasPrefix(g.Model().Name, name+"-") {
				names = append(names, g.Model().Name)
			}
		}
	} else if err != nil && stream.CodeOf(err) != stream.NotFound { // the parts of a removed program must be removed
		return err
	}
	for _, name := range names {
		switch failed := p.sync(p.life.changing, name); {
		case failed == nil:
		case err == nil || stream.CodeOf(err) == stream.NotFound:
			err = failed
		default:
			p.log.Error("a program was changed, and its stages could not be changed with the program", "model",
				name, "error", failed)
		}
	}
	return err
}

// loadPart loads a stage or graph. loadPart replaces a loaded part when the program was replaced, and a graph also
// when the stages' worker counts have changed, because a graph reads the worker counts at its start.
func (p *programs) loadPart(ctx context.Context, c workers.Config, replaced bool) error {
	how := workers.Load{}
	if _, err := p.models.Group(c.Name, ""); err == nil && (replaced || c.Kind == "graph") {
		how.Params = stream.Params{"swap": true}
	}
	_, err := p.models.Load(ctx, c.Name, how)
	return err
}

// scale sets the number of workers of a model; for a program with several stages, scale sets the factor for the
// stages' numbers of workers.
func (p *programs) scale(ctx context.Context, name string, n int) error {
	err := p.follow(ctx, name, p.models.Scale(ctx, name, n))
	if err != nil && ctx.Err() == nil {
		return err
	}
	program, ok := p.with(name)
	if !ok {
		return err
	}
	end, failed := p.begin(p.life.changing, program)
	if failed != nil {
		return failed
	}
	defer end()
	all, _ := p.of(program)
	errs := []error{err}
	for _, part := range all.names {
		g, err := p.models.Group(part, "")
		if err == nil && slices.ContainsFunc(g.Uses(), func(u workers.Use) bool { return u.Model == name }) {
			errs = append(errs, p.loadPart(p.life.changing, g.Config(), false))
		}
	}
	return errors.Join(errs...)
}

// hooks returns the hooks of a group. Runs of the stages of programs are counted for the programs, too.
func (s *Server) hooks(m *stream.Model) workers.Hooks {
	h := s.observe.model(m)
	if !m.Calls || m.App != nil || !strings.Contains(m.Name, ".") {
		return h
	}
	return h.Then(workers.Hooks{Run: func(r workers.BatchRun) { s.programs.count(m.Name, r) }})
}

// count counts a run of a stage for the program.
func (p *programs) count(stage string, r workers.BatchRun) {
	if p.routes == nil || r.Err != nil || len(r.Batch.Requests) == 0 {
		return
	}
	first := r.Batch.Requests[0].Timing.Received
	for _, q := range r.Batch.Requests[1:] {
		first = min(first, q.Timing.Received)
	}
	p.routes.CountRun(stage, len(r.Batch.Requests), max(r.Batch.Gathered.Sub(first), 0), r.Ended.Sub(r.Started))
}

// listenRoot opens the listener that the program at the root requests with address and port in App.Extra, unless the
// server already listens there. Without authentication or with a short api_key, listenRoot refuses an address that
// other machines can reach, since the check of the settings at the start cannot see the program's address.
func (s *Server) listenRoot(ctx context.Context) error {
	g, err := s.models.Group(s.cfg.Programs.Root, "")
	if err != nil || s.http == nil || g.Model().App == nil {
		return nil // a failed load is reported elsewhere
	}
	extra := g.Model().App.Extra
	port, ok := number(extra["port"])
	if !ok {
		return nil
	}
	host, _ := extra["address"].(string)
	host = cmp.Or(host, "127.0.0.1")
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	if _, taken, _ := net.SplitHostPort(s.Addr("http")); taken == strconv.Itoa(port) {
		return nil // millrace run has read the port from the program's arguments
	}
	if open := !s.access.Required(); !s.cfg.Insecure && (open || s.access.HasShortKey()) && reachable(ctx, addr) {
		err := errExposed("address", addr)
		if !open {
			err = errShort("its address", addr)
		}
		return stream.Errorf(stream.InvalidArgument, "", "program %s: %w", s.cfg.Programs.Root, err)
	}
	at, err := s.http.ListenAlso(addr)
	if err != nil {
		return stream.Errorf(stream.Unavailable, "", "program %s asks for the address %s: %w", s.cfg.Programs.Root,
			addr, err)
	}
	for i := range builtin {
		if builtin[i].name == "http" {
			s.listening.bound(&builtin[i], at, s.connections.tls.on())
		}
	}
	return nil
}

// number returns a whole number of a program's description.
func number(v any) (int, bool) {
	switch n := v.(type) {
	case int64:
		return int(n), true
	case float64:
		return int(n), n == math.Trunc(n) && n >= 0 && n <= math.MaxUint16
	}
	return 0, false
}

// rootCheck is the time between two looks whether the program at the root has failed.
const rootCheck = 200 * time.Millisecond

// watchRoot returns the reason when all workers of the program at the root or of one of its stages have failed, or
// one worker with exit_on_worker_failure; watchRoot returns nil when ctx ends.
func (p *programs) watchRoot(ctx context.Context) error {
	tick := time.NewTicker(rootCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := p.rootFailed(); err != nil {
			return err
		}
	}
}

// rootFailed returns why the program at the root cannot go on, or nil.
func (p *programs) rootFailed() error {
	parts, _ := p.of(p.settings.Root)
	for i, name := range append([]string{p.settings.Root}, parts.names...) {
		g, err := p.models.Group(name, "")
		if err != nil {
			continue // the program is being replaced
		}
		last := g.LastFailure()
		if st := g.Stats(); st.Workers == 0 && st.State == workers.StateUnavailable {
			if last == nil {
				return stream.Errorf(stream.Unavailable, "", "all workers of %s are gone: %s", name, st.Reason)
			}
			return stream.Errorf(stream.Unavailable, "", "all workers of %s are gone: %s; the last failure: %w", name,
				st.Reason, last)
		} else if last != nil && p.settings.Failure {
			return stream.Errorf(stream.Unavailable, "",
				"a worker of %s has failed, and exit_on_worker_failure is set: %w", name, last)
		} else if app := g.Model().App; i == 0 && last != nil && app != nil && app.Parts != nil {
			return stream.Errorf(stream.Unavailable, "", "the main process of program %s has ended: %w", name, last)
		}
	}
	return nil
}

// RootFailure returns the reason of the last failed or replaced worker of the program at the root or of its stages;
// nil = no failure. Call RootFailure after Run.
func (s *Server) RootFailure() error { return s.programs.rootFailure() }

// lastRootFailure returns RootFailure's result while the models are loaded.
func (p *programs) lastRootFailure() (last error) {
	last = p.rootFailure() // of the start
	parts, _ := p.of(p.settings.Root)
	for _, name := range append([]string{p.settings.Root}, parts.names...) {
		if g, err := p.models.Group(name, ""); err == nil && g.LastFailure() != nil {
			last = g.LastFailure()
		}
	}
	return last
}

// Replicate returns the configuration with the instances of programs multiplied by the configuration's replicas.
func Replicate(c config.Config) config.Config {
	if c.Programs.Replicas <= 1 {
		return c
	}
	c.Models = slices.Clone(c.Models)
	for i := range c.Models {
		m := &c.Models[i]
		if IsProgram(m.WithDefaults().Kind) { // a model may set only replicas and a command
			m.Instances = max(m.Instances, 1) * c.Programs.Replicas
		}
	}
	return c
}

// programKinds are the kinds of models that run programs in child processes.
var programKinds = map[string]bool{"process": true, "python": true}

// IsProgram reports whether models of a kind are programs, which may have their own routes.
func IsProgram(kind string) bool { return programKinds[kind] }
