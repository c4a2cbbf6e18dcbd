package conn

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
)

// socket is the state shared by the reader and the writer of a connection: the network connection, and its end. Any
// goroutine may call End; the reader then ends the connection.
type socket struct {
	*shared
	net     net.Conn
	link    *link           // over net, for ws and the writer
	ws      *websocket.Conn // once upgraded
	form    Form
	client  Client
	started time.Time

	ended   atomic.Bool
	ending  Ending        // set before closing is closed
	closing chan struct{} // closed when End was called

	lastMessage atomic.Int64 // nanoseconds since started, for Options.Idle
	busy        atomic.Bool  // see Busy
}

// upgrade answers the handshake. After a failure, upgrade closes the connection.
func (s *socket) upgrade(r *http.Request, buffered []byte) (err error) {
	s.ws, err = httpd.Upgrade(s.upgrader, s.link, buffered, r)
	return err
}

// RemoteAddr returns the address of the client.
func (s *socket) RemoteAddr() net.Addr { return s.net.RemoteAddr() }

// Closing returns a channel, closed when the connection is to end.
func (s *socket) Closing() <-chan struct{} { return s.closing }

// End ends the connection with a reason; only the first call counts. End does not block, and a caller may hold a
// stream's lock.
func (s *socket) End(e Ending) {
	if !s.ended.CompareAndSwap(false, true) {
		return
	}
	s.ending = e
	close(s.closing)
	_ = s.net.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
}

// Ended reports whether End was called.
func (s *socket) Ended() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// Fault ends the connection after a panic of a goroutine of the connection; frames may be lost.
func (s *socket) Fault() {
	s.End(Ending{EndFault, wire.CloseInternal,
		stream.Errorf(stream.Internal, "", "a fault of the server: its log has the details")})
}

// Busy says whether the server works for a silent client: while busy, the idle time-out (Options.Idle) does not
// apply.
func (s *socket) Busy(yes bool) { s.busy.Store(yes) }

// isNetwork reports whether err is a failure of the network, and not a violation of the
// protocol.
func isNetwork(err error) bool {
	var ne net.Error
	// includes net.ErrClosed
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &ne)
}

// timedOut reports whether err is a time-out. timedOut also recognises gorilla's own error, which hides the system's
// error.
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// Bounds of the time in which a client still sending may read the last messages.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
	// lingerPause is the pause between reads that do not fill the buffer: a flood of small messages does not cost a
	// read each.
	lingerPause = 10 * time.Millisecond
)

var lingerBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// linger reads on for a while after the last message was written: closing a socket with
// unread bytes would reset the connection, and the client would lose the last messages.
func (s *socket) linger() {
	half, ok := s.net.(interface{ CloseWrite() error })
	if s.ending.Gone() || !ok || half.CloseWrite() != nil {
		return
	}
	_ = s.net.SetReadDeadline(time.Now().Add(lingerTime))
	b := lingerBuffers.Get().(*[32 << 10]byte)
	defer lingerBuffers.Put(b)
	for n := 0; n < lingerBytes; {
		m, err := s.net.Read(b[:])
		if n += m; err != nil {
			return
		}
		if m < len(b) {
			time.Sleep(lingerPause)
		}
	}
}
