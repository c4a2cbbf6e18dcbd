package httpd

import (
	"container/list"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listener wraps accepted connections, below TLS. Accept returns a connection when its first byte has arrived: the
// HTTP server needs a goroutine, a buffer and a larger stack for each connection, and silent clients can open up to
// limits.max_connections connections. Until then a connection is only an entry in a list and in a watcher. On systems
// other than Linux, Accept returns a connection at once.
type listener struct {
	net.Listener
	limit     time.Duration // for the first byte
	at        place         // address of its connections
	encrypted bool          // connections use TLS

	start sync.Once
	ready chan net.Conn
	ended chan struct{} // closed when there are no more connections
	err   error         // of the inner listener, set before ended is closed

	arrivals watcher // watches waiting connections for the first byte or the end

	mu      sync.Mutex
	waiting list.List   // of *waiting, the oldest first
	expiry  *time.Timer // calls expire; nil = no connection has waited
	until   time.Time   // when all end at the latest; zero = the listener is open
	open    int         // connections waiting, being handed over, or being closed
	none    sync.Cond   // open has become 0
}

// waiting is a connection that waits for its first byte.
type waiting struct {
	*conn
	number uint64 // in listener.arrivals
	until  time.Time
	at     *list.Element // in listener.waiting, the owner of the connection; nil = no longer waiting
}

func newListener(inner net.Listener, limit time.Duration) *listener {
	l := &listener{Listener: inner, limit: limit, ready: make(chan net.Conn), ended: make(chan struct{})}
	l.none.L = &l.mu
	return l
}

// Accept implements net.Listener. Call Accept until an error: after Close, the error comes when no connection waits,
// soon after idleGrace at the latest.
func (l *listener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.accept() }) // ends with the listener
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ended:
		return nil, l.err
	}
}

// Close implements net.Listener. Waiting connections have idleGrace left.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() {
		l.until = time.Now().Add(idleGrace)
		if l.expiry != nil {
			l.expiry.Reset(idleGrace)
		}
	}
	return err
}

func (l *listener) accept() {
	defer close(l.ended)
	defer l.arrivals.close()
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			l.err = err
			break
		}
		c := newConn(inner)
		c.at, c.handshake = l.at, l.encrypted
		switch n := first(c); {
		case n < 0:
			c.reset()
		case n > 0 || !l.wait(c):
			l.ready <- c
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open > 0 {
		l.none.Wait()
	}
	if l.expiry != nil {
		l.expiry.Stop()
	}
}

// first returns the number of readable bytes, at most 1: 0 for none yet, -1 if none will come. A connection without a
// descriptor counts as readable.
func first(c *conn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 1
	}
	n, b := 0, [1]byte{}
	if err := raw.Control(func(fd uintptr) {
		for {
			if n, _, err = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT); err != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return -1
	}
	switch {
	case err == unix.EAGAIN:
		return 0
	case err != nil || n == 0:
		return -1
	}
	return 1
}

// wait makes the connection wait for its first byte. The result is false if the connection cannot be watched.
func (l *listener) wait(c *conn) bool {
	w := &waiting{conn: c}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.until = l.until; w.until.IsZero() {
		w.until = time.Now().Add(l.limit)
	}
	if w.number = l.arrivals.add(c, readable, func() { l.arrived(w) }); w.number == 0 {
		return false
	}
	l.open++
	w.at = l.waiting.PushBack(w)
	switch {
	case l.expiry == nil:
		l.expiry = time.AfterFunc(time.Until(w.until), l.expire)
	case l.waiting.Len() == 1:
		l.expiry.Reset(time.Until(w.until))
	}
	return true
}

// arrived is called for a waiting connection when bytes have arrived or the connection has ended.
func (l *listener) arrived(w *waiting) {
	l.mu.Lock()
	mine := w.at != nil
	if mine {
		l.waiting.Remove(w.at)
		w.at = nil
	}
	l.mu.Unlock()
	if !mine {
		return // the connection has expired
	}
	if first(w.conn) > 0 {
		l.arrivals.release(w.conn)
		l.ready <- w.conn
	} else {
		w.reset()
	}
	l.subtractWaiting(1)
}

// expire closes the connections whose first byte is overdue.
func (l *listener) expire() {
	var late []*waiting
	now := time.Now()
	l.mu.Lock()
	for e := l.waiting.Front(); e != nil; e = l.waiting.Front() {
		w := e.Value.(*waiting)
		if l.until.IsZero() && now.Before(w.until) {
			l.expiry.Reset(w.until.Sub(now))
			break
		}
		l.waiting.Remove(e)
		w.at = nil
		late = append(late, w)
	}
	l.mu.Unlock()
	for _, w := range late {
		l.arrivals.remove(w.number)
		_ = w.Close()
	}
	l.subtractWaiting(len(late))
}

// subtractWaiting subtracts n connections from the number of connections that wait or are being handed over.
func (l *listener) subtractWaiting(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open -= n; l.open == 0 {
		l.none.Broadcast()
	}
}

var _ net.Listener = (*listener)(nil)
