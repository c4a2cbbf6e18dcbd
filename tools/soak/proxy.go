package main

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
)

// proxy passes TCP connections on to the server, breaks connections, and can stop reading from the server.
type proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	pairs map[*pair]struct{}
	held  chan struct{} // not nil: data from the server wait until held is closed
}

// pair is a client's connection and the matching connection to the server.
type pair struct {
	client, server net.Conn
	// left is the number of client bytes passed on before the pair is reset; 0: no reset.
	left atomic.Int64
}

// reset breaks both connections: their ends get a reset, not an orderly end.
func (c *pair) reset() {
	for _, conn := range []net.Conn{c.client, c.server} {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// upload passes on the client's data, until an end, or until left bytes have been passed on.
func (c *pair) upload() {
	buf := make([]byte, 4<<10)
	for {
		n, err := c.client.Read(buf)
		left := c.left.Load()
		if left > 0 && int64(n) >= left {
			_, _ = c.server.Write(buf[:left])
			c.reset()
			return
		}
		if left > 0 {
			c.left.Add(-int64(n))
		}
		if n > 0 {
			if _, err := c.server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = c.server.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

func newProxy(target string) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{target: target, ln: ln, pairs: map[*pair]struct{}{}}
	p.wg.Go(p.accept) // ends with the listener
	return p, nil
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &pair{client: client, server: server}
		p.mu.Lock()
		p.pairs[c] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(c) }) // ends with the connections
	}
}

// pass copies both directions until either ends.
func (p *proxy) pass(c *pair) {
	var wg sync.WaitGroup
	wg.Go(c.upload)
	buf := make([]byte, 4<<10)
	for {
		n, err := c.server.Read(buf)
		if p.wait(); n > 0 {
			if _, err := c.client.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = c.client.Close()
	_ = c.server.Close()
	wg.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// wait returns when clients may get the server's data.
func (p *proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// hold stops reading and passing on the server's data until release is called.
func (p *proxy) hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		return func() {}
	}
	held := make(chan struct{})
	p.held = held
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.held = nil
		p.mu.Unlock()
		close(held)
	})
}

// mostLeft bounds the client bytes passed on before a reset in the middle of the data.
const mostLeft = 64 << 10

// cut resets connections, each with the given probability, and returns their number. Half of the connections are
// reset at once, the other half in the middle of the client's next data.
func (p *proxy) cut(rng *rand.Rand, share float64) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		if rng.Float64() >= share {
			continue
		}
		if n++; rng.IntN(2) == 0 {
			c.left.CompareAndSwap(0, 1+rng.Int64N(mostLeft))
			continue
		}
		c.reset()
	}
	return n
}

func (p *proxy) close() {
	_ = p.ln.Close()
	p.mu.Lock()
	for c := range p.pairs {
		c.reset()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
