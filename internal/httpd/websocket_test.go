package httpd_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/internal/httpd"
)

// sockets answers the first message with itself and closes.
func sockets(s *httpd.Server) {
	u := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	s.App.Get("/echo", func(c *fiber.Ctx) error {
		r, err := httpd.Handshake(c)
		if err != nil {
			return err
		}
		httpd.Hijack(c, func(conn net.Conn, buffered []byte) {
			go func() { // ends with the connection
				ws, err := httpd.Upgrade(&u, conn, buffered, r)
				if err != nil {
					return
				}
				defer ws.Close()
				if kind, text, err := ws.ReadMessage(); err == nil {
					_ = ws.WriteMessage(kind, text)
				}
			}()
		})
		return nil
	})
}

func TestUpgrade(t *testing.T) {
	s := serve(t, httpd.Config{}, sockets)
	ws, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+s.addr+"/echo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if err := ws.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := ws.ReadMessage(); err != nil || string(text) != "hello" {
		t.Errorf("%q %v", text, err)
	}
}

func TestHandshakeRefusals(t *testing.T) {
	s := serve(t, httpd.Config{}, sockets)
	const whole = "GET /echo HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: " +
		"websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n\n"
	for _, c := range [][3]string{
		{"Upgrade: websocket", "Upgrade: h2c", "WebSocket client"},
		{"Connection: Upgrade", "Connection: keep-alive", "WebSocket client"},
		{"Version: 13", "Version: 8", "must be 13"},
		{"AAAAAAAAAAAAAAAAAAAAAA==", "AAAA", "16 bytes"},
		{"AAAAAAAAAAAAAAAAAAAAAA==", "no base64", "16 bytes"},
		{"\n\n", "\nContent-Length: 1\n\nx", "must not have a body"},
		{"\n\n", "\nTransfer-Encoding: chunked\n\n0\n\n", "must not have a body"},
	} {
		a := s.ask(t, strings.Replace(whole, c[0], c[1], 1))
		if a.StatusCode != http.StatusUpgradeRequired || !strings.Contains(a.Error, c[2]) ||
			a.Header.Get("Sec-WebSocket-Version") != "13" {
			t.Errorf("%s: %d %s", c[1], a.StatusCode, a.body)
		}
	}
	if a := s.ask(t, strings.Replace(whole, "\n\n", "\nContent-Length: 0\n\n",
		1)); a.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("a body of no bytes: %d %s", a.StatusCode, a.body)
	}
	// A client that does not wait for the answer is no WebSocket client.
	p := s.dial(t)
	p.send(strings.ReplaceAll(whole, "\n", "\r\n") + "\x81\x80\x00\x00\x00\x00")
	if text, err := io.ReadAll(p.r); strings.Contains(string(text), "101 Switching") {
		t.Errorf("%v %s", err, text)
	}
}
