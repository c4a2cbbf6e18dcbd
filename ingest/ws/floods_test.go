package ws_test

import (
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/ingest/ws"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
)

// TestFloodsOfAClient: a client disconnected for its pings is refused further connections before the upgrade, and
// gets the time to come back; a web page gets the error over a connection. Another account and another address are
// served.
func TestFloodsOfAClient(t *testing.T) {
	r := start(t, ws.Options{
		Address: func(c *fiber.Ctx) netip.Addr { return netip.MustParseAddr(c.Get("Of-Address", "192.0.2.1")) },
	})
	var all []*client
	const floods = 6
	for range floods {
		all = append(all, r.dial("/v2/models/echo/stream"))
	}
	for _, c := range all { // so many floods outlast this test
		for range 3000 {
			if c.WriteControl(websocket.PingMessage, nil, time.Now().Add(patience)) != nil {
				break
			}
		}
		c.nextError("flow_control", -1, "pings")
		c.closed(int(wire.ClosePolicy))
	}
	dial := func(subprotocol string, header http.Header) (*websocket.Conn, *http.Response) {
		t.Helper()
		d := websocket.Dialer{Subprotocols: []string{subprotocol}}
		c, resp, err := d.Dial("ws://"+r.addr+"/v2/models/echo/stream", header)
		if resp == nil {
			t.Fatal(err)
		}
		return c, resp
	}
	for range 3 { // too few for a flood
		_, resp := dial("", nil)
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusTooManyRequests || wait < 2 || wait > 1<<(floods-1) {
			t.Fatalf("after the floods: %s, to be tried again in %d s", resp.Status, wait)
		}
	}
	c, resp := dial(wire.Subprotocol, http.Header{"Origin": {"http://" + r.addr}})
	if c == nil {
		t.Fatalf("a page: %s", resp.Status)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	page := &v1{Conn: c, t: t}
	if e := page.next(); e.Code != "flow_control" || !e.Fatal || e.RetryAfterMS < 2000 {
		t.Errorf("a page: %+v", e)
	}
	page.ends(int(wire.CloseTooMany))
	for _, other := range []http.Header{{"Of-Account": {"other"}}, {"Of-Address": {"192.0.2.2"}}} {
		c, resp := dial("", other)
		if c == nil {
			t.Fatalf("%v: %s", other, resp.Status)
		}
		c.Close()
	}
	r.until("the refusals are counted", func() bool { return r.ws.Stats().Ends[conn.EndRefused] == floods+3+1 })
}
