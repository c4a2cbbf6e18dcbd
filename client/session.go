package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// SessionOptions are the options of a session. All are optional.
type SessionOptions struct {
	// Header is sent with each handshake, for example Authorization.
	Header http.Header
	// Ticket returns a ticket. Ticket is called before each handshake, since a ticket is valid once. A source of
	// tickets is (*Client).Ticket of an authorised client. nil = no ticket is sent.
	Ticket func(ctx context.Context) (string, error)
	// GiveUp bounds the time of reconnecting after a loss of the connection; 0 = 2 minutes, negative = no
	// reconnecting.
	GiveUp time.Duration
	// OnConnection, if set, is called after a loss of the connection and after a new connection, by the goroutine
	// that calls OnReply.
	OnConnection func(ConnectionChange)
}

// ConnectionState is the kind of change of a session's connection.
type ConnectionState string

// The states.
const (
	// ConnectionLost: frames and replies wait for a new connection.
	ConnectionLost ConnectionState = "lost"
	// ConnectionResumed: the session continues; frames that did not arrive are lost.
	ConnectionResumed ConnectionState = "resumed"
	// ConnectionReopened: the server no longer had the session. The streams were opened again; all frames in flight
	// and the state of stateful models are lost.
	ConnectionReopened ConnectionState = "reopened"
)

// ConnectionChange is a change of a session's connection.
type ConnectionChange struct {
	State ConnectionState
	Err   error // the reason of ConnectionLost
}

// Session has any number of streams over one connection, with the protocol millrace.v1. After a loss of the
// connection, the session reconnects and resumes. Each sent frame still ends exactly once; unrecoverable frames end
// as lost. All methods may be called concurrently.
type Session struct {
	c             *Client
	opts          SessionOptions
	ctx           context.Context // canceled when the session must end
	cancel        context.CancelCauseFunc
	stopAfterFunc func() bool
	done          chan struct{}
	discard       chan struct{} // closed to discard unreceived replies

	write sync.Mutex // held while writing to the connection; locked before mu
	head  []byte     // of the message being written, guarded by write

	mu        sync.Mutex
	conn      *conn // nil while disconnected
	token     string
	limits    wire.Limits
	lastSID   uint32
	streams   map[uint32]*Stream
	serverErr error // why the server will close the connection
	closed    bool
	err       error

	out []Reply // used by the session's goroutine only
}

// Session starts a session. When ctx ends, at any time, the session is closed. Errors are as for Infer.
func (c *Client) Session(ctx context.Context, opts SessionOptions) (*Session, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("client: %w", context.Cause(ctx))
	}
	s := &Session{c: c, opts: opts, done: make(chan struct{}), discard: make(chan struct{}),
		streams: map[uint32]*Stream{}}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.stopAfterFunc = context.AfterFunc(ctx, func() { s.stop(fmt.Errorf("client: %w", context.Cause(ctx))) })
	conn, ready, err := s.connect()
	if err != nil {
		s.stopAfterFunc()
		s.cancel(nil)
		if ctx.Err() != nil {
			err = fmt.Errorf("client: %w", context.Cause(ctx))
		}
		return nil, err
	}
	s.mu.Lock()
	s.setReady(ready)
	s.setConn(conn)
	s.mu.Unlock()
	go s.run(conn) // Close waits for run
	return s, nil
}

// Ticket requests a ticket from the server. A ticket authorises one session within 30 s.
func (c *Client) Ticket(ctx context.Context) (string, error) {
	var m struct {
		Ticket string `json:"ticket"`
	}
	err := c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "tickets"), nil, &m)
	if err == nil && m.Ticket == "" {
		err = stream.Errorf(stream.Internal, "", "the server's reply has no ticket")
	}
	return m.Ticket, err
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns the reason of the session's end: nil before the end, and after Close.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and its streams. Frames in flight end as lost; Close waits at most 2 s for the streams'
// readers to receive these endings. Close returns when the session has ended. Close may be called again, but not from
// OnReply.
func (s *Session) Close() error {
	s.stop(nil)
	<-s.done
	return nil
}

// stop makes the session end with err.
func (s *Session) stop(err error) {
	s.mu.Lock()
	first := !s.closed
	if first {
		s.closed, s.err = true, err
	}
	conn := s.conn
	s.mu.Unlock()
	if !first {
		return
	}
	if err == nil {
		err = errClosed()
	}
	s.cancel(err)
	time.AfterFunc(closeTimeout, func() { close(s.discard) })
	if conn != nil {
		conn.sendClose()
	}
}

func errClosed() error { return stream.Errorf(stream.Canceled, "", "the session is closed") }

// setReady stores the token and the limits of a new session. s.mu is held.
func (s *Session) setReady(m *wire.Ready) { s.token, s.limits = m.ResumeToken, m.Limits }

// setConn makes c the session's connection. s.mu is held.
func (s *Session) setConn(c *conn) {
	s.conn = c
	if s.closed { // stop was called while c was dialed
		c.raw.endWithin(0)
	}
}

// run is the session's goroutine: run reads, and reconnects.
func (s *Session) run(c *conn) {
	defer close(s.done)
	for {
		lost, err := s.read(c)
		s.mu.Lock()
		s.conn = nil
		s.mu.Unlock()
		if !lost || s.opts.GiveUp < 0 {
			s.finish(err)
			return
		}
		s.notify(ConnectionChange{ConnectionLost, err})
		var state ConnectionState
		if c, state, err = s.reconnect(err); err != nil {
			s.finish(err)
			return
		}
		s.notify(ConnectionChange{State: state})
	}
}

func (s *Session) notify(c ConnectionChange) {
	if s.opts.OnConnection != nil {
		s.opts.OnConnection(c)
	}
}

// finish ends the session's remaining streams.
func (s *Session) finish(err error) {
	s.stop(err)
	s.stopAfterFunc()
	s.mu.Lock()
	reason := s.err
	all := s.inOrder()
	s.mu.Unlock()
	for _, st := range all {
		s.endStream(st, reason)
	}
}

// endError is the error of calls after the session has ended. s.mu is held.
func (s *Session) endError() error {
	if s.err != nil {
		return s.err
	}
	return errClosed()
}

// newSID returns an unused stream id. s.mu is held.
func (s *Session) newSID() uint32 {
	for {
		s.lastSID++
		if s.streams[s.lastSID] == nil {
			return s.lastSID
		}
	}
}

// sendControl writes control messages if connected. s.write is held. sendControl closes a failing connection, so that
// the reader's read fails.
func (s *Session) sendControl(c *conn, messages ...wire.Message) {
	if c == nil {
		return
	}
	for _, m := range messages {
		text, err := wire.AppendControl(nil, m)
		if err == nil { // never fails, since the fields were checked
			err = c.WriteMessage(websocket.TextMessage, text)
		}
		if err != nil {
			_ = c.Close()
			return
		}
	}
}

// sendMedia writes a media message, and closes a failing connection. s.write is held.
func (s *Session) sendMedia(c *conn, m *message) {
	if err := s.writeMedia(c, m); err != nil {
		_ = c.Close()
	}
}

func (s *Session) writeMedia(c *conn, m *message) error {
	w, err := c.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	s.head = wire.AppendHeader(s.head[:0], &m.head)
	if m.json != nil {
		s.head = wire.AppendTensorsPrefix(s.head, m.json)
	}
	if _, err = w.Write(s.head); err != nil {
		return err
	}
	for _, b := range m.body {
		if _, err = w.Write(b); err != nil {
			return err
		}
	}
	return w.Close()
}
