// Package accept listens at addresses, and at unix sockets, and accepts connections for all protocols. It owns the
// files of the sockets, and the bounds of open connections, of all listeners of a server together and of each client
// address. At a bound, and when the process has no free file descriptor, it closes the oldest silent connection for
// the new one. It must not know the protocol of a connection: who serves one calls MarkRequestSent when its client has
// sent a complete request, with credentials where clients need them, and MarkActive for the others.
package accept

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/backoff"
	"millrace/stream/buf"
)

// silence is how long a connection is idle, from its beginning or since MarkActive, before it may be closed for another
// one.
const silence = time.Second

// Limit bounds and counts the open connections. The zero Limit has no bound.
type Limit struct {
	Max        int            // limits.max_connections, see Bound; 0 = no bound
	PerAddress int            // limits.max_connections_per_address; 0 = no bound
	Trusted    []netip.Prefix // addresses without the bound PerAddress
	Log        *slog.Logger   // nil = slog.Default()

	// Inherit returns the socket of a listener, by its name in Sockets, that another server has passed on; nil = none.
	Inherit func(name string) (net.Listener, error)

	mu        sync.Mutex
	listeners []*listener
	listening int                       // of them, how many are not closed
	open      int                       // connections
	addresses map[netip.Prefix]*address // those with the bound PerAddress and open connections
	silent    list.List                 // of *counted, the oldest by since first: those without MarkRequestSent
	reserve   *os.File                  // a descriptor that is closed to accept a connection when there is no other
}

// siteBits are of the range of IPv6 that one client can be given at most, and siteShare is how many times PerAddress
// it may have.
const (
	siteBits  = 48
	siteShare = 4
)

// address is a client's address: one of IPv4, or the first 64 bits of one of IPv6, which is
// what one client is given; or a site.
type address struct {
	of     netip.Prefix
	bound  int // of open
	open   int
	silent list.List // as Limit.silent
	use    Use
	site   *address // the range of IPv6, of siteBits, in which it is; nil of others
}

// Use is what a client has at once of what protocols bound for each: its address, or its connection if the address
// has no bounds.
type Use struct {
	Memory  buf.ClientShare // of its messages and calls
	Waiting atomic.Int64    // calls that need no credentials and whose message has not come

	Watchers atomic.Int64 // calls that watch whether the server is well
}

// Stats are the counters of one listener.
type Stats struct {
	Open           int64  // open connections
	Refused        uint64 // connections closed at once because of Max
	RefusedAddress uint64 // because of PerAddress
	RefusedNoFile  uint64 // because the process had no free file descriptor
	Shed           uint64 // silent connections closed for another one
	Failed         uint64 // attempts to accept that failed, for example without a free file descriptor
}

// Stats returns the counters by the names of the listeners.
func (l *Limit) Stats() map[string]Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Stats{}
	for _, ln := range l.listeners {
		st := ln.stats
		st.Failed = ln.failed.Load()
		if before, ok := out[ln.name]; ok { // httpd.Server.ListenAlso has the name of the first listener
			st = Stats{
				st.Open + before.Open, st.Refused + before.Refused, st.RefusedAddress + before.RefusedAddress,
				st.RefusedNoFile + before.RefusedNoFile, st.Shed + before.Shed, st.Failed + before.Failed,
			}
		}
		out[ln.name] = st
	}
	return out
}

// Silent returns how many connections may be closed for others, sooner or later: those without MarkRequestSent.
func (l *Limit) Silent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent.Len()
}

// Bound returns how many connections the process can have open: wanted, or fewer if the
// limit of its open files, which is the second result, does not leave as many beside those
// that it needs for other things.
func Bound(wanted int) (possible int, files uint64) {
	const others = 512
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return wanted, 0
	}
	left := r.Cur - min(others, r.Cur/4)
	return int(max(1, min(uint64(wanted), left))), r.Cur
}

