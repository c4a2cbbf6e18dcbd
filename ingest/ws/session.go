package ws

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// session is one client. Its reader goroutine runs serve and alone reads from
// the connection; its writer goroutine alone writes messages. Anybody may call
// end; the reader does what it takes.
type session struct {
	a       *Adapter
	conn    net.Conn
	ws      *websocket.Conn
	backend ingest.Backend
	query   query
	model   string
	version string
	started time.Time
	main    *lane
	box     *outbox
	mux     *mux // of millrace.v1, which box is of; nil in plain mode

	ended   atomic.Bool
	cause   ending        // set before closing is closed
	closing chan struct{} // end was called
	wrote   chan struct{} // the writer has ended
	gone    chan struct{} // nothing of the session is left

	detached chan struct{} // the mux is no longer this connection's
	cut      chan struct{} // the writer is to end, whatever waits
	broken   atomic.Bool   // nothing more can be sent
	next     atomic.Pointer[adoption]

	lastMessage atomic.Int64 // nanoseconds since started, for Options.Idle

	// The reader's own.
	guess   int       // what the next message's lease is likely to need
	extends time.Time // when the read deadline was last set
	one     [1]byte
	puller  *pull
	opening opening
	begun   bool  // a message of millrace.v1 has come
	refused error // why the client is not let in; nil: it is
	resumed bool  // the session was resumed, and nothing has come since
	request oip.InferRequest
	writing bool // the writer was started

	pulling atomic.Bool // a pull runs
}

func newSession(a *Adapter, conn net.Conn, backend ingest.Backend, q query, version string) *session {
	s := &session{
		a: a, conn: conn, backend: backend, query: q, model: q.model, version: version, started: time.Now(),
		closing: make(chan struct{}), wrote: make(chan struct{}), gone: make(chan struct{}),
		guess: firstGuess, detached: make(chan struct{}), cut: make(chan struct{}),
	}
	s.box = a.newOutbox()
	s.main = newLane(s)
	return s
}

func (a *Adapter) newOutbox() *outbox {
	return &outbox{
		maxItems: int64(a.opts.OutboxMessages), maxBytes: a.opts.OutboxBytes, total: &a.outbox,
		wake: make(chan struct{}, 1),
	}
}

// end says that the session is to end, and why; the first one counts. It does
// not block and may be called with a stream's lock held.
func (s *session) end(e ending) {
	if !s.ended.CompareAndSwap(false, true) {
		return
	}
	s.cause = e
	close(s.closing)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
}

// over says whether end was called.
func (s *session) over() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// fault is called after a panic of one of the session's goroutines: what was in
// their hands may be lost, and so is the session.
func (s *session) fault() {
	s.end(ending{EndFault, websocket.CloseInternalServerErr, stream.Errorf(stream.Internal, "", "a fault of the server: its log has the details")})
}

// serve is the reader goroutine: the whole life of the session.
func (s *session) serve(r *http.Request, buffered []byte) {
	defer s.leave()
	watchPeer(s.conn, s.a.opts.PingEvery+s.a.opts.PongWait)
	if err := s.upgrade(r, buffered); err != nil {
		s.end(ending{why: EndRefused})
		return
	}
	if f := s.a.opts.Hooks.Opened; f != nil {
		f()
	}
	if s.refused != nil {
		s.startWriter() // which tells
		s.end(turnedAway(s.refused))
		return
	}
	if s.v1() {
		s.serveMux()
		return
	}
	if !s.startWriter() {
		return
	}
	if s.query.calls {
		s.read()
		return
	}
	s.a.makeRoom()
	st, err := s.backend.Open(s.model, s.version, stream.Options{Policy: s.query.policy}, s.main)
	if err != nil {
		s.end(refusal(err))
		return
	}
	s.main.opened(st)
	s.read()
}

// v1 says whether the client speaks millrace.v1. It is valid after upgrade.
func (s *session) v1() bool { return s.ws.Subprotocol() == wire.Subprotocol }

func (s *session) startWriter() bool {
	if s.writing = s.a.group.run("writer", s.write, s.fault); !s.writing {
		s.end(draining())
	}
	return s.writing
}

// leave ends the session in order: no more frames, every frame its ending,
// every ending its reply, the client told, the connection closed. When nobody
// is there to read, replies are thrown away instead.
func (s *session) leave() {
	if !s.over() { // a panic of the reader
		s.fault()
	}
	<-s.closing
	e := &s.cause
	if s.mux != nil {
		s.leaveMux()
		return
	}
	if e.gone() {
		_ = s.conn.Close()
		s.box.close()
	}
	if s.puller != nil {
		s.puller.cancel()
		<-s.puller.over
	}
	if st := s.main.stream; st != nil {
		if e.why == EndDraining {
			st.CloseWith(stream.ByDrain, e.err)
		} else {
			st.Close(e.stream())
		}
		<-st.Finished()
	}
	if s.writing {
		s.box.finish()
		<-s.wrote
	}
	s.box.close() // what came after a writer that failed
	s.bye()
}

// bye closes the connection and takes the session off the list.
func (s *session) bye() {
	e := &s.cause
	s.linger()
	_ = s.conn.Close()
	if f := s.a.opts.Hooks.Closed; f != nil && s.ws != nil {
		f(e.why, time.Since(s.started))
	}
	s.a.leave(s, e.why)
}

// Bounds of the good-bye to a client that is still sending.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
)

// linger lets the last messages reach a client that is still sending: closing
// with unread bytes would reset the connection and lose them.
func (s *session) linger() {
	half, ok := s.conn.(interface{ CloseWrite() error })
	if s.cause.gone() || !ok || half.CloseWrite() != nil {
		return
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, s.conn, lingerBytes)
}
