package server

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/stream"
)

// BenchmarkGate measures how a REST request enters, and the charge for its frame: without keys and quotas, and with
// both.
func BenchmarkGate(b *testing.B) {
	file := filepath.Join(b.TempDir(), "keys.yaml")
	entry, key := access.NewKey("bench", access.Grant{Roles: []string{"infer"}})
	if err := access.WriteKeys(file, []access.Key{entry}); err != nil {
		b.Fatal(err)
	}
	guarded := Config{Quotas: access.Quotas{Requests: 1e9, Frames: 1e9, Bytes: 1e15}}
	guarded.Auth.Keys = file
	for _, c := range []struct {
		name string
		cfg  Config
	}{{"off", Config{}}, {"on", guarded}} {
		b.Run(c.name, func(b *testing.B) {
			s := silent(b, c.cfg)
			ln, err := s.connections.limit.Listen("http", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			peer, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer peer.Close()
			conn, err := ln.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			app := fiber.New()
			var request fasthttp.RequestCtx
			request.Init2(conn, nil, false)
			request.Request.Header.Set(fiber.HeaderAuthorization, "Bearer "+key)
			request.Request.Header.SetContentType(fiber.MIMEOctetStream)
			fc := app.AcquireCtx(&request)
			f := &stream.Frame{Payload: make([]byte, 1024)}
			b.ReportAllocs()
			for b.Loop() {
				need := access.Need{Role: role.Infer, Model: "identity"}
				if answered, err := s.enter(fc, need); answered || err != nil {
					b.Fatal(err)
				}
				client, _ := httpd.ClientOf(fc).(*ingest.Client)
				if err := client.Charge("identity", f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
