package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/backoff"
	"millrace/internal/records"
	"millrace/internal/wire"
	"millrace/stream"
)

// The client must detect a half-open connection while the server still keeps the session, by default for 30 s.
const (
	pingInterval     = 5 * time.Second
	idleTimeout      = 12 * time.Second // without a byte read or written
	handshakeTimeout = 10 * time.Second
	closeTimeout     = 2 * time.Second
	defaultGiveUp    = 2 * time.Minute
	maxBackoff       = 5 * time.Second
	bufferSize       = 32 << 10
)

// timeoutConn is a connection whose reads and writes fail after idleTimeout without a byte read or written.
type timeoutConn struct {
	net.Conn
	mu    sync.Mutex
	final bool // the deadline is not extended any more
}

// Read implements net.Conn.
func (c *timeoutConn) Read(p []byte) (int, error) {
	c.extend(c.SetReadDeadline)
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *timeoutConn) Write(p []byte) (int, error) {
	c.extend(c.SetWriteDeadline)
	return c.Conn.Write(p)
}

func (c *timeoutConn) extend(setDeadline func(time.Time) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.final {
		_ = setDeadline(time.Now().Add(idleTimeout))
	}
}

// endWithin makes reads and writes fail after d.
func (c *timeoutConn) endWithin(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.final = true
	_ = c.SetDeadline(time.Now().Add(d))
}

// conn is one connection of a session.
type conn struct {
	*websocket.Conn
	raw   *timeoutConn
	stop  chan struct{} // ends the pings
	pings sync.WaitGroup
}

// connect dials a connection and reads the server's first message.
func (s *Session) connect() (*conn, *wire.Ready, error) {
	c := &conn{stop: make(chan struct{})}
	d := &websocket.Dialer{
		Subprotocols: []string{wire.Subprotocol}, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		HandshakeTimeout: handshakeTimeout,
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			raw, err := s.c.dialTCP(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			c.raw = &timeoutConn{Conn: raw}
			return c.raw, nil
		},
	}
	d.NetDialTLSContext = records.Dialer(d.NetDialContext, s.c.tls)
	if s.opts.Ticket != nil {
		ticket, err := s.opts.Ticket(s.ctx)
		if err != nil {
			return nil, nil, err
		}
		d.Subprotocols = append(d.Subprotocols, wire.TicketPrefix+ticket)
	}
	ws, err := s.c.dial(s.ctx, d, s.c.url(nil, "v2", "stream"), s.opts.Header.Clone())
	if err != nil {
		return nil, nil, err
	}
	c.Conn = ws
	if ws.Subprotocol() != wire.Subprotocol {
		_ = ws.Close()
		return nil, nil, stream.Errorf(stream.Unsupported, "", "the server at %s does not speak %s", s.c.at,
			wire.Subprotocol)
	}
	ws.SetReadLimit(maxReply)
	m, err := s.readHandshake(c)
	if err != nil {
		_ = ws.Close()
		return nil, nil, err
	}
	ready, ok := m.(*wire.Ready)
	if !ok {
		_ = ws.Close()
		return nil, nil, stream.Errorf(stream.Internal, "", "the server's first message is %s: want ready", m.Type())
	}
	return c, ready, nil
}

// dial opens a WebSocket connection. dial may add to header. When the server refuses the connection, the error has
// the server's code.
func (c *Client) dial(ctx context.Context, d *websocket.Dialer, u *url.URL,
	header http.Header) (*websocket.Conn, error) {
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	if header == nil {
		header = http.Header{}
	}
	c.authorize(header)
	ws, resp, err := d.DialContext(ctx, u.String(), header)
	if err != nil {
		if resp != nil && ctx.Err() == nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			return nil, replyError(resp.StatusCode, resp.Header, body)
		}
		return nil, c.unreachable(ctx, err)
	}
	return ws, nil
}

// readHandshake reads one message of a handshake.
func (s *Session) readHandshake(c *conn) (wire.Message, error) {
	stop := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	defer stop()
	_, text, err := c.ReadMessage()
	if err != nil {
		return nil, connectionLost(err)
	}
	m, err := wire.ParseControl(text, wire.Server)
	if err != nil {
		return nil, badReply(err)
	}
	return m, nil
}

// resume dials another connection and resumes the session over the new connection.
func (s *Session) resume() (*conn, ConnectionState, error) {
	c, ready, err := s.connect()
	if err != nil {
		return nil, "", err
	}
	text, err := wire.AppendControl(nil, s.attach())
	if err == nil {
		err = c.WriteMessage(websocket.TextMessage, text)
	}
	if err != nil {
		_ = c.Close()
		return nil, "", connectionLost(err)
	}
	m, err := s.readHandshake(c)
	if err != nil { // the next attempt sends the same token
		_ = c.Close()
		return nil, "", err
	}
	switch m := m.(type) {
	case *wire.Attached:
		s.resumeStreams(c, m)
		return c, ConnectionResumed, nil
	case *wire.ErrorMessage:
		if m.Fatal {
			_ = c.Close()
			return nil, "", errorOf(m)
		}
		s.reopenStreams(c, ready)
		return c, ConnectionReopened, nil
	}
	_ = c.Close()
	return nil, "", stream.Errorf(stream.Internal, "", "the server answers attach with %s", m.Type())
}

