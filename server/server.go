package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/clips"
	"millrace/ingest/native"
	"millrace/ingest/shm"
	"millrace/ingest/sources"
	"millrace/internal/httpd"
	"millrace/internal/processors"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
	"millrace/tracing"
	"millrace/workers"
	"millrace/workers/onnx"

	// These kinds of workers register themselves.
	_ "millrace/workers/delay"
	_ "millrace/workers/graph"
	_ "millrace/workers/identity"
	_ "millrace/workers/motion"
	_ "millrace/workers/process"
	_ "millrace/workers/python"
	_ "millrace/workers/remote"
	_ "millrace/workers/repeat"
)

// Server is an inference server. New returns a Server, and Run runs the Server once.
type Server struct {
	cfg    Config
	log    *slog.Logger
	life   *lifecycle
	memory *buf.Pool
	turns  *processors.Turns // of long computations

	models     *workers.Manager
	configured *configured
	loader     *loader
	programs   *programs
	watched    *programWatch
	children   *children
	sequences  *ingest.Sequences
	clips      *clips.Store  // opened by openClips; nil = none
	shared     *shm.Registry // for the adapters of the Open Inference Protocol; nil = off

	connections *connections
	listening   *listening
	http        *httpd.Server // of the HTTP adapters; nil = no HTTP listener

	gate    *ingest.Gate   // between clients and models
	access  *access.Access // permissions of clients
	metrics *metricsAccess
	observe *observer
}

