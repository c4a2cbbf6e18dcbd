// Package accept takes addresses and accepts connections for all protocols. It
// owns the bound of open connections, which all listeners of a server share, and
// goes on accepting when the process has run out of open files. It must not know
// what is spoken over a connection.
package accept

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/backoff"
)

// Limit bounds the connections that are open at once. The zero Limit has no
// bound; it counts all the same.
type Limit struct {
	Max int          // limits.max_connections; 0 = no bound
	Log *slog.Logger // nil = slog.Default()

	open atomic.Int64

	mu        sync.Mutex
	listeners []*listener
}

// Stats are the figures of one listener.
type Stats struct {
	Open    int64  // connections now
	Refused uint64 // connections closed at once, because of the bound
	Failed  uint64 // attempts to accept that failed, for want of open files say
}

// Stats returns the figures by the names of the listeners.
func (l *Limit) Stats() map[string]Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Stats{}
	for _, ln := range l.listeners {
		out[ln.name] = Stats{Open: ln.open.Load(), Refused: ln.refused.Load(), Failed: ln.failed.Load()}
	}
	return out
}

// Listen takes a TCP address for the listener called name. Its error says what to
// do, and leaves the name to the caller.
func (l *Limit) Listen(name, addr string) (net.Listener, error) {
	inner, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, explain(addr, err)
	}
	ln := &listener{Listener: inner, name: name, limit: l, closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, ln)
	return ln, nil
}

// explain says why an address cannot be taken, and what to do.
func explain(addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use: end the program that listens there, or choose another address (%w)", addr, syscall.EADDRINUSE)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is no address of this machine: choose one that it has, or 0.0.0.0 for all (%w)", addr, syscall.EADDRNOTAVAIL)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be taken by the server's user: choose a port above 1023, or allow it (%w)", addr, syscall.EACCES)
	}
	return err
}

// listener accepts within the limit.
type listener struct {
	net.Listener
	name  string
	limit *Limit

	once   sync.Once
	closed chan struct{}

	open            atomic.Int64
	refused, failed atomic.Uint64
}

// Accept implements net.Listener. It returns an error only when the listener was
// closed: a failure that may pass is waited for, and a connection over the bound
// is closed.
func (l *listener) Accept() (net.Conn, error) {
	wait := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil, err
			}
			l.failed.Add(1)
			l.log().Warn("a connection cannot be accepted: raise the limit of open files (ulimit -n), or lower limits.max_connections", "listener", l.name, "error", err)
			if !l.sleep(wait.Next(rand.Float64())) {
				return nil, net.ErrClosed
			}
			continue
		}
		wait.Reset()
		if n := l.limit.open.Add(1); l.limit.Max > 0 && n > int64(l.limit.Max) {
			l.limit.open.Add(-1)
			l.refused.Add(1)
			_ = c.Close()
			l.log().Warn("a connection was refused: as many are open as limits.max_connections allows", "listener", l.name, "limit", l.limit.Max)
			continue
		}
		l.open.Add(1)
		return &conn{TCPConn: c.(*net.TCPConn), listener: l}, nil
	}
}

func (l *listener) log() *slog.Logger {
	if l.limit.Log != nil {
		return l.limit.Log
	}
	return slog.Default()
}

// sleep returns false when the listener is closed meanwhile.
func (l *listener) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closed:
		return false
	}
}

// Close implements net.Listener. It may be called twice: by its owner, so that it
// happens at once, and by a server that gives its own shutdown up when it fails.
func (l *listener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// conn is counted until it is closed. Its other methods are those of TCP.
type conn struct {
	*net.TCPConn
	listener *listener
	once     sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.listener.open.Add(-1)
		c.listener.limit.open.Add(-1)
	})
	return c.TCPConn.Close()
}
