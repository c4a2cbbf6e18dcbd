package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/httpd"
	"millrace/internal/wire"
)

// pings sends n pings, one per interval, and returns the number of answers and the close code (0 = not closed).
func pings(t *testing.T, r *rig, n int, every time.Duration) (answered int, code int) {
	ws := r.connect()
	ws.SetPongHandler(func(string) error { answered++; return nil })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, code = readAll(ws)
	}()
	for range n {
		if ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Minute)) != nil {
			break
		}
		time.Sleep(every)
	}
	if n <= httpd.PingBurst {
		synctest.Wait()
		_ = ws.Close()
	}
	<-ended
	<-r.echo.c.gone
	return answered, code
}

// A burst of pings gets answers up to the bound, and pings at the rate of answers get all answers. A flood ends the
// connection with the reason.
func TestPings(t *testing.T) {
	for _, c := range []struct {
		n        int
		every    time.Duration
		min, max int
		code     wire.CloseCode
	}{
		{httpd.PingAnswerBurst, 0, httpd.PingAnswerBurst, httpd.PingAnswerBurst, 0},
		{httpd.PingBurst, 0, httpd.PingAnswerBurst, httpd.PingAnswerBurst, 0},
		// before the first ping of the server
		{2 * httpd.PingAnswerBurst, time.Second / httpd.PingAnswerRate, 2 * httpd.PingAnswerBurst,
			2 * httpd.PingAnswerBurst, 0},
		{httpd.PingBurst + 1, 0, httpd.PingAnswerBurst, httpd.PingAnswerBurst, wire.ClosePolicy},
		{1 << 20, time.Second / (2 * httpd.PingRate), httpd.PingAnswerBurst,
			httpd.PingAnswerBurst + 5*httpd.PingAnswerRate, wire.ClosePolicy},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Idle = time.Hour })
			got, code := pings(t, r, c.n, c.every)
			if c.code == 0 {
				code = 0 // the client has closed the connection
			}
			if got < c.min || got > c.max || code != int(c.code) {
				t.Errorf("%d pings, one every %v: %d answered, close code %d, want %d to %d and %d", c.n, c.every, got,
					code, c.min, c.max, c.code)
			}
			if c.code != 0 && r.echo.ending.Reason != EndRefused {
				t.Errorf("ended as %s: %v", r.echo.ending.Reason, r.echo.ending.Err)
			}
		})
	}
}

// A flood of text messages ends the connection with the reason; an ordinary number of texts does not.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		n     int
		every time.Duration
		code  int
	}{
		{textBurst, 0, websocket.CloseNormalClosure},
		{2 * textBurst, time.Second / textRate, websocket.CloseNormalClosure},
		{textBurst + 1, 0, int(wire.ClosePolicy)},
		{1 << 20, time.Second / (2 * textRate), int(wire.ClosePolicy)},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Idle, o.OutboxMessages = time.Hour, 1<<20 })
			ws := r.connect()
			code, ended := 0, make(chan struct{})
			go func() {
				defer close(ended)
				_, code = readAll(ws)
			}()
			sent := 0
			for ; sent < c.n && ws.WriteMessage(websocket.TextMessage, []byte("{}")) == nil; sent++ {
				time.Sleep(c.every)
			}
			_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
				time.Now().Add(time.Minute))
			<-ended
			<-r.echo.c.gone
			if code != c.code {
				t.Errorf("%d texts, one every %v: close code %d, want %d", sent, c.every, code, c.code)
			}
			_ = ws.Close()
		})
	}
}