// New checks the configuration and opens the listeners, so that their errors are returned at once. Run loads the
// models.
func New(cfg Config) (*Server, error) {
	if path := cfg.Metrics.FirstSet(); path != "" && !tracing.WithMetrics {
		return nil, stream.Errorf(stream.InvalidArgument, path,
			"this program has no metrics: it was built with the tag nometrics; build it without the tag")
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = Replicate(cfg)
	cfg.Hosts = slices.Concat(cfg.Hosts, cfg.TLS.ACME.Domains)
	cfg.Version = cmp.Or(cfg.Version, "dev")
	s := &Server{
		cfg: cfg, life: newLifecycle(), memory: buf.NewPool(cfg.Memory.Budget),
		turns: processors.NewTurns(processors.Count()), configured: newConfigured(cfg.Models), listening: &listening{},
	}
	s.memory.LimitShares(cfg.Memory.ClientShare)
	s.metrics = newMetricsAccess(&s.cfg)
	var err error
	if s.observe, err = newObserver(s); err != nil {
		return nil, err
	}
	s.log = s.observe.log
	if err := s.prepare(); err != nil {
		s.observe.close()
		return nil, err
	}
	if err := s.listen(); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// prepare makes the parts that load and run models.
func (s *Server) prepare() error {
	proxies, err := s.cfg.TrustedProxies()
	if err != nil {
		return err
	}
	if s.connections, err = newConnections(&s.cfg, proxies, s.log); err != nil {
		return err
	}
	if s.children, err = newChildren(&s.cfg, s.log); err != nil {
		return err
	}
	if s.loader, err = openLoader(&s.cfg, s.configured, s.life, s.log); err != nil {
		s.children.close()
		return err
	}
	o := workers.ManagerOptions{Memory: s.memory, Turns: s.turns, Pixels: s.cfg.Limits.Pictures(), Log: s.log,
		Hooks: s.hooks, Public: publicOnly(s.cfg)}
	s.children.provide(&o)
	s.loader.provide(&o)
	s.models = workers.NewManager(o)
	s.programs = newPrograms(&s.cfg, s.models, s.life, s.log)
	s.watched = newProgramWatch(s.cfg.Programs.Watch, s.programs)
	s.loader.serve(s.models, s.programs)
	s.sequences = ingest.NewSequences(backend{s})
	if *s.cfg.SharedMemory {
		s.shared = shm.New(shm.Folder, s.cfg.Limits.MaxRegions)
	}
	return nil
}

// listen defines the models and opens the listeners.
func (s *Server) listen() (err error) {
	for i, m := range s.cfg.Models { // define all models before the first load, so that requests can load any model
		if err := s.models.Define(m); err != nil {
			return within(fmt.Sprintf("models[%d]", i), err)
		}
	}
	onnx.SetLibrary(s.cfg.ONNX.Library)
	onnx.SetMemory(s.cfg.ONNX.Memory)
	IsolateModels(&s.cfg)
	if s.access, err = openAccess(s); err != nil {
		return err
	}
	s.gate = ingest.NewGate(backend{s}, s.access)
	if err := s.connections.takeSockets(); err != nil {
		return err
	}
	return s.open()
}

// publicOnly returns the check of addresses in requests; nil = no check.
func publicOnly(cfg Config) func(netip.Addr) error {
	if cfg.Sources.AllowPrivate {
		return nil
	}
	return sources.Public
}

// abandon stops a server after a failed start.
func (s *Server) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.models.Close(ctx); err != nil {
		s.log.Error("models did not close", "error", err)
	}
	if err := s.listening.close(); err != nil {
		s.log.Warn("a listener did not close", "error", err)
	}
	s.connections.close()
	s.access.Close()
	s.children.close()
	s.loader.close()
	s.observe.close()
}

// Run loads the models and serves until ctx ends, then drains: the server opens no new streams, ends waiting frames
// as draining, and answers frames in flight. Run returns nil after a complete drain, and the error when a model
// cannot be loaded.
func (s *Server) Run(ctx context.Context) error {
	if err := s.life.start(); err != nil {
		return err
	}
	s.warnMemory()
	defer processors.Double()()
	if s.cfg.OwnProcess {
		heap := processors.OwnHeap(s.cfg.Memory.Budget)
		defer heap.Close()
		s.memory.OnOutside(heap.ReserveOutside)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { s.children.find(serving) }) // decoding waits for the probe, the start does not
	wg.Go(func() { s.removeLeftovers(serving) })
	var left error // why the server ends without an error
	adapt := sync.OnceFunc(func() { s.listening.serve(serving, s.gate, &wg) })
	if !s.connections.replaces() { // before the models, to answer probes during the load
		adapt()
	}
	wg.Go(func() { s.connections.tls.run(serving) }) // an authority connects to the adapters
	if s.access.Required() {
		wg.Go(func() { s.access.Watch(serving) })
	}
	s.watched.start(s.cfg.Models) // before the load, to see changes during the load
	err := s.loader.load(ctx, s.cfg.Models)
	if err == nil {
		adapt()
		wg.Go(func() { s.loader.poll(serving) })
		wg.Go(func() { s.loader.pollModels(serving) })
		err = s.listening.serving()
	}
	if err == nil && s.cfg.Programs.Root != "" {
		err = s.listenRoot(ctx)
	}
	if err == nil {
		err = s.connections.takeOver()
	}
	if err == nil {
		s.life.serve()
		s.logReady()
		wg.Go(func() { s.watched.run(serving) })
		var gone <-chan error // the program at the root
		if s.cfg.Programs.Root != "" && (*s.cfg.Programs.Exit || s.cfg.Programs.Failure) {
			reason := make(chan error, 1)
			gone = reason
			wg.Go(func() {
				if err := s.programs.watchRoot(serving); err != nil {
					reason <- err
				}
			})
		}
		select {
		case <-ctx.Done():
		case err = <-s.listening.failures():
		case err = <-gone:
		case <-s.connections.replaced():
			s.leave(ctx)
			left = errReplaced
		}
	}
	begun, started := time.Now(), err == nil || s.life.isLoaded() // err has the reason of a failed start
	if started {
		s.logDrain(ctx, cmp.Or(err, left))
		s.programs.fail(s.programs.lastRootFailure()) // while the models are loaded
	}
	err = errors.Join(err, s.drain(stop, &wg))
	if !started {
		_ = s.listening.close() // adapters may not have served
	}
	s.connections.close()
	if started {
		s.log.Info("the server has ended", "took", time.Since(begun))
	}
	s.access.Close()
	s.sequences.Close()
	if s.shared != nil {
		s.shared.UnregisterOfAll("")
	}
	s.children.close()
	s.loader.close()
	s.observe.close()
	return err
}

// warnMemory logs a memory budget above the memory of the machine or the container.
func (s *Server) warnMemory() {
	limit, where := processors.MemoryLimit()
	if budget := s.cfg.Memory.Budget; limit > 0 && budget > limit {
		s.log.Warn("the memory budget is above the memory of the machine or container: the system may kill the "+
			"server before the server refuses requests; lower the budget", "setting", "memory.budget", "budget", budget,
			"limit", limit, "of", where)
	}
}

// logReady logs the models and addresses of the server.
func (s *Server) logReady() {
	args := append([]any{"version", s.cfg.Version, "took", time.Since(s.life.created)}, s.children.attrs()...)
	for _, l := range s.listening.addresses() {
		args = append(args, l.Name, l.Addr)
	}
	names := []string{}
	for _, g := range s.models.Groups() {
		names = append(names, g.Model().Name)
	}
	s.log.Info("the server is ready", append(args, "models", strings.Join(names, " "))...)
}

// logDrain logs the reason of the drain: err, or the cause of ctx's end.
func (s *Server) logDrain(ctx context.Context, err error) {
	why := err
	if why == nil {
		why = context.Cause(ctx)
	}
	s.log.Info("the server drains", "reason", why, "limit", s.cfg.Drain)
}

// within adds the name of a configuration entry to err.
func within(entry string, err error) error {
	var e *stream.Error
	if errors.As(err, &e) {
		return coded.PrefixField(entry, err)
	}
	return fmt.Errorf("%s: %w", entry, err)
}

// endGrace is the time for clients to receive the endings of frames that exceeded drain.
const endGrace = 2 * time.Second

// drain stops the parts in an order that loses no ending: drain first notifies clients, then closes the models, so
// that every frame ends while its connection is open, and then stops the adapters.
func (s *Server) drain(stop func(), adapters *sync.WaitGroup) error {
	s.life.drain()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Drain)
	defer cancel()
	until, _ := ctx.Deadline()
	s.listening.goAway(until)
	err := s.models.Close(ctx) // ends all frames at the time limit
	stop()
	ended := make(chan struct{})
	go func() { // ends with the adapters, because each adapter bounds its own drain
		adapters.Wait()
		close(ended)
	}()
	limit := time.NewTimer(time.Until(until) + endGrace)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		err = errors.Join(err, fmt.Errorf("adapters still had sessions after %v (drain)", s.cfg.Drain))
	}
	return err
}

