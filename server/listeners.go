package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"millrace/ingest"
	"millrace/ingest/apps"
	"millrace/ingest/clips"
	"millrace/ingest/grpc"
	"millrace/ingest/history"
	"millrace/ingest/native"
	"millrace/ingest/rest"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/ingest/tasks"
	"millrace/ingest/ws"
	"millrace/internal/accept"
	"millrace/internal/httpd"
	"millrace/internal/secret"
	"millrace/stream"
	durable "millrace/tasks"
	"millrace/tasks/blob"
	"millrace/tracing"
	"millrace/tracing/spans"
	"millrace/web"
)

// listener is a way for clients to reach the server: an adapter, and where it listens.
type listener struct {
	name   string               // the name of its setting, if it has an address
	addr   func(*Config) string // "" or Off = it is off; nil = it has no address of its own
	off    func(*Config) bool   // nil = false
	on     string               // the listener whose address it shares, "" = none
	scheme string               // of its URL; "" = it is not for clients of models
	class  func(int) string     // of a status, in the metrics of its requests; nil = it has none
	open   func(*Server) (ingest.Interface, error)
	listen func(*Server) (net.Addr, error) // instead of open: a second address of an adapter before it
	path   string                          // of its setting; "" = name
}

// management is the name of the listener of management.address.
const management = "management"

// builtin are the listeners with adapters made from the server's own settings. An adapter may also be an
// ingest.Measured, Drainer or Starter, and a listens.
var builtin = []listener{
	{name: "native", open: openNative},
	{name: "http", addr: func(c *Config) string {
		return c.HTTP
	}, scheme: "http", class: tracing.HTTPClass, open: openHTTP},
	{name: "rest", on: "http", open: openREST},
	{name: "apps", on: "http", open: openApps},
	{name: "ws", on: "http", open: openWS},
	{name: "streams", on: "http", open: openStreams},
	{name: "tasks", on: "http", off: func(c *Config) bool { return c.Data == "" }, open: openTasks},
	{name: "grpc", addr: func(c *Config) string {
		return c.GRPC
	}, scheme: "grpc", class: tracing.GRPCClass, open: openGRPC},
	{name: "metrics", path: "metrics.address", addr: func(c *Config) string {
		return c.Metrics.Address
	}, open: openMetrics},
	{name: "programs", path: "apps.address", addr: func(c *Config) string {
		return c.Apps.Address
	}, scheme: "http", listen: func(s *Server) (net.Addr, error) { return s.http.ListenPrograms() }},
	{name: management, path: "management.address", addr: func(c *Config) string {
		return c.Management.Address
	}, scheme: "http", listen: func(s *Server) (net.Addr, error) { return s.http.ListenManagement() }},
	{name: "management_grpc", path: "management.grpc", addr: func(c *Config) string {
		return c.Management.GRPC
	}, scheme: "grpc", listen: func(s *Server) (net.Addr, error) {
		return adapterOf[*grpc.Adapter](s.listening).ListenManagement()
	}},
}

// listeners returns all listeners, in the order in which the ready line names them: builtin, then the registered
// adapters.
func listeners() []listener {
	all := slices.Clone(builtin)
	for _, k := range ingest.Adapters() {
		l := listener{name: k.Name, scheme: k.Scheme, off: func(c *Config) bool { return !k.On(c.Parts) },
			open: func(s *Server) (ingest.Interface, error) { return k.New(s.cfg.Parts, s.adapterEnv(k.Name)) }}
		if k.Address != nil {
			l.addr = func(c *Config) string { return k.Address(c.Parts) }
		} else {
			l.on = "http"
		}
		all = append(all, l)
	}
	return all
}

// adapterEnv returns the environment of a registered adapter.
func (s *Server) adapterEnv(name string) ingest.AdapterEnv {
	return ingest.AdapterEnv{HTTP: s.http, Limits: s.cfg.Limits, Drain: s.cfg.Drain, Log: s.log,
		Opened: s.listening.adapter, Data: s.cfg.Data, Models: definer{s},
		Listen: func(address string) (net.Listener, error) { return s.connections.listen(name, address) }}
}

// listens is an adapter with an address of its own. Listen binds it, and Close releases
// it when Serve will not be called.
type listens interface {
	Listen() (net.Addr, error)
	Close() error
}

func openNative(s *Server) (ingest.Interface, error) {
	return native.New(native.Options{Log: s.log, TraceContext: spans.FromContext}), nil
}

