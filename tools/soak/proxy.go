package main

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
)

// proxy passes TCP connections on to the server, breaks them, and can stop reading what the server sends.
type proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	pairs map[*pair]struct{}
	held  chan struct{} // not nil: nothing is passed on from the server until it is closed
}

// pair is a connection of a client and the one to the server that belongs to it.
type pair struct {
	client, server net.Conn
	// left is how many more bytes of the client are passed on before the pair is reset; 0: it is not reset.
	left atomic.Int64
}

// reset breaks both connections: their ends get a reset, not an orderly end.
func (c *pair) reset() {
	for _, conn := range []net.Conn{c.client, c.server} {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// upload passes on what the client sends, until an end, or until the bytes that are left have been passed on.
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

// pass copies both directions until one of them ends.
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

// wait returns when clients may get what the server has sent.
func (p *proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// hold stops passing on what the server sends, and reading more of it, until release is called.
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

// mostLeft bounds how many bytes of a client are passed on before a reset in the middle of what it sends.
const mostLeft = 64 << 10

// cut resets connections, each with the given probability, and returns their number. Half of them are reset at once, the
// others in the middle of what the client sends next.
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
