package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/server"
	"millrace/workers"
)

// authentication compares requests and frames with a key, to a server that requires keys and has quotas far above the
// usage, with the same requests to a server without keys.
func authentication(b *bench) error {
	file := filepath.Join(b.dir, "keys.yaml")
	entry, key := access.NewKey("bench", access.Grant{Roles: []string{"infer"}})
	if err := access.WriteKeys(file, []access.Key{entry}); err != nil {
		return err
	}
	guarded, err := serve(func(c *server.Config) {
		const much = 1e9
		c.Auth.Keys, c.Quotas = file, access.Quotas{Requests: much, Frames: much, Bytes: 1e15, Decode: 1e6, Loads: much}
	}, workers.Config{Name: "identity", Source: "identity", Instances: 2})
	if err != nil {
		return err
	}
	defer guarded.end()
	for _, c := range []struct {
		name string
		size int
	}{{"1 KB", 1 << 10}, {"30 KB", 30 << 10}} {
		query := fmt.Sprintf("?datatype=UINT8&shape=1,%d&outputs=binary", c.size)
		header := map[string]string{"Inference-Header-Content-Length": "0", fiber.HeaderAuthorization: "Bearer " + key}
		x := newRequester(b.server.infer("identity", query), fiber.MIMEOctetStream, make([]byte, c.size), header)
		y := newRequester(guarded.infer("identity", query), fiber.MIMEOctetStream, make([]byte, c.size), header)
		row, err := b.pair("REST tensor, "+c.name+", with keys and quotas against without", "requests/s", x.rate,
			y.rate)
		x.client.CloseIdleConnections()
		y.client.CloseIdleConnections()
		if err != nil {
			return err
		}
		b.add(row.atLeast(0.97))
	}
	row, err := b.compareEchoWith("WebSocket echo, 30 KB, with keys and quotas against without", 30<<10,
		b.server.stream("identity", wsQuery), guarded.stream("identity", wsQuery),
		http.Header{fiber.HeaderAuthorization: {"Bearer " + key}})
	if err != nil {
		return err
	}
	b.add(row.atLeast(0.97))
	return nil
}

// encrypted compares WebSockets over TLS with plain WebSockets, and with the bare loop over TLS. Client and server
// are one process, so that each frame is encrypted twice and decrypted twice; encryption alone limits the row of 30
// KB to 0.54 (docs/adr/012-websocket.md).
func encrypted(b *bench) error {
	safe, err := serve(func(c *server.Config) {
		c.TLS = config.TLS{SelfSigned: true}
	}, workers.Config{Name: "identity", Source: "identity", Instances: 2})
	if err != nil {
		return err
	}
	defer safe.end()
	for _, c := range []struct {
		name  string
		size  int
		limit float64
	}{{"1 KB", 1 << 10, 0}, {"30 KB", 30 << 10, 0.45}, {"300 KB", 300 << 10, 0}} {
		row, err := b.compareEcho("WebSocket echo, "+c.name+", TLS against plain", c.size,
			b.server.stream("identity", wsQuery), strings.Replace(safe.stream("identity", wsQuery), "ws:", "wss:", 1))
		if err != nil {
			return err
		}
		b.add(row.atLeast(c.limit))
	}
	bare, end, err := echoServer(true)
	if err != nil {
		return err
	}
	defer end()
	row, err := b.compareEcho("WebSocket echo, 30 KB, both over TLS", 30<<10, bare,
		strings.Replace(safe.stream("identity", wsQuery), "ws:", "wss:", 1))
	if err != nil {
		return err
	}
	b.add(row.atLeast(0.82))
	return nil
}
