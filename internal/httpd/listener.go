package httpd

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listener wraps accepted connections, below TLS. Accept returns a connection when its first byte has arrived: the HTTP
// server takes a buffer and a larger stack for each connection that it has, and clients that send nothing can have as
// many as limits.max_connections.
type listener struct {
	net.Listener
	limit      time.Duration // for the first byte
	management bool          // it is at Config.Management

	start sync.Once
	ready chan net.Conn
	ended chan struct{} // closed when there are no more connections
	err   error         // of the inner listener, set before ended is closed

	mu      sync.Mutex
	waiting map[*conn]struct{} // for their first byte
	until   time.Time          // when they end at the latest; zero = the listener is open
	all     sync.WaitGroup     // their goroutines
}

func newListener(inner net.Listener, limit time.Duration) *listener {
	return &listener{Listener: inner, limit: limit, ready: make(chan net.Conn), ended: make(chan struct{}), waiting: map[*conn]struct{}{}}
}

// Accept implements net.Listener. It must be called until it returns an error, which after Close it does when no
// connection waits, soon after idleGrace at the latest.
func (l *listener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.accept() }) // ends with the listener
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ended:
		return nil, l.err
	}
}

// Close implements net.Listener. Connections that wait have idleGrace left.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() {
		l.until = time.Now().Add(idleGrace)
		for c := range l.waiting {
			_ = c.SetReadDeadline(l.until)
		}
	}
	return err
}

func (l *listener) accept() {
	defer close(l.ended)
	defer l.all.Wait()
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			l.err = err
			return
		}
		c := newConn(inner)
		c.management = l.management
		l.add(c)
		l.all.Go(func() {
			if l.arrives(c) {
				l.ready <- c
			} else {
				_ = c.Close()
			}
		})
	}
}

func (l *listener) add(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[c] = struct{}{}
	until := l.until
	if until.IsZero() {
		until = time.Now().Add(l.limit)
	}
	_ = c.SetReadDeadline(until)
}

// arrives waits for the first byte of a connection, and reports whether it has come.
func (l *listener) arrives(c *conn) bool {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting, c)
	}()
	raw, err := c.SyscallConn()
	if err != nil {
		return true // it has no descriptor
	}
	n, failed := 0, error(nil)
	var first [1]byte
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, failed = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	})
	return err == nil && failed == nil && n > 0
}

var _ net.Listener = (*listener)(nil)
