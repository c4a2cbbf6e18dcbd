package main

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
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
type pair struct{ client, server net.Conn }

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
		c := &pair{client, server}
		p.mu.Lock()
		p.pairs[c] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(c) }) // ends with the connections
	}
}

// pass copies both directions until one of them ends.
func (p *proxy) pass(c *pair) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(c.server, c.client)
		_ = c.server.(*net.TCPConn).CloseWrite()
	})
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

// cut resets connections, each with the given probability, and returns their number.
func (p *proxy) cut(rng *rand.Rand, share float64) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		if rng.Float64() >= share {
			continue
		}
		n++
		for _, conn := range []net.Conn{c.client, c.server} {
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset, not an orderly end
			_ = conn.Close()
		}
	}
	return n
}

func (p *proxy) close() {
	_ = p.ln.Close()
	p.cut(rand.New(rand.NewPCG(0, 0)), 1)
	p.wg.Wait()
}
