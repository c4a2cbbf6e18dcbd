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
	"sync/atomic"
	"time"

	"millrace/config"
	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/apps"
	"millrace/ingest/grpc"
	"millrace/ingest/native"
	"millrace/ingest/shm"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/internal/child"
	"millrace/internal/confine"
	"millrace/internal/httpd"
	"millrace/internal/processors"
	"millrace/internal/role"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
	"millrace/tracing"
	"millrace/workers"
	"millrace/workers/container"
	"millrace/workers/onnx"
	"millrace/workers/repository"

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
	metricsRole func() role.Role // required role for the metrics
	cfg         Config
	version     string
	log         *slog.Logger
	memory      *buf.Pool
	turns       *processors.Turns // of long computations
	models      *workers.Manager
	repository  *repository.Repository
	sources     *ModelSources // nil = no model has an address
	polls       polls
	polled      polled // the changes of the repository
	native      *native.Client
	shared      *shm.Registry // for the adapters of the Open Inference Protocol; nil = off
	observe     *observer
	sequences   *ingest.Sequences

	listening listening
	programs  programs
	http      *httpd.Server    // of the HTTP adapters; nil = no HTTP listener
	grpc      *grpc.Adapter    // nil = no gRPC listener
	streams   *streams.Adapter // nil: off
	apps      *apps.Adapter    // of the routes of programs; nil when http is off

	gate     *ingest.Gate   // between clients and models
	access   *access.Access // permissions of clients
	tls      encryption
	limit    *accept.Limit // of all listeners together, except management
	managing *accept.Limit // of the management listeners, so that other clients cannot exhaust the limit
	replaces replacement

	metricsRules atomic.Pointer[httpd.Rules] // of metrics.address
	watched      watchList                   // the watched programs

	hardware *video.Hardware // decodes videos; nil = software
	sandbox  bool            // ffmpeg is confined
	// confines workers in child processes and programs of exec sources; nil = no confinement
	confined *confine.Programs
	// runs models of the kind container
	containers *container.Engine

	configured configured

	life *lifecycle
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
	proxies, err := cfg.TrustedProxies()
	if err != nil {
		return nil, err
	}
	connections, files := accept.Bound(cfg.Limits.MaxConnections)
	s := &Server{
		cfg: cfg, version: cmp.Or(cfg.Version, "dev"), memory: buf.NewPool(cfg.Memory.Budget),
		turns: processors.NewTurns(processors.Count()),
		life:  newLifecycle(),
		polls: polls{failing: map[string]string{}, refused: map[string]refusal{}, changed: make(chan struct{}, 1)},
		limit: &accept.Limit{Max: connections, PerAddress: cfg.Limits.MaxPerAddress, Trusted: proxies},
		managing: &accept.Limit{Max: max(connections/managingShare, leastManaging),
			PerAddress: cfg.Limits.MaxPerAddress, Trusted: proxies},
	}
	// programs may change the address
	s.metricsRole = sync.OnceValue(func() role.Role { return metricsRole(context.Background(), &s.cfg) })
	s.configured.models.Store(&cfg.Models)
	s.memory.LimitShares(cfg.Memory.ClientShare)
	if s.observe, err = newObserver(s); err != nil {
		return nil, err
	}
	s.log = s.observe.log
	if s.tls, err = newEncryption(&s.cfg, s.log); err != nil {
		s.observe.close()
		return nil, err
	}
	s.limit.Log, s.managing.Log = s.log, s.log
	if connections < cfg.Limits.MaxConnections {
		s.log.Warn("fewer connections than limits.max_connections can be open: raise the limit of open files "+
			"(ulimit -n), or lower the setting",
			"limits.max_connections", cfg.Limits.MaxConnections, "possible", connections, "open files", files)
	}
	if s.sandbox, err = sandbox(cfg.Sandbox, child.SandboxError(), s.log); err == nil {
		s.confined, err = confinement(&cfg, child.SandboxError(), s.log)
	}
	if err != nil {
		s.observe.close()
		return nil, err
	}
	s.hardware = video.NewHardware(cfg.Sources.HWAccel, func(err error) {
		s.log.Warn("hardware decoding failed: for a minute, videos that are opened are decoded in software", "setting",
			"sources.hwaccel", "error", err)
	})
	if s.sources, err = OpenModelSources(&cfg, s.log, nil); err != nil {
		s.observe.close()
		return nil, err
	}
	if s.repository, err = repository.New(repository.Options{Dir: s.sources.FolderOf(&cfg),
		MaxSent: cfg.Repository.MaxSent, YAML: config.ReadModel}); err != nil {
		s.closeSources()
		s.observe.close()
		return nil, err
	}
	if s.containers, err = container.New(container.Options{
		Host: cfg.Containers.Host, Images: cfg.Containers.Images, User: cfg.Containers.User, Data: cfg.Data, Log: s.log,
	}); err != nil {
		s.closeSources()
		s.observe.close()
		return nil, err
	}
	s.models = workers.NewManager(workers.ManagerOptions{
		Memory: s.memory, Turns: s.turns, Pixels: cfg.Limits.Pictures(), Log: s.log, Hooks: s.hooks,
		Repository: s.repository, Programs: s.confined, Public: publicOnly(cfg),
		Containers: s.containers,
	})
	s.sequences = ingest.NewSequences(backend{s})
	if *cfg.SharedMemory {
		s.shared = shm.New(shm.Folder, cfg.Limits.MaxRegions)
	}
	for i, m := range cfg.Models { // define all models before the first load, so that requests can load any model
		if err := s.models.Define(m); err != nil {
			s.abandon()
			return nil, within(fmt.Sprintf("models[%d]", i), err)
		}
	}
	onnx.SetLibrary(cfg.ONNX.Library)
	onnx.SetMemory(cfg.ONNX.Memory)
	IsolateModels(&cfg)
	if s.access, err = openAccess(s); err == nil {
		s.gate = ingest.NewGate(backend{s}, s.access)
		if err = s.takeSockets(); err == nil {
			err = s.open()
		}
	}
	if err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// publicOnly returns the check of addresses in requests; nil = no check.
