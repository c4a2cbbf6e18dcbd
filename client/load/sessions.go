package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/client"
	"millrace/stream"
)

// PerSession is how many streams share a connection of Sessions.
const PerSession = 100

// Sessions is the target at a server's millrace.v1 sessions: PerSession streams
// to a connection. A connection that is lost is not made again.
type Sessions struct {
	client *client.Client
	model  string
	opts   client.StreamOptions
	header http.Header

	mu   sync.Mutex
	open map[int]*sharedSession
}

var _ Target = (*Sessions)(nil)

// NewSessions makes a target at the server at addr, as client.New takes it.
// options are those of a plain stream's query: policy, max_age_ms, deadline_ms,
// max_fps, window, codec and outputs.
func NewSessions(addr, model string, options map[string]string, header http.Header) (*Sessions, error) {
	return newSessions(addr, model, options, header, nil)
}

func newSessions(addr, model string, options map[string]string, header http.Header, config *tls.Config) (*Sessions, error) {
	c, err := client.NewTLS(addr, config)
	if err != nil {
		return nil, err
	}
	t := &Sessions{client: c, model: model, header: header, open: map[int]*sharedSession{}}
	for key, value := range options {
		if err := t.option(key, value); err != nil {
			return nil, fmt.Errorf("--option %s=%s: %w", key, value, err)
		}
	}
	return t, nil
}

func (t *Sessions) option(key, value string) (err error) {
	p := &t.opts.Policy
	ms := func(d *time.Duration) error {
		n, err := strconv.Atoi(value)
		*d = time.Duration(n) * time.Millisecond
		return err
	}
	switch key {
	case "policy":
		p.Mode = stream.Mode(value)
	case "max_age_ms":
		err = ms(&p.MaxAge)
	case "deadline_ms":
		err = ms(&p.Deadline)
	case "max_fps":
		p.MaxFPS, err = strconv.ParseFloat(value, 64)
	case "window":
		p.Window, err = strconv.Atoi(value)
	case "codec":
		t.opts.Codec = value
	case "outputs":
		t.opts.Outputs = client.Outputs(value)
	default:
		err = errors.New("is not an option of a millrace.v1 stream here")
	}
	return err
}

// sessions is the target of c, with those of more where the options do not name
// them.
func (c *Config) sessions(more map[string]string, header http.Header) (*Sessions, error) {
	maps.Copy(more, c.Options)
	addr := c.URL
	if rest, ok := strings.CutPrefix(addr, "ws"); ok {
		addr = "http" + rest
	}
	return newSessions(addr, c.Model, more, header, c.TLS)
}

// sharedSession is a session and those who use it.
type sharedSession struct {
	ready   chan struct{} // closed when it is made, or err says why not
	session *client.Session
	err     error
	users   int // under the target's mu
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

// join returns session n, which the first that asks for it makes.
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
		// It outlives ctx, which is for the opening.
		s.session, s.err = t.client.Session(context.WithoutCancel(ctx), client.SessionOptions{Header: t.header, GiveUp: -1})
		close(s.ready)
	}
	<-s.ready
	if s.err != nil {
		t.leave(n, s)
		return nil, s.err
	}
	return s, nil
}

// leave ends a session when nobody uses it any more.
func (t *Sessions) leave(n int, s *sharedSession) {
	t.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(t.open, n)
	}
	t.mu.Unlock()
	if last && s.session != nil {
		_ = s.session.Close() // its frames have told what became of them
	}
}

type sessionConn struct {
	stream *client.Stream
	ctx    context.Context // of Send
	cancel func()
	leave  func()
	ended  func(Ending)
	closed atomic.Bool
}

// Send implements Conn. A stream numbers its frames from 0 as well.
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
		e.Outcome, e.Code = stream.Failed, stream.CodeOf(r.Err)
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
	_, _ = c.stream.Close(ctx) // best effort: the session's end cuts it off
	c.leave()
	return nil
}