// reconnect tries to resume until success, a permanent error, or the end of GiveUp. Between attempts, reconnect waits
// with a back-off, at least as long as requested by the server.
func (s *Session) reconnect(lost error) (*conn, ConnectionState, error) {
	giveUp := s.opts.GiveUp
	if giveUp == 0 {
		giveUp = defaultGiveUp
	}
	until := time.Now().Add(giveUp)
	waits := backoff.Backoff{Max: maxBackoff}
	for err := lost; ; {
		wait := max(waits.Next(rand.Float64()), RetryAfter(err))
		if time.Now().After(until) {
			return nil, "", stream.Errorf(stream.Unavailable, "",
				"the connection was lost, and could not be restored within %v: %w", max(giveUp, 0), err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return nil, "", context.Cause(s.ctx)
		}
		var (
			c     *conn
			state ConnectionState
		)
		if c, state, err = s.resume(); err == nil {
			return c, state, nil
		}
		if s.ctx.Err() != nil || !isTemporary(err) {
			return nil, "", err
		}
	}
}

// isTemporary reports whether another attempt may succeed: the server is unreachable or
// overloaded, but has not refused this client.
func isTemporary(err error) bool {
	switch stream.CodeOf(err) {
	case stream.Unavailable, stream.Overloaded, stream.Timeout, stream.Draining:
		return true
	}
	return false
}

// ping keeps the connection active for the server, for the network, and for timeoutConn, which reads the pongs.
func (c *conn) ping() {
	defer c.pings.Done()
	t := time.NewTicker(pingInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = c.WriteControl(websocket.PingMessage, nil, time.Now().Add(idleTimeout))
		case <-c.stop:
			return
		}
	}
}

// sendClose starts the closing handshake, and bounds the handshake by closeTimeout.
func (c *conn) sendClose() {
	msg := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = c.WriteControl(websocket.CloseMessage, msg, time.Now().Add(closeTimeout))
	c.raw.endWithin(closeTimeout)
}

// read reads until the connection ends, and returns the reason. lost is true when the
// session may be resumed over another connection.
func (s *Session) read(c *conn) (lost bool, err error) {
	c.pings.Add(1)
	go c.ping()
	defer func() {
		close(c.stop)
		_ = c.Close()
		c.pings.Wait()
	}()
	var buf bytes.Buffer
	for {
		kind, r, err := c.NextReader()
		if err == nil {
			buf.Reset()
			_, err = buf.ReadFrom(r)
		}
		if err != nil {
			return s.connectionEnd(err)
		}
		if err := s.message(kind, buf.Bytes()); err != nil {
			return false, err
		}
	}
}

// connectionEnd reports whether the session may be resumed after its connection ended with err, and returns the
// reason of the end.
func (s *Session) connectionEnd(err error) (lost bool, reason error) {
	s.mu.Lock()
	serverErr, closed := s.serverErr, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return false, nil
	case serverErr != nil:
		return false, serverErr
	}
	var ce *websocket.CloseError
	if errors.As(err, &ce) && ce.Code != websocket.CloseAbnormalClosure && ce.Code != websocket.CloseServiceRestart {
		return false, closeError(ce)
	}
	return true, connectionLost(err)
}

func connectionLost(err error) error {
	return stream.Errorf(stream.Unavailable, "", "the connection to the server was lost: %w", err)
}

// closeCodes maps WebSocket close codes to error codes; other close codes are internal errors.
var closeCodes = map[wire.CloseCode]stream.Code{
	wire.CloseNormal: stream.Unavailable, wire.CloseGoingAway: stream.Draining, wire.CloseDraining: stream.Draining,
	wire.ClosePolicy: stream.InvalidArgument, wire.CloseMalformed: stream.InvalidArgument,
	wire.CloseTooLarge:   stream.TooLarge,
	wire.CloseOverloaded: stream.Overloaded, wire.CloseTooMany: stream.Overloaded,
	wire.CloseUnauthenticated: stream.Unauthenticated,
	wire.CloseNotFound:        stream.NotFound, wire.CloseIdle: stream.Timeout, wire.CloseTakenOver: stream.Conflict,
}

// closeError returns the error of a session closed by the server.
func closeError(e *websocket.CloseError) error {
	code, ok := closeCodes[wire.CloseCode(e.Code)]
	if !ok {
		code = stream.Internal
	}
	if e.Code == websocket.CloseNormalClosure {
		return stream.Errorf(code, "", "the server ended the session")
	}
	return stream.Errorf(code, "", "the server ended the session: %w", e)
}
