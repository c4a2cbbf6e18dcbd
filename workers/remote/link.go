package remote

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/ctxio"
	"millrace/internal/routines"
	"millrace/internal/secret"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// client speaks one protocol with another server. Its methods are safe for concurrent use; errors are errUnreachable,
// the errors of httpError and grpcError, and ctx's.
type client interface {
	describe(ctx context.Context) (*description, error)
	ready(ctx context.Context) error
	infer(ctx context.Context, c *call) error
	close()
}

// call is one inference request to the upstream server. The memory of the messages is charged to the budget until
// free.
type call struct {
	inputs  []stream.Tensor
	params  stream.Params
	outputs []stream.Tensor
	mem     *buf.Pool
	charged int64
}

func (c *call) charge(n int64) error {
	if err := c.mem.Charge(n); err != nil {
		return err
	}
	c.charged += n
	return nil
}

func (c *call) free() { c.mem.Refund(c.charged) }

// Bounds of the time of a health check and between two checks of a server that is not ready.
const (
	questionLimit = 5 * time.Second
	firstWait     = 100 * time.Millisecond
	longestWait   = 5 * time.Second
)

// link is the connection to the upstream server, shared by the instances of a group, and the watch of the upstream
// server's health. Its methods are safe for concurrent use.
type link struct {
	name    string // of the model here, for messages
	model   string // on the upstream server
	set     upstream
	at      address
	log     *slog.Logger
	names   names
	allow   func(netip.Addr) error // nil = every address
	dialer  dialer                 // nil = the machine's network
	gone    func(context.Context) error
	unready func(error)
	down    atomic.Pointer[error] // why the upstream model is not ready; nil = ready
	poke    chan struct{}         // the watch asks at once
	running atomic.Int32          // requests under way
	busy    time.Duration         // longest time of a server with requests under way without an answer
	alive   atomic.Int64          // stream.Instant of the last answer

	mu     sync.Mutex
	users  int
	client client
	about  *description
	end    func() // of the watch
}

func newLink(env *workers.Env) (*link, error) {
	set := env.Settings.(*settings).Upstream
	l := &link{name: env.Name, model: set.Model, set: set, log: env.Log, unready: env.Unready,
		names: names{section: "upstream", connect: "upstream.connect"}, poke: make(chan struct{}, 1)}
	if l.model == "" {
		l.model = env.Name
	}
	field, at := "source", env.Source
	if set.Address != "" {
		field, at = "upstream.address", set.Address
	}
	if at == "" {
		return nil, stream.Errorf(stream.InvalidArgument, "upstream.address",
			"is missing: name the other server, such as grpc://HOST:8001")
	}
	var err error
	if l.at, err = parseAddress(field, at); err != nil {
		return nil, err
	}
	if _, requested := env.Requested["upstream.address"]; requested {
		if set.Token != "" || set.TokenEnv != "" {
			return nil, stream.Errorf(stream.PermissionDenied, "upstream.address",
				"cannot be set by a request: the model's configuration has a token, which is for its own server")
		}
		l.allow = env.Public
	}
	if set.Token != "" || set.TokenEnv != "" {
		if _, err := l.token(); err != nil {
			return nil, err
		}
		if !l.at.encrypted() {
			l.log.Warn("the token of a remote model is sent without encryption: use grpcs:// or https://", "model",
				l.name, "server", l.at.String())
		}
	}
	return l, nil
}

// token returns the bearer token; "" = none.
func (l *link) token() (string, error) {
	if name := l.set.TokenEnv; name != "" {
		text := os.Getenv(name)
		if text == "" {
			return "", stream.Errorf(stream.InvalidArgument, "upstream.token_env",
				"names the variable %s, which is empty or not set", name)
		}
		return text, nil
	}
	text, err := secret.Read(l.set.Token)
	if err != nil {
		return "", stream.Errorf(stream.InvalidArgument, "upstream.token", "%w", err)
	}
	return text, nil
}