func openHTTP(s *Server) (ingest.Interface, error) {
	addr := s.cfg.HTTP
	if s.cfg.Inside {
		addr = "127.0.0.1:0" // nobody connects
	}
	h, err := httpd.New(httpd.Config{
		Addr: addr, Hosts: s.cfg.Hosts, Origins: s.cfg.Origins, MaxBody: s.cfg.Limits.MaxBody,
		Management: s.cfg.Management.Address, SocketMode: s.cfg.Management.Mode(), Programs: s.cfg.Apps.Address,
		IdleTimeout: s.cfg.Limits.KeepAlive, TLS: s.connections.tls.config, HSTS: s.cfg.TLS.HSTS,
		Credentials: s.access.Required(), Limit: s.connections.limit, ManagementLimit: s.connections.managing,
		Turns: s.turns, Log: s.log, Refused: s.observe.refused, Probe: rest.IsProbe, Proxy: s.access.IsProxy,
	})
	if err != nil {
		return nil, err
	}
	metrics := s.cfg.Metrics.Path
	if s.cfg.Metrics.Separate() {
		metrics = "" // not a route of h
	}
	s.observe.measureRequests(h.App, s.listening.hook("http"), metrics)
	s.serveLogins(h.App)
	// before the routes that a program at the root may replace
	s.programs.routes = apps.New(h, apps.Options{
		Root: s.cfg.Programs.Root, Style: styleOf(s.cfg.Models, s.cfg.Programs.Root), Styles: httpStyles(),
		DrainTimeout: s.cfg.Drain, Guard: s.guardProgram, Key: s.keyHeader(), Session: sessionName, Log: s.log})
	if metrics != "" {
		s.observe.metricsRoute(h.App, metrics)
	}
	s.statusRoutes(h.App)
	s.loggingRoutes(h.App)
	s.traceRoutes(h.App)
	s.traceSettingRoutes(h.App)
	s.openapiRoutes(h.App)
	web.Mount(h, web.Options{Clip: s.cfg.Clip, Login: s.access.Required(), Passwords: s.access.Passwords(),
		Managed: s.managesHere})
	s.http = h
	if s.cfg.Inside {
		return insideServer{}, nil
	}
	return httpServer{h, s.listening}, nil
}

func openREST(s *Server) (ingest.Interface, error) {
	return rest.New(s.http, rest.Options{DrainTimeout: s.cfg.Drain, Log: s.log, SharedMemory: s.shared}), nil
}

// openApps returns the adapter that openHTTP has made.
func openApps(s *Server) (ingest.Interface, error) { return s.programs.routes, nil }

// keptShare is the largest share of the memory budget, in addition to it, that endings
// kept for sessions that may be resumed can take: 1/keptShare.
const keptShare = 16

func openWS(s *Server) (ingest.Interface, error) {
	kept, err := s.openClips()
	if err != nil {
		return nil, err
	}
	hardware, sandboxed := s.children.decoding()
	return ws.New(s.http, ws.Options{
		Limits: s.cfg.Limits, KeptBytes: s.cfg.Memory.Budget / keptShare,
		Address: s.clientAddress, AllowPrivateURLs: s.cfg.Sources.AllowPrivate, Hardware: hardware,
		Sandbox: sandboxed, Clips: clips.NewClients(s.cfg.Clips.Clients, kept, s.cfg.Limits.Pictures(), s.log),
		Log: s.log,
	}), nil
}

func openStreams(s *Server) (ingest.Interface, error) {
	store, err := streams.OpenStore(s.cfg.StreamsFile, s.cfg.Streams, s.cfg.Limits.MaxStreams)
	if err != nil {
		return nil, err
	}
	var files *sinks.Files
	if c := s.cfg.Sinks; c.Folder != "" {
		if files, err = sinks.OpenFiles(c.Folder, c.ClientBytes); err != nil {
			return nil, err
		}
	}
	kept, err := s.openClips()
	if err != nil {
		return nil, err
	}
	hardware, sandboxed := s.children.decoding()
	return streams.New(s.http, streams.Options{
		Streams: s.cfg.Streams, Store: store, Clips: kept, History: s.openHistory(), Files: files,
		Limits:       s.cfg.Limits,
		AllowPrivate: s.cfg.Sources.AllowPrivate, Hardware: hardware, Sandbox: sandboxed, Programs: s.children.programs,
		Log: s.log,
	}), nil
}

// openClips opens the folder of clips, once; nil without a folder. The adapter streams closes the folder.
func (s *Server) openClips() (kept *clips.Store, err error) {
	c, folder := s.cfg.Clips, s.cfg.ClipsFolder()
	if folder != "" && s.clips == nil {
		s.clips, err = clips.Open(clips.Options{Folder: folder, MaxAge: c.MaxAge, MaxBytes: c.MaxBytes,
			Memory: c.Memory, ClientBytes: c.Clients.MaxBytes, Log: s.log})
	}
	return s.clips, err
}