// Listen listens at a TCP address. name is the listener's name in Stats and in the log.
// The error says what to do and does not contain the name.
func (l *Limit) Listen(name, addr string) (net.Listener, error) {
	inner, err := l.inherit(name, addr)
	if inner == nil && err == nil {
		inner, err = net.Listen("tcp", addr)
	}
	if err != nil {
		return nil, explain(addr, err)
	}
	return l.bound(name, addr, inner), nil
}

// bound returns the listener that accepts from inner within the limit.
func (l *Limit) bound(name, addr string, inner net.Listener) net.Listener {
	ln := &listener{Listener: inner, name: name, addr: addr, limit: l, closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, ln)
	if l.listening++; l.listening == 1 {
		l.openReserve()
	}
	return ln
}

// explain returns the error of an address that cannot be listened at, with what to do.
func explain(addr string, err error) error {
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		return fmt.Errorf("the host of %s is not known: give an address of this machine, or 0.0.0.0 for all (%w)",
			addr, lookup)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use: end the program that listens there, or choose another address (%w)", addr,
			syscall.EADDRINUSE)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine: choose one that it has, or 0.0.0.0 for all (%w)",
			addr, syscall.EADDRNOTAVAIL)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the server's user may not listen at %s: choose a port above 1023, or allow it (%w)", addr,
			syscall.EACCES)
	}
	return err
}

// listener accepts within the limit.
type listener struct {
	net.Listener
	name  string
	addr  string // as configured
	limit *Limit

	once   sync.Once
	closed chan struct{}

	failed atomic.Uint64
	stats  Stats     // guarded by Limit.mu, without Failed
	said   time.Time // the last line in the log; used by Accept only
}

// Accept implements net.Listener. It returns an error only when the listener was closed. It
// closes connections above a bound, or a silent one for them. Without a free file descriptor
// it uses that of the reserve. After another failure it waits and tries again.
func (l *listener) Accept() (net.Conn, error) {
	wait := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil, err
			}
			if errors.Is(err, os.ErrDeadlineExceeded) { // see Pause
				<-l.closed
				return nil, net.ErrClosed
			}
			l.failed.Add(1)
			l.warn("a connection cannot be accepted: raise the limit of open files (ulimit -n), or lower "+
				"limits.max_connections", "error", err)
			if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && l.limit.takeReserve() {
				continue
			}
			if !l.sleep(wait.Next(rand.Float64())) {
				return nil, net.ErrClosed
			}
			continue
		}
		wait.Reset()
		if c := l.admit(c, c.RemoteAddr()); c != nil {
			return c, nil
		}
	}
}

// socket is what net.TCPConn and net.UnixConn have in common.
type socket interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
}

// admit returns the connection to be served, nil when it was closed because of a bound. from is its client's address.
func (l *listener) admit(c net.Conn, from net.Addr) net.Conn {
	m, now := l.limit, time.Now()
	m.mu.Lock()
	a := m.addressOf(from)
	var refused *uint64
	var why string
	var bound int
	full := m.full(a, now)
	switch {
	case full != nil && full != a:
		refused, why, bound = &l.stats.RefusedAddress, "a connection was refused: four times "+
			"limits.max_connections_per_address are open from its range of IPv6 (/48)", full.bound
	case full != nil:
		refused, why, bound = &l.stats.RefusedAddress,
			"a connection was refused: limits.max_connections_per_address are open from its address", full.bound
	case m.Max > 0 && m.open >= m.Max && !m.shed(&m.silent, now):
		refused, why, bound = &l.stats.Refused, "a connection was refused: limits.max_connections are open", m.Max
	// The descriptor was that of the reserve: another connection gives its own.
	case m.reserve == nil && !m.openReserve() && !m.shed(&m.silent, now):
		refused, why = &l.stats.RefusedNoFile,
			"a connection was refused: the process has no free file descriptor (ulimit -n)"
	}
	if refused != nil {
		*refused++
		_ = c.Close()
		if m.reserve == nil {
			m.openReserve()
		}
		m.mu.Unlock()
		l.warn(why, "limit", bound, "address", from.String())
		return nil
	}
	defer m.mu.Unlock()
	kept := &connInfo{of: c.(socket), listener: l, address: a}
	m.open++
	l.stats.Open++
	for ; a != nil; a = a.site {
		if a.open++; a.open == 1 {
			m.addresses[a.of] = a
		}
	}
	kept.list(now)
	if c, ok := c.(*net.UnixConn); ok {
		return &unixConn{c, kept}
	}
	return &conn{c.(*net.TCPConn), kept}
}