// dial opens a connection to an allowed address.
func (l *link) dial(ctx context.Context, network, to string) (net.Conn, error) {
	if l.dialer != nil {
		ctx, cancel := context.WithTimeout(ctx, questionLimit)
		defer cancel()
		return l.dialer(ctx, network, to)
	}
	d := net.Dialer{Timeout: questionLimit, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second,
		Interval: 2 * time.Second, Count: 3}}
	d.Control = func(_, to string, c syscall.RawConn) error {
		limitUnanswered(c)
		if l.allow == nil {
			return nil
		}
		return checkDial(l.allow, to)
	}
	return d.DialContext(ctx, network, to)
}

// open adds a user of the link; the first user connects, waits until the upstream model is ready, and reads the
// upstream model's description. release removes the user.
func (l *link) open(ctx context.Context) (*description, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users > 0 {
		l.users++
		return l.about, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.set.Connect)
	defer cancel()
	about, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	if l.about != nil && !reflect.DeepEqual(about, l.about) {
		l.client.close()
		return nil, l.changed()
	}
	l.about, l.users = about, 1
	l.alive.Store(int64(stream.Now()))
	group := routines.New(func(name string, value any, stack []byte) {
		l.log.Error("a goroutine panicked", "goroutine", name, "panic", value, "stack", string(stack))
	})
	watching, stop := context.WithCancel(context.Background())
	group.Go("watch of a remote model", func() { l.watch(watching) }, nil)
	l.end = func() { stop(); group.Stop(); group.Wait() }
	return about, nil
}

func (l *link) changed() error {
	return stream.Errorf(stream.Conflict, "",
		"the other server's model has other inputs or outputs than when model %s was loaded: load it again", l.name)
}

// connect makes the client and describes the upstream model. connect tries again until ctx ends while the server is
// not reachable or the model is not ready.
func (l *link) connect(ctx context.Context) (*description, error) {
	waits := backoff.Backoff{Min: firstWait, Max: longestWait}
	for {
		about, err := l.tryConnect(ctx)
		if err == nil {
			return about, nil
		}
		if retry := l.mayPass(err); retry && ctxio.Sleep(ctx, waits.Next(rand.Float64())) {
			continue
		} else if retry {
			if isNotFound(err) {
				return nil, l.loadError(err)
			}
			if other := l.otherProtocol(ctx); other != nil {
				return nil, other
			}
			return nil, stream.Errorf(stream.Unavailable, "upstream", "%s was not ready within %v (%s): %w", l.at,
				l.set.Connect, l.names.connect, l.reason(err))
		}
		return nil, l.loadError(err)
	}
}

func (l *link) tryConnect(ctx context.Context) (about *description, err error) {
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	at := l.at
	if at.scheme == "" {
		if at.scheme, err = l.detect(ctx); err != nil {
			return nil, err
		}
	}
	if at.http() {
		l.client, err = newREST(l, at)
	} else {
		l.client, err = newGRPC(l, at)
	}
	if err != nil {
		return nil, err
	}
	if err = l.client.ready(ctx); err == nil {
		about, err = l.client.describe(ctx)
	}
	if err != nil {
		l.client.close()
	}
	return about, err
}

// isNotFound reports whether the upstream server says that it does not have the model.
func isNotFound(err error) bool {
	var up *upstreamError
	return errors.As(err, &up) && up.code == stream.NotFound
}

// mayPass reports whether an error may pass when the upstream server starts or has loaded the model. A server started
// by another kind may answer before the server knows its models.
func (l *link) mayPass(err error) bool {
	own := (*stream.Error)(nil)
	var up *upstreamError
	switch {
	case errors.As(err, &own):
		return false
	case errors.As(err, &up):
		return l.dialer != nil && up.code == stream.NotFound || up.code == stream.Unavailable ||
			up.code == stream.Overloaded || up.code == stream.Draining || up.code == stream.Timeout
	}
	return true
}

// loadError returns the error of a load for an error of the upstream server. The caller may load models, so the error
// names the address.
func (l *link) loadError(err error) error {
	var up *upstreamError
	if !errors.As(err, &up) {
		return err
	}
	switch up.code {
	case stream.Unauthenticated, stream.PermissionDenied:
		if l.dialer != nil {
			return stream.Errorf(stream.Unsupported, "upstream", "%s wants credentials, and gets none: %.512s", l.at,
				up.text)
		}
		return stream.Errorf(stream.PermissionDenied, "upstream.token", "%s refuses the credentials: %.512s", l.at,
			up.text)
	case stream.NotFound:
		return stream.Errorf(stream.NotFound, "upstream.model", "%s has no model %q: %.512s", l.at, l.model, up.text)
	}
	return stream.Errorf(stream.Unavailable, "upstream", "%s: %.512s", l.at, up.text)
}

