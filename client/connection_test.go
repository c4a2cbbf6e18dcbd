package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// peers are servers in memory: the nth server serves the client's nth connection. A nil server refuses the
// connection, and so do servers beyond the end of the list.
type peers struct {
	list  []func(net.Conn)
	dials []time.Time
}

var errRefused = errors.New("refused by the test")

func (p *peers) dial(context.Context, string, string) (net.Conn, error) {
	n := len(p.dials)
	p.dials = append(p.dials, time.Now())
	if n >= len(p.list) || p.list[n] == nil {
		return nil, errRefused
	}
	near, far := net.Pipe()
	go p.list[n](far)
	return near, nil
}

// gaps returns the times between the connections.
func (p *peers) gaps() (out []time.Duration) {
	for i := 1; i < len(p.dials); i++ {
		out = append(out, p.dials[i].Sub(p.dials[i-1]))
	}
	return out
}

// client returns a client of the servers.
func (p *peers) client(t *testing.T) *Client {
	t.Helper()
	c, err := New("server.test:80")
	if err != nil {
		t.Fatal(err)
	}
	c.dialTCP = p.dial
	return c
}

// oneConn is a listener of one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	c := l.conn
	if l.conn = nil; c == nil {
		return nil, io.EOF
	}
	return c, nil
}
func (*oneConn) Close() error   { return nil }
func (*oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// answers serves one HTTP request.
func answers(status int, header, body string) func(net.Conn) {
	return func(c net.Conn) {
		_ = http.Serve(&oneConn{c}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if key, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(key, value)
			}
			w.Header().Set("Connection", "close")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
	}
}

// upgrades accepts a session, sends ready and calls then.
func upgrades(then func(*websocket.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		up := websocket.Upgrader{Subprotocols: []string{wire.Subprotocol}}
		_ = http.Serve(&oneConn{c}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := up.Upgrade(w, r, nil)
			if err != nil {
				return
			}
			defer func() { _ = ws.Close() }()
			say(ws, &wire.Ready{Session: "s", ResumeToken: strings.Repeat("t", 43)})
			then(ws)
		}))
	}
}

func say(ws *websocket.Conn, m wire.Message) {
	text, err := wire.AppendControl(nil, m)
	if err == nil {
		err = ws.WriteMessage(websocket.TextMessage, text)
	}
	if err != nil {
		panic(err)
	}
}

// read reads until the connection ends.
func read(ws *websocket.Conn) {
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			return
		}
	}
}

// cutOff ends the connection without a close message.
func cutOff(*websocket.Conn) {}

// attached replies to attach with m, and then reads until the connection ends.
func attached(m wire.Message) func(*websocket.Conn) {
	return func(ws *websocket.Conn) {
		if _, _, err := ws.ReadMessage(); err == nil {
			say(ws, m)
			read(ws)
		}
	}
}

func resumed() func(net.Conn) {
	return upgrades(attached(&wire.Attached{Session: "s", ResumeToken: strings.Repeat("u", 43)}))
}

// sessionTo opens a session that reports changes of connection on the channel, and closes the session at the end of
// the test.
func sessionTo(t *testing.T, p *peers, giveUp time.Duration) (*Session, chan ConnectionChange) {
	t.Helper()
	changes := make(chan ConnectionChange, 100)
	s, err := p.client(t).Session(t.Context(), SessionOptions{GiveUp: giveUp, OnConnection: func(c ConnectionChange) {
		changes <- c
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, changes
}

// closeSession closes s, and waits until its timers have fired.
func closeSession(s *Session) {
	_ = s.Close()
	time.Sleep(time.Minute)
	synctest.Wait()
}

// Waits between attempts double, up to maxBackoff, and the session continues after an attempt succeeds.
func TestWaitsBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peers{list: []func(net.Conn){upgrades(cutOff), nil, nil, nil, nil, nil, nil, nil, nil, resumed()}}
		s, changes := sessionTo(t, p, 0)
		if c := <-changes; c.State != ConnectionLost || stream.CodeOf(c.Err) != stream.Unavailable {
			t.Errorf("%+v", c)
		}
		if c := <-changes; c.State != ConnectionResumed || c.Err != nil {
			t.Errorf("%+v", c)
		}
		most := 200 * time.Millisecond
		for i, gap := range p.gaps() {
			if gap < most/2 || gap > most {
				t.Errorf("wait %d is %v, want %v to %v", i, gap, most/2, most)
			}
			most = min(2*most, maxBackoff)
		}
		if s.Err() != nil {
			t.Error(s.Err())
		}
		closeSession(s)
	})
}

