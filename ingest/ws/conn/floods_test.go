package conn

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/coded"
)

// clientAt returns the n-th of many addresses as a client.
func clientAt(n int) Client {
	return Client{Address: netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(n))))}
}

// The wait after a flood doubles with each further flood up to a bound, is told to the client, and is forgotten after
// a quiet time.
func TestFloods(t *testing.T) {
	var f floods
	now := time.Unix(1e9, 0)
	by, quietBefore := clientAt(1), time.Duration(0)
	for _, c := range []struct {
		after, wait time.Duration // since the flood before; wait: further connections are refused for this time
	}{
		{0, time.Second}, {0, 2 * time.Second}, {59 * time.Second, 4 * time.Second}, {0, 8 * time.Second},
		{0, 16 * time.Second}, {0, 32 * time.Second}, {0, 64 * time.Second}, {0, 64 * time.Second},
		{127 * time.Second, 64 * time.Second}, {128 * time.Second, time.Second}, {time.Minute - 1, 2 * time.Second},
		{time.Minute, time.Second},
	} {
		now = now.Add(c.after)
		if got := f.note(by, now); got != c.wait {
			t.Errorf("%v after a flood that had %v refused: %v, want %v", c.after, quietBefore, got, c.wait)
		}
		quietBefore = c.wait
		for _, at := range []time.Duration{0, c.wait - 1} {
			if err := f.check(by, now.Add(at)); stream.CodeOf(err) != stream.FlowControl ||
				err.(*stream.Error).After != c.wait-at {
				t.Errorf("%v after a flood, of %v: %v", at, c.wait, err)
			}
		}
		for _, other := range []Client{clientAt(2), {Address: by.Address, Account: new(access.Account)}, {}} {
			if err := f.check(other, now); err != nil {
				t.Errorf("%v: %v", other, err)
			}
		}
		if err := f.check(by, now.Add(c.wait)); err != nil {
			t.Errorf("%v after a flood: %v", c.wait, err)
		}
	}
}

// At most maxFloods clients are remembered; the oldest is forgotten first, and quiet clients leave nothing.
func TestFloodsAreBounded(t *testing.T) {
	var f floods
	now := time.Unix(1e9, 0)
	for n := range maxFloods {
		f.note(clientAt(n), now)
	}
	f.note(clientAt(0), now) // no longer the oldest
	f.note(clientAt(maxFloods), now)
	for n, refused := range map[int]bool{0: true, 1: false, 2: true, maxFloods: true} {
		if err := f.check(clientAt(n), now); (err != nil) != refused {
			t.Errorf("client %d: %v", n, err)
		}
	}
	if len(f.of) != maxFloods || f.queue.Len() != maxFloods {
		t.Errorf("%d and %d clients are remembered", len(f.of), f.queue.Len())
	}
	f.note(clientAt(1), now.Add(leastQuiet))
	if len(f.of) != 1 || f.queue.Len() != 1 {
		t.Errorf("%d and %d clients are remembered later", len(f.of), f.queue.Len())
	}
}

// A flood of pings or texts ends the connection with an error that names the wait. During the wait the client is
// refused; other clients are not.
func TestNoRoomAfterAFlood(t *testing.T) {
	for name, kind := range map[string]int{"pings": websocket.PingMessage, "texts": websocket.TextMessage} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.OutboxMessages = 1 << 20 })
				r.client = clientAt(1)
				for n, wait := range []time.Duration{firstWait, 2 * firstWait, 4 * firstWait} {
					ws := r.connect()
					ended := make(chan struct{})
					go func() { defer close(ended); readAll(ws) }()
					for ws.WriteMessage(kind, []byte("{}")) == nil {
					}
					<-ended
					<-r.echo.c.gone
					if e := r.echo.ending; e.Reason != EndRefused || e.Code != wire.ClosePolicy ||
						coded.RetryAfter(e.Err) != wait {
						t.Errorf("flood %d: %+v, want to be told %v", n, e, wait)
					}
					if err := r.Admit(r.client); stream.CodeOf(err) != stream.FlowControl {
						t.Errorf("flood %d: room for more: %v", n, err)
					}
					if err := r.Admit(clientAt(2)); err != nil {
						t.Errorf("flood %d: no room for another client: %v", n, err)
					}
					time.Sleep(wait)
					if err := r.Admit(r.client); err != nil {
						t.Errorf("flood %d: no room %v later: %v", n, wait, err)
					}
				}
			})
		})
	}
}

// A client that reconnects continues with its used bursts. The bursts recover with time. Another client has its own
// bursts.
func TestBurstsOfAClient(t *testing.T) {
	for _, c := range []struct {
		name        string
		kind, burst int
		rate        float64
	}{{"pings", websocket.PingMessage, httpd.PingBurst, httpd.PingRate}, {"texts", websocket.TextMessage, textBurst,
		textRate}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.OutboxMessages = 1 << 20 })
				// send sends n messages as a client, and reports whether the messages ended the connection.
				send := func(by Client, n int) bool {
					r.client = by
					ws := r.connect()
					code, ended := 0, make(chan struct{})
					go func() { defer close(ended); _, code = readAll(ws) }()
					for range n {
						if ws.WriteMessage(c.kind, []byte("{}")) != nil {
							break
						}
					}
					_ = ws.WriteMessage(websocket.CloseMessage,
						websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
					<-ended
					<-r.echo.c.gone
					return code == int(wire.ClosePolicy)
				}
				by := clientAt(1)
				for range 2 {
					if send(by, c.burst/2) {
						t.Error("a burst in two parts is too much")
					}
				}
				if send(clientAt(2), c.burst) {
					t.Error("the burst of another client is too much")
				}
				time.Sleep(time.Second)
				if send(by, int(c.rate)) {
					t.Error("what comes back in a second is too much")
				}
				time.Sleep(time.Second)
				if !send(by, int(c.rate)+1) {
					t.Error("it has a new burst")
				}
				time.Sleep(time.Duration(float64(c.burst)/c.rate) * time.Second)
				if send(by, c.burst) {
					t.Error("a burst is too much later")
				}
			})
		})
	}
}

// Of a client's connections, the largest used burst counts for the next connection.
func TestMostOfBursts(t *testing.T) {
	var f floods
	now := time.Unix(1e9, 0)
	used := func(pings, texts float64) burstUse {
		return burstUse{httpd.Bucket{Used: pings, At: now}, httpd.Bucket{Used: texts, At: now}}
	}
	f.keep(clientAt(1), used(500, 1000), now)
	f.keep(clientAt(1), used(400, 3000), now)
	f.note(clientAt(1), now)
	if got := f.used(clientAt(1)); got != used(500, 3000) {
		t.Errorf("%+v", got)
	}
	if got := f.used(clientAt(2)); got != (burstUse{}) {
		t.Errorf("another client: %+v", got)
	}
	now = now.Add(time.Second)
	f.keep(clientAt(1), used(300, 600), now)
	if got := f.used(clientAt(1)); got != used(300, 3000-textRate) {
		t.Errorf("later: %+v", got)
	}
}