// openHistory returns the history of events, or nil. The adapter opens the database.
func (s *Server) openHistory() *history.History {
	folder := s.cfg.HistoryFolder()
	if folder == "" {
		return nil
	}
	return history.New(history.Options{Folder: folder, Retention: s.cfg.Events.Retention,
		MaxBytes: s.cfg.Events.MaxBytes, Log: s.log})
}

// DataOptions returns the options for the folder data of a configuration, which must be valid.
func DataOptions(cfg *Config, log *slog.Logger) (o durable.Options, err error) {
	c := cfg.Tasks
	o = durable.Options{Lease: c.Lease, Retention: c.Retention, MaxWaiting: c.MaxWaiting, MaxBytes: c.MaxBytes,
		UploadExpiry: c.UploadExpiry, Log: log}
	if bucket, prefix, ok := c.Bucket(); ok {
		key, err := secret.Read(c.S3.SecretKey)
		if err != nil {
			return o, stream.Errorf(stream.InvalidArgument, "tasks.s3.secret_key", "%w", err)
		}
		o.S3 = &blob.S3Options{Endpoint: c.S3.Endpoint, Bucket: bucket, Prefix: prefix, Region: c.S3.Region,
			AccessKey: c.S3.AccessKey, SecretKey: key, CA: c.S3.CA}
	}
	if n := cfg.NATS; len(n.Servers) > 0 {
		password, err := secret.Read(n.Password)
		if err != nil {
			return o, stream.Errorf(stream.InvalidArgument, "nats_password", "%w", err)
		}
		o.NATS = &durable.NATS{Servers: n.Servers, User: n.User, Password: password, Credentials: n.Credentials,
			CA: n.CA}
	}
	return o, nil
}

// OpenData opens the tasks in the folder data of a configuration, which must be valid.
func OpenData(ctx context.Context, cfg *Config, log *slog.Logger) (*durable.Data, error) {
	o, err := DataOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	data, err := durable.OpenData(ctx, cfg.Data, cfg.Tasks.Sync == "always", o)
	if named := (*stream.Error)(nil); err != nil && !(errors.As(err, &named) && named.Field != "") {
		err = stream.Errorf(stream.Unavailable, "data", "%w", err)
	}
	return data, err
}

func openTasks(s *Server) (ingest.Interface, error) {
	c := s.cfg.Tasks
	data, err := OpenData(context.Background(), &s.cfg, s.log)
	if err != nil {
		return nil, err
	}
	if err := s.children.openContainers(context.Background()); err != nil {
		data.Close()
		return nil, stream.Errorf(stream.Unavailable, "data", "%w", err)
	}
	key, err := secret.Read(c.WebhookSecret)
	if err != nil {
		data.Close()
		return nil, stream.Errorf(stream.InvalidArgument, "tasks.webhook_secret", "%w", err)
	}
	slots := c.Slots
	if c.Consume == Off {
		slots = 0
	}
	// The tasks that do not finish within drain need time to end: a container must be removed.
	drain := s.cfg.Drain - min(3*time.Second, s.cfg.Drain/2)
	return tasks.New(s.http, tasks.Options{
		Data: data, MaxInput: c.MaxInput, MaxResult: c.MaxBytes, Slots: slots, Share: c.Share, Drain: drain,
		Webhooks: c.Webhooks == "on", WebhookSecret: key, Media: s.taskMedia(), Log: s.log,
		Tracer: s.observe.tasks(),
	}), nil
}

func openGRPC(s *Server) (ingest.Interface, error) {
	return grpc.New(grpc.Options{
		Addr: s.cfg.GRPC, Management: s.cfg.Management.GRPC, SocketMode: s.cfg.Management.Mode(),
		ManagementOnly: s.cfg.Management.Separate(), DrainTimeout: s.cfg.Drain, TLS: s.connections.tls.config,
		Limit: s.connections.limit, Managing: s.connections.managing, Limits: s.cfg.Limits, SharedMemory: s.shared,
		Root: s.cfg.Programs.Root, Styles: grpcStyles(), AnswersLive: s.answersLive(),
		OpenHealth: s.cfg.Auth.Health == "open", Log: s.log, OnCall: s.observe.called(s.listening.hook("grpc")),
	}), nil
}

func openMetrics(s *Server) (ingest.Interface, error) {
	if err := s.metrics.use(s.cfg.Hosts); err != nil {
		return nil, err
	}
	return s.observe.server(s.cfg.Metrics, s.connections.tls.config, s.connections.limit, s.cfg.Limits.KeepAlive,
		s.metrics.checkHost, s.guardHandler, s.metrics.role()), nil
}