// leave stops accepting, answers what arrives on open connections, and asks their clients to close them, until all
// connections are closed, drain has passed, or ctx ends.
func (s *Server) leave(ctx context.Context) {
	s.log.Info("another server has taken over", "limit", s.cfg.Drain)
	s.connections.leave()
	until := time.Now().Add(s.cfg.Drain)
	s.listening.leave(until)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.connections.open() > 0 && time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ReopenLog reopens log.file and audit for log rotation: rename the file, then call ReopenLog. Without a log file
// ReopenLog does nothing.
func (s *Server) ReopenLog() error {
	if s.cfg.Log.File == "" && s.cfg.Audit == "" {
		return nil
	}
	err := s.observe.reopen()
	if err == nil && s.cfg.Log.File != "" {
		s.log.Info("the log file was opened again", "file", s.cfg.Log.File)
	}
	return err
}

// Log returns the log of the server.
func (s *Server) Log() *slog.Logger { return s.log }

// Ready is closed when the models are loaded and the adapters serve.
func (s *Server) Ready() <-chan struct{} { return s.life.ready }

// Native returns the Go API with the program's own rights: As and Authenticate return clients with the rights of
// users. Calls are answered once Ready is closed.
func (s *Server) Native() *native.Client { return adapterOf[*native.Adapter](s.listening).Client() }

// Models returns the manager, for programs that load models.
func (s *Server) Models() *workers.Manager { return s.models }

// Memory returns the pool that leases the memory of frames.
func (s *Server) Memory() *buf.Pool { return s.memory }
