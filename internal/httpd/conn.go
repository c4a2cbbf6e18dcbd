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

// conn is an open connection. Deadlines behave as for any connection, but a later deadline than the last (fasthttp
// sets three per request) costs no timer: see deadline.
type conn struct {
	net.Conn
	read, write deadline
	at          place // address of arrival
	handshake   bool  // a TLS connection before its first read

	mu      sync.Mutex
	busy    bool        // a handler runs
	closed  bool        // or hijacked
	leaving *time.Timer // ends ctx; nil = the client has not left

	// See Server.Context; both fields are set once.
	ctx     context.Context // nil until a request asks for the context
	cancel  context.CancelCauseFunc
	watched uint64 // number in Server.watcher

	cork atomic.Pointer[records.Cork] // nil before the first use

	small atomic.Int64 // consecutive reads of few bytes, without a write between; the shutdown writes, too

	// Used by the connection's goroutine only.
	refused        int     // consecutive refused requests, see Server.slowDown
	delayNextWrite bool    // the next write is kept for the write after
	pendingWrite   *[]byte // the kept write
	lost           func()  // called on a close before the function of Hijack has run
	allowedHost    []byte  // the last Host found to be the server's own, by allowedBy: see rules.isOwnHost
	allowedBy      *rules
}

func newConn(c net.Conn) *conn {
	w := &conn{Conn: c}
	w.read.set, w.write.set = c.SetReadDeadline, c.SetWriteDeadline
	return w
}

// replyBuffer is the size of fasthttp's buffer for replies: with a larger body fasthttp writes twice, first the
// header and the beginning of the body.
const replyBuffer = 4096

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, replyBuffer); return &b }}

// connOf returns the connection below TLS, nil for a connection from a foreign listener.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	w, _ := c.(*conn)
	return w
}

// unwrap returns the connection without its deadlines, for an owner that does not need cheap deadlines.
func unwrap(c net.Conn) net.Conn {
	if w, ok := c.(*conn); ok {
		_ = w.Conn.SetDeadline(time.Time{})
		return w.Conn
	}
	return c
}

// NetConn returns the wrapped connection.
func (c *conn) NetConn() net.Conn { return c.Conn }

// A request sent in many parts of less than smallRead bytes is read in fewer and larger reads: the server waits
// before each read, see throttleDelay. Otherwise thousands of clients that send single bytes would keep all other
// clients waiting for the processor.
const (
	smallRead  = 1024
	neverSmall = math.MinInt64 // conn.small of connections that never wait
)

// The bounds of throttleDelay.
const (
	withoutWait = 16 // in a row
	longestWait = 512 * time.Millisecond
)

// throttleDelay returns how long a connection waits after n consecutive reads or requests of a costly kind: 0 for up to
// withoutWait, and then twice as long each time, from a millisecond to longestWait.
func throttleDelay(n int) time.Duration {
	if n <= withoutWait {
		return 0
	}
	return min(time.Millisecond<<min(n-withoutWait-1, 16), longestWait)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if wait := throttleDelay(int(c.small.Load())); wait > 0 {
		time.Sleep(wait)
	}
	for {
		n, err := c.Conn.Read(b)
		if c.handshake && n > 0 {
			if c.handshake = false; looksUnencrypted(b[:n]) {
				refusePlain(c.Conn)
				return 0, errPlain
			}
		}
		if n > 0 || err == nil || !c.read.retry(err) {
			switch small := c.small.Load(); {
			case small < 0:
			case n == len(b) || n >= smallRead && small <= withoutWait: // or as much as has come during the wait
				c.small.Store(0)
			case n < smallRead:
				c.small.Add(1)
			}
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.small.Load() > 0 { // a negative value belongs to the reader
		c.small.Store(0)
	}
	if c.pendingWrite != nil {
		return c.writeJoined(b)
	}
	join := c.delayNextWrite
	c.delayNextWrite = false
	if join && len(b) <= replyBuffer {
		c.pendingWrite = writeBuffers.Get().(*[]byte)
		*c.pendingWrite = append((*c.pendingWrite)[:0], b...)
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
		if n += m; err == nil || !c.write.retry(err) {
			return n, err
		}
	}
}

// writeJoined writes the kept bytes and b in one system call.
func (c *conn) writeJoined(b []byte) (int, error) {
	kept := c.pendingWrite
	c.pendingWrite, c.delayNextWrite = nil, false
	defer writeBuffers.Put(kept)
	parts := net.Buffers{*kept, b}
	sent := -len(*kept)
	for {
		m, err := parts.WriteTo(c.Conn)
		if sent += int(m); err == nil || !c.write.retry(err) {
			return max(sent, 0), err
		}
	}
}

// joinWrites joins the next two writes in one system call.
func (c *conn) joinWrites() { c.delayNextWrite = true }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.read.setTo(t), c.write.setTo(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.read.setTo(t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.write.setTo(t) }

// CloseRead closes the reading side, if the wrapped connection supports the operation.
func (c *conn) CloseRead() error {
	if h, ok := c.Conn.(interface{ CloseRead() error }); ok {
		return h.CloseRead()
	}
	return errors.ErrUnsupported
}

// CloseWrite closes the writing side, if the wrapped connection supports the operation.
func (c *conn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// reset closes a connection by a TCP reset instead of the normal closing exchange. reset is for connections without
// traffic, when the client has left or a new connection displaces the connection.
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

// deadline is the time limit of the reads or writes of a connection. A deadline later than the timer's deadline only
// replaces wanted. When the timer ends an operation before wanted, again sets the timer to wanted, and the operation
// is repeated. So the timer of a busy connection is set every few seconds, not with each request, and no operation
// ends early or late. The methods are safe for concurrent use.
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

// retry reports whether an operation that failed with err is to be repeated.
func (d *deadline) retry(err error) bool {
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
