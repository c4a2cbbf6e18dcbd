// Package accept listens at addresses and accepts connections for all protocols. It owns
// the bound of open connections, which all listeners of a server share, and it continues
// to accept after the process has run out of file descriptors. It must not know the
// protocol of a connection.
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

// Limit bounds and counts the open connections. The zero Limit has no bound.
type Limit struct {
	Max int          // limits.max_connections; 0 = no bound
	Log *slog.Logger // nil = slog.Default()

	open atomic.Int64

	mu        sync.Mutex
	listeners []*listener
}

// Stats are the counters of one listener.
type Stats struct {
	Open    int64  // open connections
	Refused uint64 // connections closed at once because of the bound
	Failed  uint64 // attempts to accept that failed, for example without a free file descriptor
}

// Stats returns the counters by the names of the listeners.
func (l *Limit) Stats() map[string]Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Stats{}
	for _, ln := range l.listeners {
		out[ln.name] = Stats{Open: ln.open.Load(), Refused: ln.refused.Load(), Failed: ln.failed.Load()}
	}
	return out
}

// Listen listens at a TCP address. name is the listener's name in Stats and in the log.
// The error says what to do and does not contain the name.
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

// explain returns the error of an address that cannot be listened at, with what to do.
func explain(addr string, err error) error {
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		return fmt.Errorf("the host of %s is not known: give an address of this machine, or 0.0.0.0 for all (%w)", addr, lookup)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use: end the program that listens there, or choose another address (%w)", addr, syscall.EADDRINUSE)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine: choose one that it has, or 0.0.0.0 for all (%w)", addr, syscall.EADDRNOTAVAIL)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the server's user may not listen at %s: choose a port above 1023, or allow it (%w)", addr, syscall.EACCES)
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

// Accept implements net.Listener. It returns an error only when the listener was closed.
// After another failure it waits and tries again. It closes connections above the bound.
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
			l.log().Warn("a connection was refused: limits.max_connections are open", "listener", l.name, "limit", l.limit.Max)
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

// Close implements net.Listener. It may be called again, since both its owner and an HTTP
// server close it.
func (l *listener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// conn is a connection that is counted until it is closed.
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
