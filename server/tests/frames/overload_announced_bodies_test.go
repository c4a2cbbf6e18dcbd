package frames_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// TestAnnouncedBodies: bodies and messages with few bytes received hold little of the budget, whatever length is
// announced, so that other clients are served.
func TestAnnouncedBodies(t *testing.T) {
	const clients, sent, each = 24, 14 << 10, 64 << 10
	// Each function returns a connection and the announcement to send.
	for name, announce := range map[string]func(s *server.Server) (net.Conn, []byte){
		"a body": func(s *server.Server) (net.Conn, []byte) {
			c, err := net.Dial("tcp", s.Addr("http"))
			if err != nil {
				t.Fatal(err)
			}
			return c, fmt.Appendf(nil, "POST /v2/models/find/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "+
				"application/octet-stream\r\nContent-Length: %d\r\n\r\n", 64<<20)
		},
		"a message after a large one": func(s *server.Server) (net.Conn, []byte) {
			ws := servertest.Dial(t, s, "/v2/models/find/stream")
			if got := servertest.Ask(t, ws, websocket.BinaryMessage, servertest.PNG(t, 8, 8,
				4<<20)); !strings.Contains(got, "boxes") {
				t.Error(got)
			}
			return ws.NetConn(), append(binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, 8<<20-1), 0, 0, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
				Memory: config.Memory{Budget: 64 << 20},
				Models: []workers.Config{{Name: "find", Source: "motion", Policy: stream.Policy{Mode: stream.Every}}}})
			before := s.Memory().Stats()
			var open []net.Conn
			var head []byte
			for range clients {
				var c net.Conn
				c, head = announce(s)
				open = append(open, c)
			}
			for _, c := range open { // together, because a begun body must proceed within a time limit
				_, _ = c.Write(append(head, make([]byte, sent)...))
			}
			// The frame of the last large message may be held for a moment longer.
			servertest.Until(t, func() bool {
				m := s.Memory().Stats()
				return m.Leases-before.Leases == clients && m.Leased-before.Leased <= clients*each
			})
			if m := s.Memory().Stats(); m.Denied > 0 {
				t.Errorf("%d clients that sent %d bytes each: %+v", clients, sent, m)
			}
			r, err := http.Post("http://"+s.Addr("http")+"/v2/models/find/infer", "application/octet-stream",
				bytes.NewReader(servertest.PNG(t, 100, 100, 8<<20)))
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != http.StatusOK {
				t.Error(r.Status)
			}
			for _, c := range open {
				c.Close()
			}
			servertest.Until(t, func() bool { return s.Memory().Stats().Leased <= before.Leased })
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShareOfAClient: the bodies and messages of one address hold at most the client's share of the budget over all
// protocols, and so do the bodies and messages of one connection of a trusted proxy.
func TestShareOfAClient(t *testing.T) {
	const budget, size, percent = 64 << 20, 7 << 20, 50
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0",
		Memory: config.Memory{Budget: budget, ClientShare: percent}, Proxies: []string{"127.0.0.9"},
		Models: []workers.Config{{Name: "same", Source: "identity"}}})
	from := func(address string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		c, err := d.Dial("tcp", s.Addr("http"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// send sends a body without its last byte; the reply says whether the body was refused.
	send := func(c net.Conn, n int) {
		_, _ = fmt.Fprintf(c, "POST /v2/models/same/infer?outputs=binary HTTP/1.1\r\nHost: "+
			"127.0.0.1\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", n)
		_, _ = c.Write(make([]byte, n-1)) // fails when the body is refused
	}
	var greedy []net.Conn
	for range 8 {
		c := from("127.0.0.2")
		defer c.Close()
		send(c, size)
		greedy = append(greedy, c)
	}
	servertest.Until(t, func() bool { return s.Memory().Stats().Denied > 0 })
	servertest.Until(t, func() bool {
		m := s.Memory().Stats()
		return m.Leased > 3*size &&
			m.Leased <= budget*percent/100
	})
	refused := 0
	for _, c := range greedy {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		text := make([]byte, 4<<10)
		if n, _ := c.Read(text); n > 0 {
			refused++
			if !bytes.HasPrefix(text, []byte("HTTP/1.1 503 ")) || !bytes.Contains(text, []byte("memory.client_share")) {
				t.Errorf("%q", text[:n])
			}
		}
	}
	if refused < 3 || refused > 5 {
		t.Errorf("%d of %d bodies were refused", refused, len(greedy))
	}
	// the connections of a proxy are clients each
	for _, address := range []string{"127.0.0.3", "127.0.0.9", "127.0.0.9"} {
		c := from(address)
		send(c, size)
		_, _ = c.Write([]byte{0})
		text := make([]byte, 16)
		if n, err := c.Read(text); !bytes.HasPrefix(text, []byte("HTTP/1.1 200 ")) {
			t.Errorf("%s: %q, %v", address, text[:n], err)
		}
		c.Close()
	}
	for _, c := range greedy {
		c.Close()
	}
	servertest.Until(t, func() bool { return s.Memory().Stats().Leased < size })
	if err := stop(); err != nil {
		t.Error(err)
	}
}
