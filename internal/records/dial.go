package records

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// DialFunc dials a connection.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer returns a function that dials TLS connections over those of dial, and does the
// handshake within ctx. config says how to verify the server; nil = by its name in the
// address, and the system's certificate authorities. The records of one Write on such a
// connection leave in one system call for each 64 KiB. After a Write that has failed, nothing
// more can be written.
func Dialer(dial DialFunc, config *tls.Config) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		inner, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{below: &plainConn{Conn: inner}}
		c.Conn = tls.Client(c.below, named(config, addr))
		if err := c.HandshakeContext(ctx); err != nil {
			_ = inner.Close()
			return nil, err
		}
		return c, nil
	}
}

// named returns config with the name of the server at addr, if it has none.
func named(config *tls.Config, addr string) *tls.Config {
	if config != nil && config.ServerName != "" {
		return config
	}
	if config = config.Clone(); config == nil {
		config = &tls.Config{}
	}
	host, _, err := net.SplitHostPort(addr)
	if config.ServerName = host; err != nil {
		config.ServerName = addr
	}
	return config
}

type conn struct {
	*tls.Conn
	below   *plainConn
	writing sync.Mutex // held while below is corked
}

// plainConn is the connection below TLS.
type plainConn struct {
	net.Conn
	cork Cork
}

// rooms have room for four full records.
var rooms = sync.Pool{New: func() any { b := make([]byte, 4*(Max+256)); return &b }}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) <= Max { // one record, but for the first ones of a connection, which are shorter
		return c.Conn.Write(p)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	room := rooms.Get().(*[]byte)
	defer rooms.Put(room)
	c.below.cork.Start(*room)
	n, err := c.Conn.Write(p)
	return n, cmp.Or(err, c.below.cork.Stop(c.below.Conn.Write))
}

// Write implements net.Conn.
func (c *plainConn) Write(p []byte) (int, error) {
	if n, taken, err := c.cork.Collect(p, c.Conn.Write); taken {
		return n, err
	}
	return c.Conn.Write(p)
}

var _ net.Conn = (*conn)(nil)
