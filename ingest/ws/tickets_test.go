package ws_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws"
)

// A ticket is accepted once; an unknown ticket is refused.
func TestTickets(t *testing.T) {
	r := start(t, ws.Options{})
	resp, err := http.Post("http://"+r.addr+"/v2/tickets", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Ticket, Protocol string }
	err = json.NewDecoder(resp.Body).Decode(&m)
	resp.Body.Close()
	if err != nil || m.Ticket == "" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%+v %v", m, err)
	}
	for i, want := range []int{http.StatusSwitchingProtocols, http.StatusUnauthorized} {
		d := websocket.Dialer{Subprotocols: []string{"millrace.v1", m.Protocol}}
		c, resp, _ := d.Dial("ws://"+r.addr+"/v2/stream", nil)
		if resp == nil || resp.StatusCode != want {
			t.Fatalf("try %d: %+v", i, resp)
		}
		if c != nil {
			if c.Subprotocol() != "millrace.v1" {
				t.Errorf("subprotocol %q", c.Subprotocol())
			}
			c.Close()
		}
	}
}
