package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/records"
)

// conn is an open connection. Its deadlines are those of any connection, but a later
// deadline than the one before, as fasthttp sets three times a request, costs no timer: see
// deadline.
type conn struct {
	net.Conn
	read, write deadline
	at          place // that it came to
	handshake   bool  // TLS is spoken on it, and nothing was read yet

	mu      sync.Mutex
	busy    bool        // a handler runs
	closed  bool        // or hijacked
	leaving *time.Timer // ends ctx; nil = the client has not left

	// See Server.Context; they are set once.
	ctx     context.Context // nil = no request has asked for it
	cancel  context.CancelCauseFunc
	watched uint64 // its number in Server.watcher

	cork atomic.Pointer[records.Cork] // nil = it was never corked

	// Used by the connection's goroutine only; small is only read when somebody has taken the connection over.
	small   int     // reads in a row, without a write between them, that have brought few bytes
	refused int     // requests in a row that were refused, see Server.slowDown
	join    bool    // the next write is kept until the one after it
	kept    *[]byte // what is kept
	lost    func()  // called if it is closed before the function that takes it over has run
}

func newConn(c net.Conn) *conn {
	w := &conn{Conn: c}
	w.read.set, w.write.set = c.SetReadDeadline, c.SetWriteDeadline
	return w
}

// replyBuffer is the size of fasthttp's buffer for replies: a larger body makes it write
// twice, first the header and as much of the body as there is room for.
const replyBuffer = 4096

var keptWrites = sync.Pool{New: func() any { b := make([]byte, 0, replyBuffer); return &b }}

// connOf returns the connection below TLS, nil if it does not come from a listener of this
// package.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	w, _ := c.(*conn)
	return w
}

// unwrap returns the connection for an owner that does not need deadlines to be cheap. It
// has none.
func unwrap(c net.Conn) net.Conn {
	if w, ok := c.(*conn); ok {
		_ = w.Conn.SetDeadline(time.Time{})
		return w.Conn
	}
	return c
}

// NetConn returns the connection without what this package adds.
func (c *conn) NetConn() net.Conn { return c.Conn }

// A client that sends a request in many parts of less than smallRead bytes has it read in fewer and larger ones: the
// server waits before each read, see waitAfter. Clients by the thousand that send a byte now and then would otherwise have all
// others wait behind their goroutines.
const (
	smallRead  = 1024
	neverSmall = math.MinInt // the value of conn.small for those that do not wait
)

// The bounds of waitAfter.
const (
	withoutWait = 16 // in a row
	longestWait = 512 * time.Millisecond
)

// waitAfter returns how long a connection waits after n reads or requests in a row of a kind that costs the server more than it is worth:
// not at all after withoutWait of them, and then twice as long each time, from a millisecond to longestWait.
func waitAfter(n int) time.Duration {
	if n <= withoutWait {
		return 0
	}
	return min(time.Millisecond<<min(n-withoutWait-1, 16), longestWait)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if wait := waitAfter(c.small); wait > 0 {
		time.Sleep(wait)
	}
	for {
		n, err := c.Conn.Read(b)
		if c.handshake && n > 0 {
			if c.handshake = false; looksPlain(b[:n]) {
				refusePlain(c.Conn)
				return 0, errPlain
			}
		}
		if n > 0 || err == nil || !c.read.again(err) {
			switch {
			case c.small < 0:
			case n == len(b) || n >= smallRead && c.small <= withoutWait: // or as much as has come during the wait
				c.small = 0
			case n < smallRead:
				c.small++
			}
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.small > 0 { // otherwise it belongs to the reader
		c.small = 0
	}
	if c.kept != nil {
		return c.writeJoined(b)
	}
	join := c.join
	c.join = false
	if join && len(b) <= replyBuffer {
		c.kept = keptWrites.Get().(*[]byte)
		*c.kept = append((*c.kept)[:0], b...)
		return len(b), nil
	}
	if k := c.cork.Load(); k != nil {
		if n, corked, err := k.Collect(b, c.writeNow); corked {
			return n, err
		}
	}
	return c.writeNow(b)
}

// writeNow writes to the connection.
func (c *conn) writeNow(b []byte) (int, error) {
	n := 0
	for {
		m, err := c.Conn.Write(b[n:])
		if n += m; err == nil || !c.write.again(err) {
			return n, err
		}
	}
}

// writeJoined writes what is kept, and b, in one system call.
func (c *conn) writeJoined(b []byte) (int, error) {
	kept := c.kept
	c.kept, c.join = nil, false
	defer keptWrites.Put(kept)
	parts := net.Buffers{*kept, b}
	sent := -len(*kept)
	for {
		m, err := parts.WriteTo(c.Conn)
		if sent += int(m); err == nil || !c.write.again(err) {
			return max(sent, 0), err
		}
	}
}

// joinWrites has the next two writes done in one system call.
func (c *conn) joinWrites() { c.join = true }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.read.setTo(t), c.write.setTo(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.read.setTo(t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.write.setTo(t) }

// CloseRead is that of net.TCPConn and net.UnixConn.
func (c *conn) CloseRead() error {
	if h, ok := c.Conn.(interface{ CloseRead() error }); ok {
		return h.CloseRead()
	}
	return errors.ErrUnsupported
}

// CloseWrite is that of net.TCPConn and net.UnixConn.
func (c *conn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// reset closes a connection on which nothing was sent or received, without the exchange that ends others: its client has
// left, or it gives way to another one.
func (c *conn) reset() {
	if t, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// SyscallConn implements syscall.Conn.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// setBusy records whether a handler runs. c may be nil.
func (c *conn) setBusy(is bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.busy = is
	c.mu.Unlock()
}

// deadline is the time limit of the reads or writes of a connection. A deadline that is
// later than the one of the connection's timer only replaces wanted. When the timer
// ends an operation before wanted, again sets it to wanted, and the operation is repeated. So
// the timer of a connection that is used all the time is set every few seconds, not with each
// request, and no operation ends early or late. The methods are safe for concurrent use.
type deadline struct {
	set func(time.Time) error // of the connection

	mu            sync.Mutex
	wanted, timer time.Time // zero = none
}

func (d *deadline) setTo(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if t.IsZero() || !d.timer.IsZero() && !t.Before(d.timer) {
		return nil
	}
	d.timer = t
	return d.set(t)
}

// again reports whether an operation that failed with err is to be repeated.
func (d *deadline) again(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted.IsZero() && !time.Now().Before(d.wanted) {
		return false
	}
	d.timer = d.wanted
	return d.set(d.wanted) == nil
}
