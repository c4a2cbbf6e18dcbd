package conn

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
)

// socket is what the reader and the writer of a connection share: the network connection, and its end. Anybody may call End;
// the reader does what it takes.
type socket struct {
	*shared
	net     net.Conn
	ws      *websocket.Conn // once upgraded
	form    Form
	started time.Time

	ended   atomic.Bool
	ending  Ending        // set before closing is closed
	closing chan struct{} // End was called

	lastMessage atomic.Int64 // nanoseconds since started, for Options.Idle
	busy        atomic.Bool  // see Busy
}

// upgrade answers the handshake. When it fails the connection is closed.
func (s *socket) upgrade(r *http.Request, buffered []byte) (err error) {
	s.ws, err = httpd.Upgrade(&s.upgrader, s.net, buffered, r)
	return err
}

// Closing is closed when the connection is to end.
func (s *socket) Closing() <-chan struct{} { return s.closing }

// End says that the connection is to end, and why; the first one counts. It does not block and may be called with a
// stream's lock held.
func (s *socket) End(e Ending) {
	if !s.ended.CompareAndSwap(false, true) {
		return
	}
	s.ending = e
	close(s.closing)
	_ = s.net.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
}

// Ended says whether End was called.
func (s *socket) Ended() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// Fault ends the connection after a panic of one of its goroutines: the frames that it had may be lost.
func (s *socket) Fault() {
	s.End(Ending{EndFault, wire.CloseInternal, stream.Errorf(stream.Internal, "", "a fault of the server: its log has the details")})
}

// Busy says that the server works for the client without messages of it: the idle time-out (Options.Idle) does not hold.
func (s *socket) Busy(yes bool) { s.busy.Store(yes) }

// isNetwork tells a connection that failed from a client that does not speak
// the protocol.
func isNetwork(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &ne)
}

// timedOut also knows gorilla's own error, which hides the system's.
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// Bounds of the time that a client which is still sending is given to read the last messages.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
)

// linger reads on for a while after the last message was written: closing with unread bytes would reset the connection, and
// the client would lose what was sent.
func (s *socket) linger() {
	half, ok := s.net.(interface{ CloseWrite() error })
	if s.ending.Gone() || !ok || half.CloseWrite() != nil {
		return
	}
	_ = s.net.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, s.net, lingerBytes)
}
