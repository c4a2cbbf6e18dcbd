package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
)

// A frame of two records is a single write below TLS, and arrives whole.
func TestRecords(t *testing.T) {
	h := httptest.NewTLSServer(nil)
	h.Close()
	got := make(chan int, 1)
	p := &peers{list: []func(net.Conn){func(c net.Conn) {
		upgrades(func(ws *websocket.Conn) {
			_, msg, _ := ws.ReadMessage()
			got <- len(msg)
			read(ws)
		})(tls.Server(c, &tls.Config{Certificates: h.TLS.Certificates}))
	}}}
	c, err := NewTLS("https://example.com", h.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Int32
	c.dialTCP = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := p.dial(ctx, network, addr)
		return &countedConn{c, &writes}, err
	}
	s := &Session{c: c, ctx: t.Context()}
	conn, _, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	writes.Store(0)
	const size = 30 << 10
	if err := s.writeMedia(conn, &message{body: [][]byte{make([]byte, size)}}); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n < size || writes.Load() != 1 {
		t.Errorf("%d bytes have arrived, in %d writes", n, writes.Load())
	}
	_ = conn.Close()
}

type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
