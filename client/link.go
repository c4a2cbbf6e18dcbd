package client

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/backoff"
	"millrace/internal/wire"
	"millrace/stream"
)

// The life of a session's connection. One that is half dead has to be noticed
// while the session can still be resumed, which is 30 s by default.
const (
	pingEvery = 5 * time.Second
	quietTime = 12 * time.Second // nothing was read, or could be written
	giveUp    = 2 * time.Minute
)

// lively is a connection that fails when nothing moves on it for quietTime.
type lively struct {
	net.Conn
	mu   sync.Mutex
	last bool // the deadlines are final
}

// Read implements net.Conn.
func (l *lively) Read(p []byte) (int, error) {
	l.extend(l.SetReadDeadline)
	return l.Conn.Read(p)
}

// Write implements net.Conn.
func (l *lively) Write(p []byte) (int, error) {
	l.extend(l.SetWriteDeadline)
	return l.Conn.Write(p)
}

func (l *lively) extend(set func(time.Time) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last {
		_ = set(time.Now().Add(quietTime))
	}
}

// end leaves the connection d to come to its end.
func (l *lively) end(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = true
	_ = l.SetDeadline(time.Now().Add(d))
}

// link is one connection of a session.
type link struct {
	*websocket.Conn
	raw  *lively
	stop chan struct{} // ends the pings
	over sync.WaitGroup
}

// connect makes a connection and waits for the server's first words.
func (s *Session) connect() (*link, *wire.Ready, error) {
	l := &link{stop: make(chan struct{})}
	d := &websocket.Dialer{
		Subprotocols: []string{wire.Subprotocol},
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var nd net.Dialer
			conn, err := nd.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			l.raw = &lively{Conn: conn}
			return l.raw, nil
		},
	}
	if s.opts.Ticket != nil {
		ticket, err := s.opts.Ticket(s.ctx)
		if err != nil {
			return nil, nil, err
		}
		d.Subprotocols = append(d.Subprotocols, wire.TicketPrefix+ticket)
	}
	var header http.Header
	if s.opts.Header != nil {
		header = s.opts.Header.Clone()
	}
	conn, err := s.c.dial(s.ctx, d, s.c.url(nil, "v2", "stream"), header)
	if err != nil {
		return nil, nil, err
	}
	l.Conn = conn
	if conn.Subprotocol() != wire.Subprotocol {
		_ = conn.Close()
		return nil, nil, stream.Errorf(stream.Unsupported, "", "the server at %s does not speak %s", s.c.base.Host, wire.Subprotocol)
	}
	conn.SetReadLimit(maxReply)
	m, err := s.answer(l)
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	ready, ok := m.(*wire.Ready)
	if !ok {
		_ = conn.Close()
		return nil, nil, stream.Errorf(stream.Internal, "", "the server's first message is %s: want ready", m.Type())
	}
	return l, ready, nil
}

// answer reads one message of a handshake.
func (s *Session) answer(l *link) (wire.Message, error) {
	stop := context.AfterFunc(s.ctx, func() { _ = l.Close() })
	defer stop()
	_, text, err := l.ReadMessage()
	if err != nil {
		return nil, stream.Errorf(stream.Unavailable, "", "the connection to the server broke: %w", err)
	}
	m, err := wire.ParseControl(text, wire.Server)
	if err != nil {
		return nil, notOurs(err)
	}
	return m, nil
}

// resume makes another connection and has the session go on over it.
func (s *Session) resume() (*link, LinkState, error) {
	l, ready, err := s.connect()
	if err != nil {
		return nil, "", err
	}
	text, err := wire.AppendControl(nil, s.attach())
	if err == nil {
		err = l.WriteMessage(websocket.TextMessage, text)
	}
	var m wire.Message
	if err == nil {
		// Without an answer the same token is tried again.
		m, err = s.answer(l)
	}
	if err != nil {
		_ = l.Close()
		return nil, "", stream.Errorf(stream.Unavailable, "", "the connection to the server broke: %w", err)
	}
	switch m := m.(type) {
	case *wire.Attached:
		s.goOn(l, m)
		return l, LinkResumed, nil
	case *wire.ErrorMessage:
		if m.Fatal {
			_ = l.Close()
			return nil, "", errorOf(m)
		}
		s.startOver(l, ready)
		return l, LinkReopened, nil
	}
	_ = l.Close()
	return nil, "", stream.Errorf(stream.Internal, "", "the server answers attach with %s", m.Type())
}

// reconnect tries until there is a connection, or no hope.
func (s *Session) reconnect(lost error) (*link, LinkState, error) {
	patience := s.opts.GiveUp
	if patience == 0 {
		patience = giveUp
	}
	until := time.Now().Add(patience)
	backoff := backoff.Backoff{Max: 5 * time.Second}
	for err := lost; ; {
		wait := time.NewTimer(backoff.Next(rand.Float64()))
		if time.Now().After(until) {
			wait.Stop()
			return nil, "", stream.Errorf(stream.Unavailable, "", "the connection was lost, and there was no other within %v: %w", max(patience, 0), err)
		}
		select {
		case <-wait.C:
		case <-s.ctx.Done():
			wait.Stop()
			return nil, "", context.Cause(s.ctx)
		}
		var (
			l     *link
			state LinkState
		)
		if l, state, err = s.resume(); err == nil {
			return l, state, nil
		}
		if s.ctx.Err() != nil || !worthRetrying(err) {
			return nil, "", err
		}
	}
}

// worthRetrying tells a server that is away from one that does not want us.
func worthRetrying(err error) bool {
	switch stream.CodeOf(err) {
	case stream.Unavailable, stream.Overloaded, stream.Timeout, stream.Draining:
		return true
	}
	return false
}

// keep shows the server and the network that somebody is here, and makes them
// show the same.
func (l *link) keep() {
	defer l.over.Done()
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = l.WriteControl(websocket.PingMessage, nil, time.Now().Add(quietTime))
		case <-l.stop:
			return
		}
	}
}

// read reads until the connection ends, and says why it did: lost is set when
// another one may be tried.
func (s *Session) read(l *link) (lost bool, err error) {
	l.over.Add(1)
	go l.keep()
	defer func() {
		close(l.stop)
		_ = l.Close()
		l.over.Wait()
	}()
	var buf bytes.Buffer
	for {
		kind, r, err := l.NextReader()
		if err == nil {
			buf.Reset()
			_, err = buf.ReadFrom(r)
		}
		if err != nil {
			return s.ended(err)
		}
		if err := s.message(kind, buf.Bytes()); err != nil {
			return false, err
		}
	}
}

// ended says what the end of a connection means to the session.
func (s *Session) ended(err error) (lost bool, why error) {
	s.mu.Lock()
	told, closed := s.told, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return false, nil
	case told != nil:
		return false, told
	}
	var ce *websocket.CloseError
	if errors.As(err, &ce) && ce.Code != websocket.CloseAbnormalClosure && ce.Code != websocket.CloseServiceRestart {
		if why = brokenBy(err); why == nil {
			why = stream.Errorf(stream.Unavailable, "", "the server ended the session")
		}
		return false, why
	}
	return true, brokenBy(err)
}