// A session gives up after GiveUp, at most one wait later.
func TestGiveUp(t *testing.T) {
	for _, giveUp := range []time.Duration{0, 20 * time.Second, -1} {
		synctest.Test(t, func(t *testing.T) {
			p := &peers{list: []func(net.Conn){upgrades(cutOff)}}
			s, _ := sessionTo(t, p, giveUp)
			begin := time.Now()
			<-s.Done()
			want := giveUp
			if giveUp == 0 {
				want = 2 * time.Minute
			}
			if took := time.Since(begin); took < want || took > max(want+maxBackoff, 0) {
				t.Errorf("gave up after %v, want %v", took, want)
			}
			if giveUp < 0 && len(p.dials) != 1 {
				t.Errorf("%d connections tried", len(p.dials))
			}
			if stream.CodeOf(s.Err()) != stream.Unavailable {
				t.Error(s.Err())
			}
			closeSession(s)
		})
	}
}

// TestRetryAfterRefusal: the session waits as long as an overloaded server asks for, and
// does not try again after a permanent refusal.
func TestRetryAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peers{list: []func(net.Conn){
			upgrades(cutOff), answers(503, "Retry-After: 7", `{"error":"draining","code":"draining"}`),
			answers(429, "Retry-After: 9", ""),
			upgrades(attached(&wire.ErrorMessage{Code: "overloaded", Message: "later", RetryAfterMS: 11_500,
				Fatal: true})),
			answers(401, "Retry-After: 3", `{"error":"who are you","code":"unauthenticated"}`), resumed(),
		}}
		s, _ := sessionTo(t, p, 0)
		<-s.Done()
		gaps := p.gaps()
		if len(gaps) != 4 || gaps[1] != 7*time.Second || gaps[2] != 9*time.Second || gaps[3] != 11500*time.Millisecond {
			t.Errorf("waited %v", gaps)
		}
		if err := s.Err(); stream.CodeOf(err) != stream.Unauthenticated || RetryAfter(err) != 3*time.Second ||
			err.Error() != "who are you" {
			t.Error(err)
		}
		closeSession(s)
	})
}

// TestRepliesToAttach: the server's reply decides how the session continues.
func TestRepliesToAttach(t *testing.T) {
	for _, c := range []struct {
		answer wire.Message
		state  ConnectionState
		code   stream.Code
	}{
		{&wire.Attached{Session: "s", ResumeToken: strings.Repeat("u", 43)}, ConnectionResumed, ""},
		{&wire.ErrorMessage{Code: "not_found", Message: "no such session"}, ConnectionReopened, ""},
		{&wire.ErrorMessage{Code: "conflict", Message: "enough", Fatal: true}, "", stream.Conflict},
		{&wire.Opened{SID: 1, CreditLimit: 1}, "", stream.Internal},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peers{list: []func(net.Conn){upgrades(cutOff), upgrades(attached(c.answer))}}
			s, changes := sessionTo(t, p, 0)
			<-changes
			if c.state != "" {
				if got := <-changes; got.State != c.state {
					t.Errorf("%+v: %+v", c.answer, got)
				}
			} else if <-s.Done(); stream.CodeOf(s.Err()) != c.code || len(p.dials) != 2 {
				t.Errorf("%+v: %v after %d connections", c.answer, s.Err(), len(p.dials))
			}
			closeSession(s)
		})
	}
}

// A connection without a byte for idleTimeout fails; a connection with answered pings does not.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pings := 0
		p := &peers{list: []func(net.Conn){upgrades(func(ws *websocket.Conn) {
			answer := ws.PingHandler()
			ws.SetPingHandler(func(data string) error {
				if pings++; pings > 20 {
					return nil
				}
				return answer(data)
			})
			read(ws)
		}), resumed()}}
		s, changes := sessionTo(t, p, 0)
		begin := time.Now()
		c := <-changes
		// The answer to the 20th ping was the last byte.
		if took := time.Since(begin); c.State != ConnectionLost || took != 20*pingInterval+idleTimeout {
			t.Errorf("%+v after %v, %d pings", c, took, pings)
		}
		closeSession(s)
	})
}

// The connection to a server that reads nothing fails.
func TestWritesTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := &timeoutConn{Conn: near}
		begin := time.Now()
		_, err := c.Write([]byte("x"))
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(begin) != idleTimeout {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		c.endWithin(time.Second)
		begin = time.Now()
		_, err = c.Read(make([]byte, 1)) // does not extend the deadline
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		_, _ = near.Close(), far.Close()
	})
}