// reason returns the text about an error of a health check.
func (l *link) reason(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("it does not answer")
	}
	return err
}

// release removes a user of the link; the last release closes the connection.
func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	l.end()
	l.client.close()
}

// lost records that a request could not reach the upstream server: the model is not ready until the watch finds the
// model ready again.
func (l *link) lost(err error) {
	l.setDown(err)
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// setDown records why the upstream model is not ready, nil = ready.
func (l *link) setDown(err error) {
	was := l.down.Load()
	switch {
	case err == nil && was != nil:
		l.down.Store(nil)
		l.unready(nil)
		l.log.Info("a remote model is ready again", "model", l.name, "server", l.at.String())
	case err != nil && (was == nil || l.clientError(*was).Error() != l.clientError(err).Error()) &&
		l.down.CompareAndSwap(was, &err):
		l.unready(l.clientError(err))
		l.log.Warn("a remote model is not ready: its requests fail until it is", "model", l.name, "server",
			l.at.String(), "error", l.reason(err))
	}
}

// watch checks the readiness of the upstream model, until ctx ends.
func (l *link) watch(ctx context.Context) {
	waits := backoff.Backoff{Min: firstWait, Max: longestWait}
	wait := *l.set.Health
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-l.poke:
			t.Stop()
		}
		err := l.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if l.dialer != nil && l.running.Load() > 0 && errors.Is(err, context.DeadlineExceeded) &&
			stream.Now().Sub(stream.Instant(l.alive.Load())) < l.busy {
			wait = *l.set.Health // a server with one thread may not answer during a request
			continue
		}
		if err == nil {
			l.alive.Store(int64(stream.Now()))
		}
		l.setDown(err)
		if wait = *l.set.Health; err != nil {
			wait = waits.Next(rand.Float64())
		} else {
			waits.Reset()
		}
	}
}

// ask returns why the upstream model is not ready, or nil. A model that becomes ready again must match the old
// description.
func (l *link) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	err := l.client.ready(ctx)
	if err != nil || l.down.Load() == nil {
		return err
	}
	about, err := l.client.describe(ctx)
	if err == nil && !reflect.DeepEqual(about, l.about) {
		err = l.changed()
	}
	return err
}

// infer sends one request. Errors are meant for clients, or wrap buf.ErrBudget.
func (l *link) infer(ctx context.Context, c *call) error {
	if why := l.down.Load(); why != nil {
		return l.clientError(*why)
	}
	size := int64(0)
	for _, t := range c.inputs {
		size += int64(len(t.Data))
	}
	if size > l.set.MaxMessage {
		return stream.Errorf(stream.TooLarge, l.names.section+".max_message",
			"allows %d bytes, and the batch has %d: send less at once, lower batching.max_size, or raise the setting",
			l.set.MaxMessage, size)
	}
	l.running.Add(1)
	err := l.client.infer(ctx, c)
	l.running.Add(-1)
	if up := (*upstreamError)(nil); err == nil || errors.As(err, &up) && up.code != stream.Timeout {
		l.alive.Store(int64(stream.Now()))
	}
	switch {
	case err == nil || errors.Is(err, buf.ErrBudget):
		return err
	case ctx.Err() != nil:
		return l.clientError(context.Cause(ctx))
	case errors.Is(err, errUnreachable):
		l.lost(err)
		if l.gone != nil {
			if why := l.gone(ctx); why != nil {
				return why
			}
		}
	}
	return l.clientError(err)
}

// withTimeout returns the parameters of a request with the rest of the deadline, in microseconds.
func withTimeout(ctx context.Context, params stream.Params) stream.Params {
	end, ok := ctx.Deadline()
	if !ok {
		return params
	}
	out := maps.Clone(params)
	if out == nil {
		out = stream.Params{}
	}
	out["timeout"] = max(time.Until(end).Microseconds(), 1)
	return out
}
