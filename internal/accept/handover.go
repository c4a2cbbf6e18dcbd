package accept

import (
	"net"
	"os"
	"time"

	"millrace/internal/handover"
)

// inherit returns the socket that another server has passed on for a listener; nil = none.
func (l *Limit) inherit(name, addr string) (net.Listener, error) {
	if l.Inherit == nil {
		return nil, nil
	}
	return l.Inherit(socketName(name, addr))
}

// socketName tells the listeners of one server apart, and is the same for the same settings of another server.
func socketName(name, addr string) string { return name + " " + addr }

// Sockets returns the open listeners, for another server.
func (l *Limit) Sockets() (all []handover.Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.listeners {
		select {
		case <-ln.closed:
			continue
		default:
		}
		if inner, ok := ln.Listener.(interface{ File() (*os.File, error) }); ok {
			all = append(all, handover.Socket{Name: socketName(ln.name, ln.addr), File: inner.File})
		}
	}
	return all
}

// Pause makes all listeners stop accepting. Connections wait in the queues of their sockets, for another server. The
// files of unix sockets stay when the listeners are closed.
func (l *Limit) Pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.listeners {
		if inner, ok := ln.Listener.(*socketListener); ok {
			inner.kept.Store(true)
		}
		if inner, ok := ln.Listener.(interface{ SetDeadline(time.Time) error }); ok {
			_ = inner.SetDeadline(time.Unix(1, 0)) // fails for a closed listener, which accepts nothing
		}
	}
}

// Open returns the number of open connections.
func (l *Limit) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}
