package conn

import (
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"

	"millrace/stream/buf"
)

const (
	// readAhead is the most bytes read from the network at once, so that small messages, and fragments of a large
	// message, do not each cost a system call.
	readAhead = 32<<10 - buf.Headroom
	// directRead is the least size of a read that bypasses read-ahead.
	directRead = readAhead / 2
	// headerBuffer is the size of gorilla's own buffer, for frame headers and control frames. Payloads bypass this
	// buffer.
	headerBuffer = 128
)

// link is the network connection of a WebSocket, below gorilla's Conn. The reader's calls of Read take bytes read
// ahead. The lease of these bytes is taken when bytes arrive and released when all bytes have been read, so that a
// connection waiting for its client holds no lease. send and control write whole frames.
//
// Over TLS link does not read ahead, and the records of a message are collected below TLS.
//
// Only the reader goroutine calls Read. Gorilla's own writes (the answer to the handshake, and the close frame for a
// violation of the protocol) also run on the reader goroutine.
type link struct {
	net.Conn
	memory  *buf.Pool
	started time.Time
	onRead  func(now time.Duration) // is called after each read from the network, with the time since started

	raw        syscall.RawConn // nil: the connection has no file descriptor of its own, as with TLS
	fill       func(fd uintptr) bool
	ahead      buf.Buf // the bytes read ahead: a lease, when aheadBytes > 0
	aheadBytes int     // bytes of ahead not yet returned by Read
	err        error   // of fill

	corker corker // below TLS; nil: not encrypted, or not a connection of package httpd

	writing    chan struct{} // holds a value while frames are written
	deadline   time.Duration // of writing, since started
	closeSent  bool          // no frame may follow
	broken     error         // error of a write that left a frame incomplete: nothing may follow
	ownWriteBy time.Time     // the deadline of gorilla's own writes
}

// corker is a connection below TLS that can collect writes (httpd).
type corker interface {
	Cork(buf []byte)
	Uncork() error
}

func newLink(conn net.Conn, memory *buf.Pool, started time.Time) *link {
	l := &link{Conn: conn, memory: memory, started: started, writing: make(chan struct{}, 1)}
	if t, ok := conn.(*tls.Conn); ok {
		l.corker, _ = t.NetConn().(corker)
	}
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			l.raw, l.fill = raw, l.readAhead
		}
	}
	return l
}

// Read implements io.Reader.
func (l *link) Read(p []byte) (n int, err error) {
	if l.aheadBytes == 0 {
		if l.raw == nil || len(p) >= directRead {
			return l.readNow(p)
		}
		l.err = nil
		if err := l.raw.Read(l.fill); err != nil {
			return 0, err
		}
		switch {
		case l.err == buf.ErrBudget: // without memory for read-ahead the client is still served
			return l.readNow(p)
		case l.err != nil:
			return 0, l.err
		}
		l.noteRead()
	}
	n = copy(p, l.ahead.Bytes()[l.ahead.Len()-l.aheadBytes:])
	if l.aheadBytes -= n; l.aheadBytes == 0 {
		l.ahead.Release()
	}
	return n, nil
}

// readNow reads into p.
func (l *link) readNow(p []byte) (n int, err error) {
	if n, err = l.Conn.Read(p); n > 0 {
		l.noteRead()
	}
	return n, err
}

func (l *link) noteRead() {
	if l.onRead != nil {
		l.onRead(time.Since(l.started))
	}
}

// readAhead is the callback of raw.Read; false means to wait for bytes.
func (l *link) readAhead(fd uintptr) (done bool) {
	if l.memory.Renew(&l.ahead, readAhead) != nil {
		l.err = buf.ErrBudget
		return true
	}
	n, err := unix.Read(int(fd), l.ahead.Bytes())
	for err == unix.EINTR {
		n, err = unix.Read(int(fd), l.ahead.Bytes())
	}
	if err == nil && n > 0 {
		l.ahead.Resize(n)
		l.aheadBytes = n
		return true
	}
	l.ahead.Release()
	switch err {
	case nil:
		l.err = io.EOF
	case unix.EAGAIN:
		return false
	default:
		l.err = &net.OpError{Op: "read", Net: "tcp", Source: l.LocalAddr(), Addr: l.RemoteAddr(),
			Err: os.NewSyscallError("read", err)}
	}
	return true
}

