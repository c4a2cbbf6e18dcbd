package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/records"
)

const (
	wsConns  = 32
	wsWindow = 8
	// wsQuery makes the server echo: every frame is answered with its bytes.
	wsQuery = "?policy=every&window=8&codec=opaque&outputs=binary"
)

func (t *target) stream(model, query string) string {
	return "ws://" + t.addr + "/v2/models/" + model + "/stream" + query
}

// webSocket compares frames a second.
func webSocket(b *bench) error {
	bare, end, err := echoServer(false)
	if err != nil {
		return err
	}
	defer end()
	for _, c := range []struct {
		name  string
		size  int
		limit float64
	}{{"1 KB", 1 << 10, 0.75}, {"30 KB", 30 << 10, 0.82}, {"300 KB", 300 << 10, 0.92}} {
		row, err := b.compareEcho("WebSocket echo, "+c.name, c.size, bare, b.server.stream("identity", wsQuery))
		if err != nil {
			return err
		}
		b.add(row.atLeast(c.limit))
	}
	return nil
}

// compareEcho compares the frames per second answered at two addresses.
func (b *bench) compareEcho(name string, size int, bare, ours string) (Row, error) {
	return b.compareEchoWith(name, size, bare, ours, nil)
}

// compareEchoWith is compareEcho with a header in the handshakes.
func (b *bench) compareEchoWith(name string, size int, bare, ours string, header http.Header) (Row, error) {
	x, err := openEchoClient(bare, size, wsConns, header)
	if err != nil {
		return Row{}, err
	}
	defer x.close()
	y, err := openEchoClient(ours, size, wsConns, header)
	if err != nil {
		return Row{}, err
	}
	defer y.close()
	return b.pair(name, "frames/s", x.rate, y.rate)
}

// echoServer is the bare loop: gorilla on net/http, with a reused buffer
// for each connection, over TLS if asked.
func echoServer(encrypted bool) (url string, end func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	up := websocket.Upgrader{}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := up.Upgrade(w, r, nil)
			if err != nil {
				return
			}
			defer ws.Close()
			var msg []byte
			for {
				kind, r, err := ws.NextReader()
				if err != nil {
					return
				}
				if msg, err = readInto(r, msg[:0]); err != nil {
					return
				}
				if ws.WriteMessage(kind, msg) != nil {
					return
				}
			}
		})}
	scheme := "ws://"
	if encrypted {
		cert := httptest.NewUnstartedServer(nil)
		cert.StartTLS()
		defer cert.Close()
		ln, scheme = tls.NewListener(ln, &tls.Config{Certificates: cert.TLS.Certificates}), "wss://"
	}
	go srv.Serve(ln) // ends with end
	return scheme + ln.Addr().String(), func() { srv.Shutdown(context.Background()) }, nil
}

// readInto reads r to its end into b.
func readInto(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, make([]byte, max(len(b), 4<<10))...)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// echoClient keeps a window of messages in flight on each of its connections, and counts the replies without reading
// their contents.
type echoClient struct {
	conns []*websocket.Conn
	msg   *websocket.PreparedMessage
	size  int
	total atomic.Int64 // replies of the last round, including late replies
}

func openEchoClient(url string, size, conns int, header http.Header) (*echoClient, error) {
	msg, err := websocket.NewPreparedMessage(websocket.BinaryMessage, make([]byte, size))
	if err != nil {
		return nil, err
	}
	p := &echoClient{msg: msg, size: size}
	// of a server in this process
	dialTLS := records.Dialer(new(net.Dialer).DialContext, &tls.Config{InsecureSkipVerify: true})
	for range conns {
		d := &websocket.Dialer{ReadBufferSize: 32 << 10, HandshakeTimeout: 10 * time.Second, NetDialTLSContext: dialTLS}
		c, _, err := d.Dial(url, header)
		if err != nil {
			p.close()
			return nil, err
		}
		p.conns = append(p.conns, c)
	}
	return p, nil
}

func (p *echoClient) close() {
	for _, c := range p.conns {
		c.Close()
	}
}

// rate runs all connections for a time and returns replies a second.
func (p *echoClient) rate(d time.Duration) (float64, error) {
	var in atomic.Int64
	p.total.Store(0)
	var wg sync.WaitGroup
	errs := make(chan error, 2*len(p.conns))
	began := time.Now()
	end := began.Add(d)
	for _, c := range p.conns {
		// The reader waits for one more message.
		inFlight := make(chan struct{}, wsWindow-1)
		wg.Go(func() {
			defer close(inFlight)
			for time.Now().Before(end) {
				inFlight <- struct{}{}
				if err := c.WritePreparedMessage(p.msg); err != nil {
					errs <- err
					return
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			for range inFlight {
				n, err := reply(c, buf)
				if err == nil && n < p.size {
					err = fmt.Errorf("a reply has %d bytes, %d were sent: %q", n, p.size, buf[:min(n, 200)])
				}
				if err != nil {
					errs <- err
					c.Close() // also ends the writer
					for range inFlight {
					}
					return
				}
				p.total.Add(1)
				if time.Now().Before(end) {
					in.Add(1)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return perSecond(in.Load(), p.total.Load(), d, time.Since(began)), errors.Join(all...)
}

// perSecond returns the rate of the replies within d, or of all replies if none came within d.
func perSecond(in, all int64, d, whole time.Duration) float64 {
	if in > 0 {
		return float64(in) / d.Seconds()
	}
	return float64(all) / whole.Seconds()
}

// reply reads one message and returns its length. The last part of the message is then in buf.
func reply(c *websocket.Conn, buf []byte) (n int, err error) {
	_, r, err := c.NextReader()
	for err == nil {
		var m int
		m, err = r.Read(buf)
		n += m
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}
