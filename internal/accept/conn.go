package accept

import (
	"container/list"
	"net"
	"sync/atomic"
	"time"

	"millrace/stream/buf"
)

// conn is a connection of TCP. Embedding the connection keeps its fast paths, such as one system call for several
// buffers.
type conn struct {
	*net.TCPConn
	*connInfo
}

// unixConn is a connection of a unix socket.
type unixConn struct {
	*net.UnixConn
	*connInfo
}

// Close implements net.Conn.
func (c *conn) Close() error { return c.end() }

// Close implements net.Conn.
func (c *unixConn) Close() error { return c.end() }

// connInfo is what is known of a connection, which is counted until it is closed.
type connInfo struct {
	of          socket
	listener    *listener
	address     *address // nil = it is not bound
	use         Use      // if address is nil
	requestSent atomic.Bool
	value       atomic.Value

	// Guarded by Limit.mu.
	since                     time.Time // its beginning, or the last MarkActive
	gone                      bool      // it is not counted any more
	silent, ofAddress, ofSite *list.Element
}

// MarkRequestSent marks a connection of this package, on which a complete request was received, with credentials where
// clients need them: it is not closed for another one any more. Repeated calls cost little.
func MarkRequestSent(c net.Conn) {
	if of := countedOf(c); of != nil && !of.requestSent.Load() {
		of.requestSent.Store(true)
		of.listener.limit.mu.Lock()
		defer of.listener.limit.mu.Unlock()
		of.unlist()
	}
}

// MarkActive says that a request without accepted credentials has begun or was answered on a connection of this
// package: it is the last now to be closed for another one, and not within a second. After MarkRequestSent it does
// nothing.
func MarkActive(c net.Conn) {
	of := countedOf(c)
	if of == nil || of.requestSent.Load() {
		return
	}
	m := of.listener.limit
	m.mu.Lock()
	defer m.mu.Unlock()
	if of.silent == nil { // it has ended, has spoken meanwhile, or is busy
		return
	}
	of.since = time.Now()
	of.lists(func(list *list.List, in **list.Element) { list.MoveToBack(*in) })
}

// Busy keeps a connection of this package from being closed for another one until done is called, while its client
// waits for something that the server does for few at once.
func Busy(c net.Conn) (done func()) {
	of := countedOf(c)
	if of == nil || of.requestSent.Load() {
		return func() {}
	}
	m := of.listener.limit
	m.mu.Lock()
	defer m.mu.Unlock()
	of.unlist()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !of.gone && !of.requestSent.Load() {
			of.list(time.Now())
		}
	}
}

// UseOf returns what a client has at once; nil for a connection that is not of this package.
func UseOf(c net.Conn) *Use {
	x := countedOf(c)
	switch {
	case x == nil:
		return nil
	case x.address != nil:
		return &x.address.use
	}
	return &x.use
}

// MemoryOf returns in what the memory of a client's messages counts; nil for a connection that is not of this
// package.
func MemoryOf(c net.Conn) *buf.ClientShare {
	if use := UseOf(c); use != nil {
		return &use.Memory
	}
	return nil
}

// ValueOf returns where the server keeps what it knows of a connection's client; nil for a connection that is not of
// this package.
func ValueOf(c net.Conn) *atomic.Value {
	if x := countedOf(c); x != nil {
		return &x.value
	}
	return nil
}

// countedOf returns what is known of the connection of this package that c is, or is made of.
func countedOf(c net.Conn) *connInfo {
	for {
		switch x := c.(type) {
		case *conn:
			return x.connInfo
		case *unixConn:
			return x.connInfo
		case interface{ NetConn() net.Conn }: // below TLS, or what a protocol has for the connection
			c = x.NetConn()
		default:
			return nil
		}
	}
}

// list adds the connection to the lists of silent ones, as the last to be closed for another one. It is called with
// mu.
func (c *connInfo) list(now time.Time) {
	c.since = now
	c.lists(func(of *list.List, in **list.Element) { *in = of.PushBack(c) })
}

// unlist removes the connection from the lists of silent ones. It is called with mu.
func (c *connInfo) unlist() {
	if c.silent == nil {
		return
	}
	c.lists(func(of *list.List, in **list.Element) {
		of.Remove(*in)
		*in = nil
	})
}

// lists calls a function with each list of silent connections that the connection belongs to, and its place there. It
// is called with mu.
func (c *connInfo) lists(f func(of *list.List, in **list.Element)) {
	f(&c.listener.limit.silent, &c.silent)
	if c.address == nil {
		return
	}
	f(&c.address.silent, &c.ofAddress)
	if c.address.site != nil {
		f(&c.address.site.silent, &c.ofSite)
	}
}

// uncount stops counting the connection. It is called with mu.
func (c *connInfo) uncount() {
	if c.gone {
		return
	}
	c.gone = true
	c.unlist()
	m := c.listener.limit
	m.open--
	c.listener.stats.Open--
	for a := c.address; a != nil; a = a.site {
		if a.open--; a.open == 0 {
			delete(m.addresses, a.of)
		}
	}
}

// end closes the connection and stops counting it.
func (c *connInfo) end() error {
	err := c.of.Close()
	m := c.listener.limit
	m.mu.Lock()
	defer m.mu.Unlock()
	c.uncount()
	if m.reserve == nil && m.listening > 0 {
		m.openReserve()
	}
	return err
}
