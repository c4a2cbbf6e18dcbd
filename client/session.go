package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// SessionOptions are what a session is made with. The zero value will do.
type SessionOptions struct {
	// Header goes with each handshake: Authorization, say.
	Header http.Header
	// Ticket is asked for a ticket before each handshake, for a ticket is good
	// once: (*Client).Ticket of a client that is let in, say. nil = none is shown.
	Ticket func(ctx context.Context) (string, error)
	// GiveUp is how long another connection is tried for when one was lost;
	// 0 = 2 minutes, negative = not at all.
	GiveUp time.Duration
	// OnLink, when set, is told when the connection was lost and when there is
	// another. It is called from the goroutine that calls OnReply.
	OnLink func(Link)
}

// LinkState says what became of a session's connection.
type LinkState string

// The states.
const (
	// LinkLost: frames wait, on both sides, for another connection.
	LinkLost LinkState = "lost"
	// LinkResumed: the session goes on; frames that did not arrive are lost.
	LinkResumed LinkState = "resumed"
	// LinkReopened: the server no longer had the session. Its streams were opened
	// anew; all frames on their way and the state of stateful models are lost.
	LinkReopened LinkState = "reopened"
)

// Link is a change of a session's connection.
type Link struct {
	State LinkState
	Err   error // why it was lost
}

// Session is any number of streams over one connection, by the protocol
// millrace.v1. When the connection is lost it makes another and goes on: each
// frame that was sent still ends exactly once, as lost if it has to be. All
// methods may be called concurrently.
type Session struct {
	c      *Client
	opts   SessionOptions
	ctx    context.Context // ends when the session is to end
	cancel context.CancelCauseFunc
	unhook func() bool
	done   chan struct{}
	hurry  chan struct{} // replies wait for nobody any more

	write sync.Mutex // one writer; taken before mu
	head  []byte     // the writer's

	mu       sync.Mutex
	link     *link // nil while there is none
	token    string
	limits   wire.Limits
	next     uint32 // sid
	channels map[uint32]*Channel
	told     error // what the server said of the connection's end
	closed   bool
	err      error

	out []Reply // the reader's
}

// Session begins a session. ctx is for the whole of it: when it ends, the
// session is closed. Errors are those of Stream.
func (c *Client) Session(ctx context.Context, opts SessionOptions) (*Session, error) {
	s := &Session{c: c, opts: opts, done: make(chan struct{}), hurry: make(chan struct{}), channels: map[uint32]*Channel{}}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.unhook = context.AfterFunc(ctx, func() { s.stop(fmt.Errorf("client: %w", context.Cause(ctx))) })
	l, ready, err := s.connect()
	if err != nil {
		s.unhook()
		s.cancel(nil)
		if ctx.Err() != nil {
			err = fmt.Errorf("client: %w", context.Cause(ctx))
		}
		return nil, err
	}
	s.mu.Lock()
	s.begin(ready)
	s.use(l)
	s.mu.Unlock()
	go s.run(l) // Close waits for it
	return s, nil
}

// Ticket asks the server for a ticket: it lets a session in once, within 30 s.
func (c *Client) Ticket(ctx context.Context) (string, error) {
	body, _, err := c.do(ctx, http.MethodPost, c.url(nil, "v2", "tickets"), jsonHeader, nil)
	if err != nil {
		return "", err
	}
	var m struct {
		Ticket string `json:"ticket"`
	}
	if err := json.Unmarshal(body, &m); err != nil || m.Ticket == "" {
		return "", stream.Errorf(stream.Internal, "", "the server's answer is not understood: it has no ticket")
	}
	return m.Ticket, nil
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session ended: nil while it has not, and after Close.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and its channels. Frames on their way are lost, which
// their channels' readers are told for 2 s at most. It returns when the session
// has ended and may be called again, but not by OnReply.
func (s *Session) Close() error {
	s.stop(nil)
	<-s.done
	return nil
}

// stop has the session end for err.
func (s *Session) stop(err error) {
	s.mu.Lock()
	first := !s.closed
	if first {
		s.closed, s.err = true, err
	}
	l := s.link
	s.mu.Unlock()
	if !first {
		return
	}
	if err == nil {
		err = errClosed()
	}
	s.cancel(err)
	time.AfterFunc(closeWait, func() { close(s.hurry) })
	if l != nil {
		l.bye()
	}
}

func errClosed() error { return stream.Errorf(stream.Canceled, "", "the session is closed") }

func (l *link) bye() {
	_ = l.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(closeWait))
	l.raw.end(closeWait)
}

// begin takes a new session's secrets. s.mu is held.
func (s *Session) begin(m *wire.Ready) { s.token, s.limits = m.ResumeToken, m.Limits }

// use makes l the session's connection. s.mu is held.
func (s *Session) use(l *link) {
	s.link = l
	if s.closed { // meanwhile; stop did not see it
		l.raw.end(0)
	}
}

// run is the session's goroutine: it reads, and makes connections.
func (s *Session) run(l *link) {
	defer close(s.done)
	for {
		lost, err := s.read(l)
		s.mu.Lock()
		s.link = nil
		s.mu.Unlock()
		if !lost || s.opts.GiveUp < 0 {
			s.finish(err)
			return
		}
		s.tell(Link{LinkLost, err})
		var state LinkState
		if l, state, err = s.reconnect(err); err != nil {
			s.finish(err)
			return
		}
		s.tell(Link{State: state})
	}
}

func (s *Session) tell(l Link) {
	if s.opts.OnLink != nil {
		s.opts.OnLink(l)
	}
}

// finish ends what is left of the session.
func (s *Session) finish(err error) {
	s.stop(err)
	s.unhook()
	s.mu.Lock()
	why := s.err
	all := s.sorted()
	s.mu.Unlock()
	for _, ch := range all {
		s.endChannel(ch, why)
	}
}

// say writes control messages, if there is a connection; the caller holds
// s.write. A connection that fails is closed, which the reader notices.
func (s *Session) say(l *link, ms ...wire.Message) {
	if l == nil {
		return
	}
	for _, m := range ms {
		text, err := wire.AppendControl(nil, m)
		if err == nil { // else it was checked before
			err = l.WriteMessage(websocket.TextMessage, text)
		}
		if err != nil {
			_ = l.Close()
			return
		}
	}
}

// errorOf is an error as the server words it.
func errorOf(m *wire.ErrorMessage) error {
	return &stream.Error{Code: stream.Code(m.Code), Msg: m.Message}
}
