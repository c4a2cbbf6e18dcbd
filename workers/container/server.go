package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/remote"
)

// server is one instance of a model with container.serve: a container with a server of the Open Inference Protocol.
type server struct {
	workers.Base
	running
	env     *workers.Env
	name    string
	group   *servers
	files   *modelFiles    // nil = no /model
	network string         // "" = not made
	leave   func()         // of dialTo; nil = none
	remote  workers.Worker // sends the requests; nil until the server inside is ready

	stopping chan struct{} // closed by Destroy
	watched  chan struct{} // closed at the end of watch; nil = not started
}

var _ workers.Worker = (*server)(nil)

// servers is the state shared by the instances of a model.
type servers struct {
	unready func(error)

	mu      sync.Mutex
	image   *image               // of the first instance: a restart uses the same image
	model   *stream.Model        // of the first instance
	down    map[*server]error    // of each instance; nil = ready
	late    map[*server]stopFunc // of the instances that are not ready: their replacement
	unfit   map[*server]error    // why instances are being replaced
	changed chan struct{}        // closed at the next change of down or unfit
}

type stopFunc = func() bool

// Times of a start and of a stop.
const (
	stopMargin = 2 * time.Second        // to remove the container and the network
	goneWait   = 2 * time.Second        // for the end of a container whose connection broke
	failTime   = 5 * time.Second        // of a start for its end after a failure; more for a long start
	leastGrace = 100 * time.Millisecond // of a stop whose time is over
)

// Init implements workers.Worker: Init starts the container, and waits until the server inside is ready.
func (s *server) Init(ctx context.Context, env *workers.Env) (m *stream.Model, err error) {
	s.set, s.log, s.count = &env.Settings.(*settings).Container, env.Log, env.Processes
	s.env, s.name, s.model, s.stopping = env, env.Name, env.Name, make(chan struct{})
	s.group = env.Shared(func() any {
		return &servers{unready: env.Unready, down: map[*server]error{}, late: map[*server]stopFunc{},
			unfit: map[*server]error{}, changed: make(chan struct{})}
	}).(*servers)
	whole := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		limit := time.Until(end)
		ctx, cancel = context.WithTimeout(ctx, limit-min(max(limit/10, failTime), limit/2))
		defer cancel()
	}
	defer func() {
		if err != nil {
			s.end(whole, 0)
		}
	}()
	of, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.startContainer(ctx, of); err != nil {
		return nil, err
	}
	if m, err = s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.group.add(s, m); err != nil {
		return nil, err
	}
	s.watched = make(chan struct{})
	go s.watch()
	return m, nil
}

// prepare returns the image: of the first start, unless this is the first start.
func (s *server) prepare(ctx context.Context) (image, error) {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	if s.group.image == nil {
		e, found, err := prepare(ctx, s.env, s.set)
		if err != nil {
			return image{}, err
		}
		s.engine, s.group.image = e, &found
	}
	s.engine, _ = s.env.Containers.(*Engine)
	var err error
	if s.set.Model != "" {
		s.files, err = s.engine.modelFiles(ctx, s.set)
	}
	return *s.group.image, err
}

// startContainer makes the network, and starts the container.
func (s *server) startContainer(ctx context.Context, of image) error {
	var err error
	if s.network, err = s.engine.addNetwork(ctx, s.name); err != nil {
		return err
	}
	o := s.confined(of, s.files)
	o.Name = s.network
	o.Config.Labels[labelInstance] = strconv.Itoa(s.env.Instance)
	o.HostConfig.NetworkMode = container.NetworkMode(s.network)
	o.HostConfig.Ulimits = append(o.HostConfig.Ulimits, fileSizeLimit(s.set.Tmp))
	o.NetworkingConfig = &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{s.network: {}}}
	out, log := newServerLogs(s.log.With("model", s.name))
	err = s.start(ctx, o, io.MultiWriter(&s.logTail, out), io.MultiWriter(&s.logTail, log))
	if err != nil && ctx.Err() == nil {
		err = unavailable(err)
	}
	return err
}