func publicOnly(cfg Config) func(netip.Addr) error {
	if cfg.Sources.AllowPrivate {
		return nil
	}
	return sources.Public
}

// logHardware logs the method of decoding videos. An unusable configured method is a warning: a slow server is more
// useful than a failed start.
func (s *Server) logHardware(f video.HardwareFound) {
	level, set := slog.LevelInfo, s.cfg.Sources.HWAccel
	if f.Use == "" && set != video.HardwareAuto {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, f.String(), "sources.hwaccel", set)
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
	s.replaces.close()
	s.access.Close()
	s.containers.Close()
	s.closeSources()
	s.observe.close()
}

// closeSources removes the files of models with addresses.
func (s *Server) closeSources() {
	if err := s.sources.Close(); err != nil {
		s.log.Warn("the folder of fetched models was not removed", "error", err)
	}
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
	if s.hardware != nil { // decoding waits for the probe, the start does not
		wg.Go(func() { s.logHardware(s.hardware.Find(serving)) })
	}
	wg.Go(func() { s.removeLeftovers(serving) })
	failed := make(chan error, len(s.listening.adapters))
	var left error // why the server ends without an error
	adapt := sync.OnceFunc(func() {
		for _, a := range s.listening.adapters {
			wg.Go(func() {
				if err := a.Serve(serving, s.gate); err != nil {
					failed <- fmt.Errorf("%s: %w", a.Name(), err)
				}
			})
		}
	})
	if s.replaces.before == nil { // before the models, to answer probes during the load
		adapt()
	}
	wg.Go(func() { s.tls.run(serving) }) // an authority connects to the adapters
	if s.access.Required() {
		wg.Go(func() { s.access.Watch(serving) })
	}
	if s.cfg.Programs.Watch { // before the load, to see changes during the load
		s.watched.start(s.watchedPrograms())
	}
	err := s.load(ctx)
	if err == nil {
		adapt()
	}
	if err == nil && s.cfg.Repository.Mode == config.LoadPoll {
		wg.Go(func() { s.poll(serving) })
	}
	if err == nil && s.sources != nil {
		wg.Go(func() { s.pollModels(serving) })
	}
	if err == nil {
		err = s.listening.serving(failed)
	}
	if err == nil && s.cfg.Programs.Root != "" {
		err = s.listenRoot(ctx)
	}
	if err == nil {
		err = s.takeOver()
	}
	if err == nil {
		s.life.serve()
		s.logReady()
		if s.cfg.Programs.Watch {
			wg.Go(func() { s.watchPrograms(serving) })
		}
		var gone <-chan error // the program at the root
		if s.cfg.Programs.Root != "" && (*s.cfg.Programs.Exit || s.cfg.Programs.Failure) {
			reason := make(chan error, 1)
			gone = reason
			wg.Go(func() {
				if err := s.watchRoot(serving); err != nil {
					reason <- err
				}
			})
		}
		select {
		case <-ctx.Done():
		case err = <-failed:
		case err = <-gone:
		case <-s.replaces.replaced():
			s.leave(ctx)
			left = errReplaced
		}
	}
	begun, started := time.Now(), err == nil || s.life.loaded.Load() // err has the reason of a failed start
	if started {
		s.logDrain(ctx, cmp.Or(err, left))
		s.programs.end(s.lastRootFailure())
	}
	err = errors.Join(err, s.drain(stop, &wg))
	if !started {
		_ = s.listening.close() // adapters may not have served
	}
	s.replaces.close()
	if started {
		s.log.Info("the server has ended", "took", time.Since(begun))
	}
	s.access.Close()
	s.sequences.Close()
	if s.shared != nil {
		s.shared.UnregisterOfAll("")
	}
	s.containers.Close()
	s.closeSources()
	s.observe.close()
	return err
}