// release releases the bytes read ahead. The reader calls release after its last read.
func (l *link) release() {
	if l.aheadBytes > 0 {
		l.aheadBytes = 0
		l.ahead.Release()
	}
}

// appendHeader appends the frame header of an unfragmented server message of n bytes.
func appendHeader(dst []byte, kind, n int) []byte {
	const final, length16, length64 = 0x80, 126, 127
	dst = append(dst, final|byte(kind))
	switch {
	case n < length16:
		return append(dst, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, length16), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, length64), uint64(n))
}

// send writes frames within wait. The deadline of the call before remains for the first thirty-second of wait,
// because setting a deadline costs nearly as much as a system call.
func (l *link) send(frames *net.Buffers, wait time.Duration) error {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if err := l.mayWrite(); err != nil {
		return err
	}
	if left := l.deadline - time.Since(l.started); left < wait-wait/32 || left > wait {
		l.setDeadline(time.Now().Add(wait))
	}
	if len(*frames) > 1 && l.corker != nil {
		l.broken = l.sendRecords(*frames)
	} else {
		_, l.broken = frames.WriteTo(l.Conn)
	}
	return l.broken
}

// sendRecords writes over TLS. The records, of at most records.Max bytes of content, leave in one system call per 63
// KiB.
func (l *link) sendRecords(parts [][]byte) error {
	size := 32<<10 - buf.Headroom
	if len(parts[0])+len(parts[1]) > size-1024 { // the header and trailer of a record are less than 30 bytes
		size = 64<<10 - buf.Headroom
	}
	var lease buf.Buf
	if l.memory.Renew(&lease, size) == nil { // without memory each record is a system call
		l.corker.Cork(lease.Bytes())
		defer lease.Release()
	}
	var err error
	for _, p := range parts {
		if err == nil {
			_, err = l.Conn.Write(p)
		}
	}
	return cmp.Or(err, l.corker.Uncork())
}

// mayWrite returns nil, or the reason why no frame may follow.
func (l *link) mayWrite() error {
	if l.closeSent {
		return websocket.ErrCloseSent
	}
	return l.broken
}

// control writes a control frame: waits up to wait for frames in progress, and then writes within another wait. Only
// the first close frame is sent.
func (l *link) control(kind int, data []byte, wait time.Duration) error {
	return l.writeBy(time.Now().Add(wait), appendFrame(nil, kind, data))
}

func appendFrame(dst []byte, kind int, data []byte) []byte {
	return append(appendHeader(dst, kind, len(data)), data...)
}

// writeBy writes one frame, or the answer to the handshake, until the deadline; zero = no deadline.
func (l *link) writeBy(deadline time.Time, p []byte) error {
	select {
	case l.writing <- struct{}{}:
	default:
		if !l.waitToWrite(deadline) {
			return os.ErrDeadlineExceeded
		}
	}
	defer func() { <-l.writing }()
	if err := l.mayWrite(); err != nil {
		return err
	}
	l.setDeadline(deadline)
	n, err := l.Conn.Write(p)
	if n > 0 {
		l.broken = err
	}
	l.closeSent = p[0] == 0x80|websocket.CloseMessage
	return err
}

func (l *link) waitToWrite(deadline time.Time) bool {
	if deadline.IsZero() {
		l.writing <- struct{}{}
		return true
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case l.writing <- struct{}{}:
		return true
	case <-t.C:
		return false
	}
}

func (l *link) setDeadline(t time.Time) {
	l.deadline = t.Sub(l.started)
	_ = l.Conn.SetWriteDeadline(t)
}

// cut lets a write in progress continue until t.
func (l *link) cut(t time.Time) { _ = l.Conn.SetWriteDeadline(t) }

// uncut makes the next write set its own deadline again.
func (l *link) uncut() {
	l.writing <- struct{}{}
	l.deadline = 0
	<-l.writing
}

// SetWriteDeadline is for gorilla's own writes.
func (l *link) SetWriteDeadline(t time.Time) error {
	l.ownWriteBy = t
	return nil
}

// Write is for gorilla's own writes.
func (l *link) Write(p []byte) (int, error) {
	if err := l.writeBy(l.ownWriteBy, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

var _ net.Conn = (*link)(nil)
