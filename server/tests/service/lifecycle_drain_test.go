package service_test

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/internal/wire"
	"millrace/server"
	"millrace/workers"
)

// A client of millrace.v1 sees the end of a server in this order: go-away with the remaining time, the endings of
// frames, the ending of the stream, the close.
func TestDrainBeginsWithGoAway(t *testing.T) {
	cost, err := config.ParseModel("cost=delay,fixed=300ms")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Drain: time.Minute,
		Models: []workers.Config{cost}})
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
	c, _, err := d.Dial("ws://"+s.Addr("http")+"/v2/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	say := func(kind int, b []byte) {
		t.Helper()
		if err := c.WriteMessage(kind, b); err != nil {
			t.Fatal(err)
		}
	}
	say(websocket.TextMessage, []byte(`{"type":"open","sid":1,"model":"cost","policy":{"mode":"every","window":4}}`))
	for seq := range uint64(4) {
		frame := make([]byte, wire.HeaderLen, wire.HeaderLen+1)
		frame[0], frame[1], frame[4] = 1, 1, 1
		binary.LittleEndian.PutUint64(frame[8:], seq)
		say(websocket.BinaryMessage, append(frame, 'x'))
	}
	say(websocket.TextMessage, []byte(`{"type":"ping","t":1}`))
	var order []string // of the messages after the server's end begins
	endings, ended, left := 0, make(chan error, 1), 0
	for {
		_, b, err := c.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseGoingAway) {
				t.Error(err)
			}
			break
		}
		var m struct {
			Type  string
			Seq   *uint64
			Fatal bool
			Left  int `json:"time_left_ms"`
		}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		switch {
		case m.Seq != nil:
			endings++
			if m.Type == "error" && !slices.Contains(order, "goaway") {
				t.Errorf("before goaway: %s", b)
			}
		case m.Type == "pong": // all frames have come
			_, text := servertest.Get(t, s, "/metrics")
			for _, want := range []string{
				`millrace_streams_closed_total{reason="draining"} 0`,
				`millrace_sessions_closed_total{reason="draining"} 0`,
				`millrace_sessions{adapter="ws_waiting"} 0`, "millrace_kept_bytes ",
			} {
				if !strings.Contains(text, "\n"+want) {
					t.Errorf("no metric %s", want)
				}
			}
			go func() { ended <- stop() }()
		case m.Type == "goaway":
			left = m.Left
			order = append(order, m.Type)
		case m.Type == "closed", m.Fatal:
			order = append(order, m.Type)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if want := []string{"goaway", "closed", "error"}; !slices.Equal(order, want) || endings != 4 {
		t.Errorf("%v and %d endings, want %v and 4", order, endings, want)
	}
	if left <= 0 || left > 60_000 {
		t.Errorf("%d ms were left", left)
	}
}