// Client returns the address by which a client is bounded, the zero address if it is one of
// Trusted.
func (l *Limit) Client(c net.Addr) netip.Addr {
	remote, ok := c.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	of := remote.AddrPort().Addr().Unmap()
	for _, p := range l.Trusted {
		if p.Contains(of.WithZone("")) {
			return netip.Addr{}
		}
	}
	if of.Is6() {
		p, _ := of.Prefix(64) // also removes the zone
		of = p.Addr()
	}
	return of
}

// addressOf returns the address of a client that is bound by PerAddress, nil for others. It
// is called with mu.
func (l *Limit) addressOf(c net.Addr) *address {
	of := l.Client(c)
	if l.PerAddress == 0 || !of.IsValid() {
		return nil
	}
	if of.Is4() {
		return l.addressAt(of, 32, l.PerAddress)
	}
	a := l.addressAt(of, 64, l.PerAddress)
	if a.site == nil {
		a.site = l.addressAt(of, siteBits, siteShare*l.PerAddress)
	}
	return a
}

// addressAt returns the address, or site, that is the first bits of one. It is called with mu.
func (l *Limit) addressAt(of netip.Addr, bits, bound int) *address {
	at, _ := of.Prefix(bits)
	if l.addresses == nil {
		l.addresses = map[netip.Prefix]*address{}
	}
	if a := l.addresses[at]; a != nil {
		return a
	}
	return &address{of: at, bound: bound}
}

// full returns the address, or its site, that has as many connections as it may have of which none could be closed
// for another one; nil = there is none. It is called with mu.
func (l *Limit) full(a *address, now time.Time) *address {
	for ; a != nil; a = a.site {
		if a.open >= a.bound && !l.shed(&a.silent, now) {
			return a
		}
	}
	return nil
}

// shed ends the oldest connection of a list if it was silent for long enough, and reports
// whether it did. It is called with mu. The connection's descriptor is free soon after, when
// the connection's owner closes it: it is shut down here and not closed, since fasthttp panics
// if it cannot set a deadline.
func (l *Limit) shed(of *list.List, now time.Time) bool {
	oldest := of.Front()
	if oldest == nil {
		return false
	}
	c := oldest.Value.(*connInfo)
	if now.Sub(c.since) < silence {
		return false
	}
	c.listener.stats.Shed++
	c.uncount()
	_, _ = c.of.CloseRead(), c.of.CloseWrite()
	return true
}

// openReserve opens the reserve, and reports whether it could. It is called with mu.
func (l *Limit) openReserve() bool {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return false
	}
	l.reserve = f
	return true
}

// takeReserve closes the reserve, so that one connection can be accepted. When there is none
// it ends a silent connection and returns false.
func (l *Limit) takeReserve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserve == nil {
		l.shed(&l.silent, time.Now())
		return false
	}
	_ = l.reserve.Close()
	l.reserve = nil
	return true
}

// warn writes a line to the log, at most one a second: clients can cause any number.
func (l *listener) warn(text string, args ...any) {
	now := time.Now()
	if !l.said.IsZero() && now.Sub(l.said) < time.Second {
		return
	}
	l.said = now
	l.log().Warn(text, append([]any{"listener", l.name}, args...)...)
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
		m := l.limit
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.listening--; m.listening == 0 && m.reserve != nil {
			_ = m.reserve.Close()
			m.reserve = nil
		}
	})
	return err
}