// connect waits until the server in the container is ready.
func (s *server) connect(ctx context.Context) (*stream.Model, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := errors.New("the container has ended")
	go func() {
		select {
		case <-s.gone:
			cancel(ended)
		case <-ctx.Done():
		}
	}()
	p, err := s.find(ctx)
	var dial func(ctx context.Context, network, to string) (net.Conn, error)
	if err == nil {
		dial, s.leave, err = dialTo(p)
	}
	if err != nil { // perhaps because the container has ended
		if gone := s.goneError(ctx); gone != nil {
			cancel(ended)
		}
	}
	var m *stream.Model
	if err == nil {
		v := &s.set.Serve
		s.remote, m, err = remote.Connect(ctx, s.env, remote.Server{
			Address: v.Protocol + "://" + net.JoinHostPort(p.ip.String(), strconv.Itoa(v.Port)),
			Model:   v.Model, MaxMessage: v.MaxMessage, Health: v.Health, Dial: dial, Section: "container.serve",
			Unready: func(err error) { s.group.set(s, err) }, Gone: s.goneError,
		})
	}
	own := (*stream.Error)(nil)
	switch {
	case err == nil:
		return m, nil
	case errors.Is(context.Cause(ctx), ended):
		return nil, s.exitError("container.image", " before its server was ready")
	case errors.As(err, &own):
		field := own.Field
		if field == "container.serve" {
			field = "container.serve.port"
		}
		return nil, stream.Errorf(own.Code, field, "%s", s.logTail.explain(own.Msg))
	}
	return nil, err
}

// exitError returns the error of a container that has ended by itself.
func (s *server) exitError(field, when string) error {
	s.awaitLog()
	reason := fmt.Sprintf("the container engine fails: %v", s.err)
	if s.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		reason = s.exitReason(ctx, s.status) + when
	}
	return stream.Errorf(stream.Unavailable, field, "%s", s.logTail.explain(reason))
}

// goneError returns the error of a request whose connection broke: the end of the container, or nil.
func (s *server) goneError(ctx context.Context) error {
	t := time.NewTimer(goneWait)
	defer t.Stop()
	select {
	case <-s.gone:
		return s.exitError("", "")
	case <-ctx.Done():
	case <-t.C:
	}
	return nil
}

// watch asks for another worker when the container has ended by itself.
func (s *server) watch() {
	defer close(s.watched)
	select {
	case <-s.stopping:
		return
	case <-s.gone:
	}
	err := s.exitError("", "")
	s.log.Error("the container of a model has ended", "model", s.name, "error", err)
	s.env.Replace(err)
}

// Run implements workers.Worker.
func (s *server) Run(ctx context.Context, b *batching.Batch) error {
	// The wait is a part of the run.
	ctx, cancel := context.WithTimeout(ctx, s.env.Limit-min(s.env.Limit/10, time.Second))
	defer cancel()
	if err := s.awaitReady(ctx, b); err != nil {
		return fmt.Errorf("%w: %w", err, workers.ErrNotStarted)
	}
	select {
	case <-s.gone:
		return fmt.Errorf("%w: %w", s.exitError("", ""), workers.ErrNotStarted)
	default:
	}
	err := s.remote.Run(ctx, b)
	select {
	case <-s.gone:
		return errors.Join(err, fmt.Errorf("%w: %w", s.exitError("", ""), workers.ErrBroken))
	default:
	}
	return err
}