// setting returns the path of the setting with its address.
func (l *listener) setting() string { return cmp.Or(l.path, l.name) }

// isOn reports whether the configuration turns the listener on.
func (l *listener) isOn(c *Config) bool {
	switch {
	case l.off != nil && l.off(c):
		return false
	case l.addr != nil:
		addr := l.addr(c)
		return addr != "" && addr != Off || l.inside(c)
	case l.on == "":
		return true
	}
	on := slices.IndexFunc(builtin, func(o listener) bool { return o.name == l.on })
	return on >= 0 && builtin[on].isOn(c)
}

// inside reports whether only the server itself makes requests to the listener's routes.
func (l *listener) inside(c *Config) bool { return c.Inside && l.name == "http" }

// open makes the adapters and binds their addresses.
func (s *Server) open() error {
	all := listeners()
	for i := range all {
		l := &all[i]
		if !l.isOn(&s.cfg) {
			continue
		}
		if l.class != nil && *s.cfg.Metrics.Requests {
			class := l.class
			if of := metricsStyle(&s.cfg); of != nil && l.name == "grpc" {
				class = of.Metrics.Names.GRPC
			}
			s.listening.count(l.name, s.observe.requests(l.name, class))
		}
		if l.listen != nil { // the adapter closes it
			taken, err := l.listen(s)
			if err != nil {
				return stream.Errorf(stream.Unavailable, l.setting(), "%w", err)
			}
			s.listening.bound(l, taken, s.connections.tls.on())
			continue
		}
		a, err := l.open(s)
		if err != nil {
			return err
		}
		if err := s.listening.add(l, a, s.connections.tls.on()); err != nil {
			return err
		}
	}
	return s.guardRoutes()
}

// Listener is an address that a server listens on.
type Listener struct {
	Name    string // http, grpc, metrics, programs, management or management_grpc
	Setting string // of its address, such as metrics.address
	Addr    string // host:port, or unix:PATH
	URL     string // with the scheme, unix: for one of a unix socket; "" when it is not for clients of models
}

// addressOf returns an address as Listener.Addr has it.
func addressOf(a net.Addr) string {
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return a.String()
}

// at returns the description of the listener at an address.
func (l *listener) at(addr string, encrypted bool) Listener {
	out := Listener{Name: l.name, Setting: l.setting(), Addr: addr}
	_, local := accept.SocketPath(addr)
	switch {
	case l.scheme != "" && local:
		out.URL = addr
	case l.scheme == "http" && encrypted:
		out.URL = "https://" + addr
	case l.scheme != "":
		out.URL = l.scheme + "://" + addr
	}
	return out
}

// Listeners returns the addresses on which a configuration listens.
func Listeners(c Config) []Listener {
	c = c.WithDefaults()
	var out []Listener
	all := listeners()
	for i := range all {
		if l := &all[i]; l.addr != nil && l.isOn(&c) && !l.inside(&c) {
			out = append(out, l.at(l.addr(&c), c.TLS.On()))
		}
	}
	return out
}

// Listeners returns the addresses on which the server listens.
func (s *Server) Listeners() []Listener { return s.listening.addresses() }

// Addr returns the address of the listener of that name as host:port, "" when it is
// off.
func (s *Server) Addr(name string) string { return s.listening.named(name).Addr }

// URL returns the address of the listener of that name as a URL, "" when it is off.
func (s *Server) URL(name string) string { return s.listening.named(name).URL }

// httpServer is the listener of the HTTP adapters. It accepts connections when they
// serve: until then connections wait, and no client is refused because the server is
// starting.
type httpServer struct {
	*httpd.Server
	all *listening
}

// Name implements ingest.Interface.
func (httpServer) Name() string { return "http" }

// insideServer is the HTTP server of a server without an address of HTTP: the server itself makes the requests, see
// httpd.Handle.
type insideServer struct{}

// Name implements ingest.Interface.
func (insideServer) Name() string { return "http" }

// Serve implements ingest.Interface.
func (insideServer) Serve(ctx context.Context, _ *ingest.Gate) error {
	<-ctx.Done()
	return nil
}

// GoAway implements ingest.Drainer: each connection is closed behind its next reply.
func (h httpServer) GoAway(time.Time) { h.Drain() }

// Serve implements ingest.Interface.
func (h httpServer) Serve(ctx context.Context, _ *ingest.Gate) error {
	h.all.each(func(a ingest.Interface) {
		if a, ok := a.(ingest.Starter); ok {
			<-a.Serving()
		}
	})
	return h.Server.Serve(ctx)
}