// warnMemory logs a memory budget above the memory of the machine or the container.
func (s *Server) warnMemory() {
	limit, where := processors.MemoryLimit()
	if budget := s.cfg.Memory.Budget; limit > 0 && budget > limit {
		s.log.Warn("the memory budget is more than the server may use: it may be killed before it refuses anything; "+
			"lower the budget", "setting", "memory.budget", "budget", budget, "limit", limit, "of", where)
	}
}

// logReady logs the models and addresses of the server.
func (s *Server) logReady() {
	args := []any{"version", s.version, "took", time.Since(s.life.created), "sandbox", sandboxText(s.sandbox),
		"confine", sandboxText(s.confined != nil)}
	for _, l := range s.listening.at {
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

func (s *Server) load(ctx context.Context) error {
	order, err := workers.LoadOrder(s.cfg.Models)
	if err != nil {
		return within("models", err)
	}
	s.sources.Fetch(ctx, s.cfg.Models)
	for _, i := range order {
		used, err := s.define(ctx, s.cfg.Models[i])
		if err == nil {
			_, err = s.models.Load(ctx, s.cfg.Models[i].Name, workers.Load{})
			used(err == nil)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%w while model %s was being loaded", context.Cause(ctx), s.cfg.Models[i].Name)
		case err != nil:
			return within(fmt.Sprintf("models[%d]", i), err)
		}
		if err := s.syncProgram(ctx, s.cfg.Models[i].Name); err != nil { // names the stage
			return within(fmt.Sprintf("models[%d]", i), stream.Errorf(stream.CodeOf(err), "", "%w", err))
		}
	}
	return s.loadRepository(ctx)
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
func (s *Server) Native() *native.Client { return s.native }

// Models returns the manager, for programs that load models.
func (s *Server) Models() *workers.Manager { return s.models }

// Memory returns the pool that leases the memory of frames.
func (s *Server) Memory() *buf.Pool { return s.memory }
