package load

import (
	"context"
	"crypto/tls"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/client"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
)

// PerSession is how many streams share a connection of Sessions.
const PerSession = 100

// Sessions is a target with the protocol millrace.v1: PerSession streams share a session.
// Sessions do not reconnect.
type Sessions struct {
	client *client.Client
	model  string
	opts   client.StreamOptions
	header http.Header

	mu   sync.Mutex
	open map[int]*sharedSession
}

var _ Target = (*Sessions)(nil)

// NewSessions returns a target for the server at addr, in the form of client.New. The options are the query options
// of a plain stream: policy, max_age_ms, deadline_ms, max_fps, window, codec and outputs.
func NewSessions(addr, model string, options map[string]string, header http.Header) (*Sessions, error) {
	return newSessions(addr, model, options, header, nil)
}

func newSessions(addr, model string, options map[string]string, header http.Header,
	config *tls.Config) (*Sessions, error) {
	c, err := client.NewTLS(addr, config)
	if err != nil {
		return nil, err
	}
	t := &Sessions{client: c, model: model, header: header, open: map[int]*sharedSession{}}
	for key, value := range options {
		if err := t.option(key, value); err != nil {
			return nil, coded.Rename(err, map[string]string{key: "--option " + key + "=" + value})
		}
	}
	return t, nil
}

func (t *Sessions) option(key, value string) error {
	switch key {
	case "policy", "max_age_ms", "deadline_ms", "max_fps", "window":
		return setting.TableOf("", &t.opts.Policy).Set(key, value)
	case "codec":
		t.opts.Codec = value
	case "outputs":
		t.opts.Outputs = client.Outputs(value)
	default:
		return stream.Errorf(stream.InvalidArgument, key, "is not an option of bench with millrace.v1: want policy, "+
			"max_age_ms, deadline_ms, max_fps, window, codec or outputs")
	}
	return nil
}

// sessions returns the target of c, with the options of more that are missing in c.
func (c *Config) sessions(more map[string]string, header http.Header) (*Sessions, error) {
	maps.Copy(more, c.Options)
	addr := c.URL
	if rest, ok := strings.CutPrefix(addr, "ws"); ok {
		addr = "http" + rest
	}
	return newSessions(addr, c.Model, more, header, c.TLS)
}

// sharedSession is a session used by several streams.
type sharedSession struct {
	ready   chan struct{} // closed when session or err is set
	session *client.Session
	err     error
	users   int // guarded by Sessions.mu
}

// Open implements Target.
func (t *Sessions) Open(ctx context.Context, i int, ended func(Ending)) (Conn, error) {
	n := i / PerSession
	s, err := t.join(ctx, n)
	if err != nil {
		return nil, err
	}
	c := &sessionConn{leave: func() { t.leave(n, s) }, ended: ended}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	opts := t.opts
	opts.OnReply = c.reply
	if c.stream, err = s.session.Open(ctx, t.model, opts); err != nil {
		c.cancel()
		c.leave()
		return nil, err
	}
	return c, nil
}

// join returns session n; the first caller opens the session.
func (t *Sessions) join(ctx context.Context, n int) (*sharedSession, error) {
	t.mu.Lock()
	s, first := t.open[n], false
	if s == nil {
		s, first = &sharedSession{ready: make(chan struct{})}, true
		t.open[n] = s
	}
	s.users++
	t.mu.Unlock()
	if first {
		// ctx is for opening the stream; the session lives longer.
		s.session, s.err = t.client.Session(context.WithoutCancel(ctx),
			client.SessionOptions{Header: t.header, GiveUp: -1})
		close(s.ready)
	}
	<-s.ready
	if s.err != nil {
		t.leave(n, s)
		return nil, s.err
	}
	return s, nil
}

// leave closes a session when its last user has left.
func (t *Sessions) leave(n int, s *sharedSession) {
	t.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(t.open, n)
	}
	t.mu.Unlock()
	if last && s.session != nil {
		_ = s.session.Close() // errors of frames are in their endings
	}
}

type sessionConn struct {
	stream *client.Stream
	ctx    context.Context // canceled by Close
	cancel func()
	leave  func()
	ended  func(Ending)
	closed atomic.Bool
}

// Send implements Conn. The client's stream numbers its frames from 0, too.
func (c *sessionConn) Send(_ uint64, f *Frame) error {
	_, err := c.stream.Send(c.ctx, client.Frame{Data: f.Data})
	return err
}

func (c *sessionConn) reply(r client.Reply) {
	if c.closed.Load() {
		return
	}
	e := Ending{Seq: r.Seq, Outcome: stream.Answered, Partial: r.Partial, Batch: r.Batch}
	switch {
	case r.Lost:
		e = Ending{Lost: r.Err}
	case r.Dropped != "":
		e.Outcome, e.Reason = stream.Dropped, r.Dropped
	case r.Err != nil:
		e.Outcome, e.Err = stream.Failed, r.Err
	}
	c.ended(e)
}

// Close implements Conn.
func (c *sessionConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = c.stream.Close(ctx) // best effort: closing the session also ends the stream
	c.leave()
	return nil
}