// Close returns when the server does not reply to the close.
func TestCloseTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peers{list: []func(net.Conn){upgrades(func(ws *websocket.Conn) {
			ws.SetCloseHandler(func(int, string) error { return nil })
			read(ws)
			time.Sleep(time.Hour)
		})}}
		s, _ := sessionTo(t, p, 0)
		begin := time.Now()
		_ = s.Close()
		if took := time.Since(begin); took != closeTimeout || s.Err() != nil {
			t.Errorf("%v, %v", took, s.Err())
		}
		time.Sleep(2 * time.Hour)
	})
}

// A server without millrace.v1 is an error.
func TestForeignHandshakes(t *testing.T) {
	plain := func(c net.Conn) {
		_ = http.Serve(&oneConn{c}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var up websocket.Upgrader
			if ws, err := up.Upgrade(w, r, nil); err == nil {
				read(ws)
				_ = ws.Close()
			}
		}))
	}
	first := func(m string) func(net.Conn) {
		return func(c net.Conn) {
			up := websocket.Upgrader{Subprotocols: []string{wire.Subprotocol}}
			_ = http.Serve(&oneConn{c}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if ws, err := up.Upgrade(w, r, nil); err == nil {
					_ = ws.WriteMessage(websocket.TextMessage, []byte(m))
					read(ws)
					_ = ws.Close()
				}
			}))
		}
	}
	for name, c := range map[string]struct {
		server func(net.Conn)
		code   stream.Code
	}{
		"another protocol": {plain, stream.Unsupported},
		"no message":       {first("hello"), stream.Internal},
		"not ready":        {first(`{"type":"opened","sid":1,"credit_limit":1}`), stream.Internal},
		"no server":        {nil, stream.Unavailable},
		"a gateway":        {answers(502, "", "<html>"), stream.Unavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peers{list: []func(net.Conn){c.server}}
			_, err := p.client(t).Session(t.Context(), SessionOptions{})
			if stream.CodeOf(err) != c.code {
				t.Errorf("%s: %v (%s), want %s", name, err, stream.CodeOf(err), c.code)
			}
			synctest.Wait()
		})
	}
}

// A close code from the server ends the session with the matching error code; after other close codes the session
// reconnects.
func TestCloseCodes(t *testing.T) {
	s := &Session{}
	for code, want := range map[wire.CloseCode]stream.Code{
		wire.CloseNormal: stream.Unavailable, wire.CloseGoingAway: stream.Draining,
		wire.ClosePolicy:   stream.InvalidArgument,
		wire.CloseTooLarge: stream.TooLarge, wire.CloseOverloaded: stream.Overloaded,
		wire.CloseUnauthenticated: stream.Unauthenticated,
		wire.CloseTakenOver:       stream.Conflict, 4999: stream.Internal,
	} {
		lost, err := s.connectionEnd(&websocket.CloseError{Code: int(code)})
		if lost || stream.CodeOf(err) != want {
			t.Errorf("%d: lost %v, %v, want %s", code, lost, err, want)
		}
	}
	for _, why := range []error{
		&websocket.CloseError{Code: websocket.CloseAbnormalClosure},
		&websocket.CloseError{Code: websocket.CloseServiceRestart}, io.ErrUnexpectedEOF,
	} {
		if lost, err := s.connectionEnd(why); !lost || stream.CodeOf(err) != stream.Unavailable ||
			!errors.Is(err, why) {
			t.Errorf("%v: lost %v, %v", why, lost, err)
		}
	}
	s.serverErr = stream.Errorf(stream.Draining, "", "shutting down")
	if lost, err := s.connectionEnd(io.EOF); lost || err != s.serverErr {
		t.Errorf("lost %v, %v", lost, err)
	}
	s.closed = true
	if lost, err := s.connectionEnd(io.EOF); lost || err != nil {
		t.Errorf("lost %v, %v", lost, err)
	}
}

func TestIsTemporary(t *testing.T) {
	for code, want := range map[stream.Code]bool{
		stream.Unavailable: true, stream.Overloaded: true, stream.Timeout: true, stream.Draining: true,
		stream.Unauthenticated: false, stream.PermissionDenied: false, stream.NotFound: false, stream.Internal: false,
		stream.InvalidArgument: false,
	} {
		if got := isTemporary(fmt.Errorf("wrapped: %w", stream.Errorf(code, "", "x"))); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
}
