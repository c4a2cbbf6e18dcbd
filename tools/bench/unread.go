package main

import (
	"bytes"
	"fmt"
	"net"
	"time"

	"github.com/gorilla/websocket"

	"millrace/server"
	"millrace/workers"
)

// The budget of the server measured by unread, its clients, and their requests.
const (
	unreadBudget  = 256 << 20
	unreadClients = 30
	unreadSize    = 7 << 20
)

// unread measures the resident memory of a server with clients that never read their large answers in JSON, for each
// protocol with JSON answers.
func unread(b *bench) error {
	payload := bytes.Repeat([]byte{'"'}, unreadSize) // each is two bytes in JSON
	for _, c := range []struct {
		name string
		ask  func(addr string) (net.Conn, error)
	}{
		{"REST", func(addr string) (net.Conn, error) { return unreadHTTP(addr, "infer", payload) }},
		{"events", func(addr string) (net.Conn, error) { return unreadHTTP(addr, "infer_stream", payload) }},
		{"WebSocket", func(addr string) (net.Conn, error) {
			ws, _, err := websocket.DefaultDialer.Dial("ws://"+addr+"/v2/models/same/stream?codec=opaque&policy=every",
				nil)
			if err != nil {
				return nil, err
			}
			return ws.NetConn(), ws.WriteMessage(websocket.BinaryMessage, payload)
		}},
	} {
		used, err := unreadMemory(c.ask)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		row := Row{Name: fmt.Sprintf("resident memory with %d clients that never read, %s", unreadClients, c.name),
			Unit: "of the budget", Millrace: used, Limit: "<= 1.3"}
		row.Met = used <= 1.3
		b.add(row)
	}
	return nil
}

// unreadMemory returns the largest resident memory of this process while clients do not read, minus the memory of a
// server without clients, as a share of the budget.
func unreadMemory(ask func(addr string) (net.Conn, error)) (float64, error) {
	t, err := serve(func(c *server.Config) {
		c.Memory.Budget, c.OwnProcess = unreadBudget, true
	}, workers.Config{Name: "same", Source: "identity"})
	if err != nil {
		return 0, err
	}
	before, err := resident(true)
	if err != nil {
		return 0, err
	}
	var open []net.Conn
	most := before
	for range unreadClients {
		c, err := ask(t.addr) // the server refuses a request by an error
		if c == nil {
			return 0, err
		}
		open = append(open, c)
		now, err := resident(false)
		if err != nil {
			return 0, err
		}
		most = max(most, now)
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		now, err := resident(false)
		if err != nil {
			return 0, err
		}
		most = max(most, now)
	}
	for _, c := range open {
		_ = c.Close()
	}
	return (most - before) / unreadBudget, t.end()
}

// unreadHTTP sends a request to a model that returns its input.
func unreadHTTP(addr, call string, payload []byte) (net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(c, "POST /v2/models/same/%s?outputs=json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "+
		"application/octet-stream\r\nContent-Length: %d\r\n\r\n", call, len(payload))
	if err == nil {
		_, err = c.Write(payload)
	}
	return c, err
}