// awaitReady waits while the server inside is not ready and the server of another instance is: an instance that fails
// its requests at once would take the requests of the others. The error is why the worker is replaced. awaitReady ends
// after half of limits.run, and at the first deadline of the requests.
func (s *server) awaitReady(ctx context.Context, b *batching.Batch) error {
	changed, unfit := s.group.awaited(s)
	if changed == nil {
		return unfit
	}
	limit := s.env.Limit / 2
	for _, q := range b.Requests {
		if q.Deadline != 0 {
			limit = min(limit, q.Deadline.Sub(stream.Now()))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ; changed != nil; changed, unfit = s.group.awaited(s) {
		select {
		case <-changed:
		case <-s.gone:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return unfit
}

// Destroy implements workers.Worker: the container gets SIGTERM, and SIGKILL after the grace.
func (s *server) Destroy() {
	grace := *s.set.Grace
	if s.env.StopBy != nil {
		grace = min(grace, max(s.env.StopBy().Sub(stream.Now())-stopMargin, leastGrace))
	}
	s.end(context.Background(), grace)
}

// end undoes Init, or the begin of a failed Init.
func (s *server) end(ctx context.Context, grace time.Duration) {
	close(s.stopping)
	if s.watched != nil {
		<-s.watched
	}
	s.group.remove(s)
	if s.remote != nil {
		s.remote.Destroy()
	}
	if s.gone != nil {
		select {
		case <-s.gone:
		default:
			s.terminate(ctx, grace)
		}
	}
	s.close(ctx)
	if s.leave != nil {
		s.leave()
	}
	if s.network != "" {
		s.closeNetwork(ctx)
	}
	if s.files != nil {
		s.engine.releaseModel(s.files)
	}
}

// add adds a ready instance. Its model must be that of the other instances.
func (g *servers) add(s *server, m *stream.Model) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.model == nil {
		own := *m
		g.model = &own
	}
	if !reflect.DeepEqual(g.model.Inputs, m.Inputs) || !reflect.DeepEqual(g.model.Outputs, m.Outputs) ||
		g.model.MaxBatch != m.MaxBatch {
		return stream.Errorf(stream.Conflict, "container.image",
			"has a server whose model has other inputs or outputs than at the load of model %s: load it again", s.name)
	}
	g.down[s] = nil
	g.report()
	return nil
}

// set records why the server of a running container is not ready; nil = ready. A server that stays so is replaced with
// its container.
func (g *servers) set(s *server, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, has := g.down[s]; !has {
		return
	}
	g.down[s] = why
	switch stop := g.late[s]; {
	case why == nil && stop != nil:
		stop()
		delete(g.late, s)
	case why != nil && stop == nil:
		g.late[s] = time.AfterFunc(s.set.Serve.Unready, func() {
			err := stream.Errorf(stream.Unavailable, "container.serve.unready",
				"the server in the container was not ready for %v: %w", s.set.Serve.Unready, why)
			g.replace(s, err)
		}).Stop
	}
	g.report()
}

// replace asks for another worker in place of s.
func (g *servers) replace(s *server, why error) {
	g.mu.Lock()
	late := g.down[s] != nil // nil = ready meanwhile, or removed
	if late {
		g.unfit[s] = why
		g.report()
	}
	g.mu.Unlock()
	if late {
		s.log.Error("the container of a model is replaced", "model", s.name, "error", why)
		s.env.Replace(why)
	}
}

// awaited returns a channel that is closed at the next change, or nil unless s is not ready and another instance is.
// The error is why s is being replaced.
func (g *servers) awaited(s *server) (<-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down[s] == nil || g.unfit[s] != nil {
		return nil, g.unfit[s]
	}
	for _, err := range g.down {
		if err == nil {
			return g.changed, nil
		}
	}
	return nil, nil
}

// remove removes an instance.
func (g *servers) remove(s *server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if stop := g.late[s]; stop != nil {
		stop()
	}
	delete(g.late, s)
	delete(g.down, s)
	delete(g.unfit, s)
	g.report()
}

// report makes the model unready when no instance is ready. The group counts the instances without a container.
func (g *servers) report() {
	close(g.changed)
	g.changed = make(chan struct{})
	var why error
	for _, err := range g.down {
		if err == nil {
			g.unready(nil)
			return
		}
		why = cmp.Or(why, err)
	}
	g.unready(why)
}
