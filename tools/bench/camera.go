package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// cameraState is how a camera behaves.
type cameraState int

const (
	healthy cameraState = iota
	stalled             // keeps its connections and sends nothing
	killed              // resets all connections, including new connections
)

// camera is a network camera: motion JPEG over HTTP, at a fixed rate.
type camera struct {
	ln     net.Listener
	frames [][]byte
	every  time.Duration
	wg     sync.WaitGroup

	mu    sync.Mutex
	state cameraState
	conns map[net.Conn]struct{}
	done  bool
}

func newCamera(frames [][]byte, fps float64) (*camera, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &camera{ln: ln, frames: frames, every: time.Duration(float64(time.Second) / fps),
		conns: map[net.Conn]struct{}{}}
	c.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed
			}
			c.wg.Go(func() { c.serve(conn) })
		}
	})
	return c, nil
}

func (c *camera) url() string { return "http://" + c.ln.Addr().String() + "/live.mjpg" }

// set changes how the camera behaves.
func (c *camera) set(h cameraState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = h
	if h == killed {
		c.reset()
	}
}

// reset resets all connections. c.mu is held.
func (c *camera) reset() {
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0) // sends RST
		_ = conn.Close()
	}
}

func (c *camera) close() {
	c.mu.Lock()
	c.done = true
	c.reset()
	c.mu.Unlock()
	_ = c.ln.Close()
	c.wg.Wait()
}

// enter registers a connection, to be reset when the camera is killed or closed.
func (c *camera) enter(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[conn] = struct{}{}
	if c.state == killed || c.done {
		c.reset()
	}
}

func (c *camera) now() cameraState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *camera) serve(conn net.Conn) {
	c.enter(conn)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
		_ = conn.Close()
	}()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	_, err := fmt.Fprint(conn, "HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n")
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for n := 0; err == nil; n++ {
		<-tick.C
		if c.now() != healthy {
			// Detect a closed connection, visible only by reading.
			err = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, e := conn.Read(make([]byte, 1)); e != nil && !timedOut(e) {
				return
			}
			continue
		}
		frame := c.frames[n%len(c.frames)]
		if _, err = fmt.Fprintf(conn, "--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n",
			len(frame)); err == nil {
			_, err = conn.Write(append(frame[:len(frame):len(frame)], "\r\n"...))
		}
	}
}

func timedOut(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
