package conn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

const (
	pingEvery = 10 * time.Second
	pongWait  = 5 * time.Second
	writeWait = 3 * time.Second
	most      = 100_000
)

// echo is a protocol; it records messages and the end of the connection.
type echo struct {
	c      *Conn
	open   error
	text   func(string) // handles a text; may be nil
	got    []string     // the messages, by kind and length
	ending Ending
}

func (e *echo) Open() error { return e.open }

func (e *echo) Binary(r io.Reader) error {
	lease, err := e.c.Lease(r)
	if err != nil {
		return err
	}
	defer lease.Release()
	for i, b := range lease.Bytes() {
		if b != byte(i%251) {
			return fmt.Errorf("byte %d of %d is %d", i, lease.Len(), b)
		}
	}
	e.got = append(e.got, fmt.Sprint("binary ", lease.Len()))
	return nil
}

func (e *echo) Text(msg []byte) {
	e.got = append(e.got, fmt.Sprint("text ", len(msg)))
	if e.text != nil {
		e.text(string(msg))
	}
}

func (e *echo) Close(ending Ending) {
	e.ending = ending
	e.c.Drain(func() {})
}

// rig is a registry with one connection over a pipe.
type rig struct {
	*Registry
	t      *testing.T
	mem    *buf.Pool
	form   Form
	wrap   func(net.Conn) net.Conn // of the server's end
	echo   *echo
	reject error
	client Client
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	o := Options{PingEvery: pingEvery, PongWait: pongWait, WriteWait: writeWait, Log: slog.New(slog.DiscardHandler)}
	o.MaxSessions, o.MaxMessage, o.OutboxMessages, o.OutboxBytes = 2, most, 4, 1<<20
	if change != nil {
		change(&o)
	}
	r := &rig{Registry: NewRegistry(o), t: t, mem: buf.NewPool(0), echo: &echo{}}
	r.wrap = func(c net.Conn) net.Conn { return c }
	r.form.Error = func(err error, fatal bool) []byte { return fmt.Appendf(nil, "%s %v", stream.CodeOf(err), fatal) }
	return r
}

// connect makes a connection and returns the client's end.
func (r *rig) connect() *websocket.Conn {
	r.t.Helper()
	near, far := net.Pipe()
	go func() {
		req, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			r.t.Error(err)
			return
		}
		r.echo.c = r.New(r.wrap(far), r.mem, r.form)
		r.Start(r.echo.c, r.echo, r.client, r.reject, req, nil)
	}()
	d := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
	ws, _, err := d.Dial("ws://server.test/", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return ws
}

// ended waits for the end of the connection, and checks the reason and the time since begin.
func (r *rig) ended(begin time.Time, why End, after time.Duration) {
	r.t.Helper()
	<-r.echo.c.gone
	if took := time.Since(begin); r.echo.ending.Reason != why || took != after {
		r.t.Errorf("ended as %s after %v, want %s after %v", r.echo.ending.Reason, took, why, after)
	}
	if st := r.Stats(); st.Ends[why] != 1 || st.Conns != 0 || st.OutboxBytes != 0 {
		r.t.Errorf("%+v", st)
	}
	if n := r.mem.Stats().Leases; n != 0 {
		r.t.Errorf("%d leases are left", n)
	}
	r.Stop()
}

// readAll reads messages and answers pings until the connection ends, and returns the texts and the close code.
func readAll(ws *websocket.Conn) (texts []string, code int) {
	for {
		_, text, err := ws.ReadMessage()
		if err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) {
				code = closed.Code
			}
			_ = ws.Close()
			return texts, code
		}
		texts = append(texts, string(text))
	}
}

func message(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// A silent client that reads everything is disconnected after one ping and PongWait, counted from its last sign of
// life.
func TestSilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ws := r.connect()
		go func() { _, _ = io.Copy(io.Discard, ws.NetConn()) }()
		synctest.Wait()
		time.Sleep(r.echo.c.silence() / 32) // the shortest interval at which signs of life are recorded
		begin := time.Now()
		_ = ws.WriteMessage(websocket.BinaryMessage, message(10))
		r.ended(begin, EndGone, pingEvery+pongWait)
		_ = ws.Close()
	})
}

// Pongs, and the client's own pings, are signs of life.
func TestClientThatAnswersPings(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			ws := r.connect()
			var pings atomic.Int32
			answer := ws.PingHandler()
			ws.SetPingHandler(func(data string) error {
				pings.Add(1)
				if own {
					return ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
				}
				return answer(data)
			})
			go readAll(ws)
			time.Sleep(10*time.Minute + time.Second)
			if r.Count() != 1 || pings.Load() != int32(10*time.Minute/pingEvery) {
				t.Errorf("%d connections after %d pings", r.Count(), pings.Load())
			}
			_ = ws.Close()
			r.ended(time.Now(), EndGone, 0)
		})
	}
}

// The next ping tells a client without messages for Options.Idle that the connection is idle, except while the server
// works for the client.
func TestIdleClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Idle = time.Minute })
		ws := r.connect()
		begin := time.Now()
		synctest.Wait()
		r.echo.c.Busy(true)
		go func() {
			time.Sleep(100 * time.Second)
			// just within the limit at the ping of 160 s, over the limit at the ping of 170 s
			_ = ws.WriteMessage(websocket.BinaryMessage, message(1))
			time.Sleep(5 * time.Second)
			r.echo.c.Busy(false)
		}()
		texts, code := readAll(ws)
		if fmt.Sprint(texts) != "[timeout true]" || code != int(wire.CloseIdle) {
			t.Errorf("%v, %d", texts, code)
		}
		r.ended(begin, EndIdle, 170*time.Second)
	})
}

// A client that does not read delays a write for WriteWait at most. A client that may reconnect is treated as lost,
// not as slow.
func TestWriteWait(t *testing.T) {
	for resumable, why := range map[bool]End{false: EndSlow, true: EndGone} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.form.Resumable = resumable
			ws := r.connect()
			synctest.Wait()
			begin := time.Now()
			r.echo.c.Push(Entry{Text: []byte("hello")})
			r.ended(begin, why, writeWait)
			_ = ws.Close()
		})
	}
	synctest.Test(t, func(t *testing.T) { // a ping as well
		r := newRig(t, nil)
		begin := time.Now()
		ws := r.connect()
		r.ended(begin, EndSlow, pingEvery+writeWait)
		_ = ws.Close()
	})
}

func TestFullOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ws := r.connect()
		synctest.Wait()
		begin := time.Now()
		for range 4 {
			r.echo.c.Push(Entry{Text: []byte("x")})
		}
		if r.echo.c.Ended() || r.Stats().OutboxBytes == 0 {
			t.Error("ended with room in the outbox")
		}
		r.echo.c.Push(Entry{Text: []byte("x")})
		r.ended(begin, EndSlow, 0)
		_ = ws.Close()
	})
}

// Messages of any size up to the largest arrive unchanged, and one byte more ends the connection; a text above the
// limit is refused, and the next message is read.
func TestSizesOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ws := r.connect()
		type end struct {
			texts []string
			code  int
		}
		done := make(chan end, 1)
		go func() {
			texts, code := readAll(ws)
			done <- end{texts, code}
		}()
		begin := time.Now()
		want := ""
		for _, n := range []int{0, 1, firstEstimate - 1, firstEstimate, firstEstimate + 1, 2*firstEstimate + 1,
			most - 1, most, 10} {
			_ = ws.WriteMessage(websocket.BinaryMessage, message(n))
			want += fmt.Sprintf("binary %d,", n)
		}
		for _, n := range []int{5, MaxText, MaxText + 1, 6} {
			_ = ws.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte("x"), n))
			if n <= MaxText {
				want += fmt.Sprintf("text %d,", n)
			}
		}
		_ = ws.WriteMessage(websocket.BinaryMessage, message(most+1))
		e := <-done
		if fmt.Sprint(e.texts) != "[too_large false too_large true]" || e.code != int(wire.CloseTooLarge) {
			t.Errorf("%v, %d", e.texts, e.code)
		}
		r.ended(begin, EndTooLarge, 0)
		if got := strings.Join(r.echo.got, ",") + ","; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// The estimated size of the next message follows the sizes before: up at once, down slowly.
func TestEstimate(t *testing.T) {
	in := &reader{socket: &socket{shared: &shared{opts: Options{PingEvery: time.Hour}}, closing: make(chan struct{})},
		memory: buf.NewPool(0), estimate: firstEstimate}
	in.socket.opts.MaxMessage = 1 << 20
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	in.socket.net = near
	in.ExtendDeadline()
	for _, c := range []struct{ size, estimate int }{
		{80_000, 90_000}, {90_000, 90_000}, {80_000, 88_750}, {0, 77_657},
	} {
		lease, err := in.Lease(bytes.NewReader(message(c.size)))
		if err != nil || !bytes.Equal(lease.Bytes(), message(c.size)) || in.estimate != c.estimate {
			t.Fatalf("after %d bytes an estimate of %d, want %d; %v", c.size, in.estimate, c.estimate, err)
		}
		lease.Release()
	}
	for range 100 {
		lease, err := in.Lease(bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		lease.Release()
	}
	if in.estimate != minEstimate {
		t.Errorf("an estimate of %d after empty messages", in.estimate)
	}
	in.estimate = 32 << 10
	whole, err := in.memory.Lease(in.estimate)
	if err != nil {
		t.Fatal(err)
	}
	room := whole.Cap()
	whole.Release()
	lease, err := in.Lease(bytes.NewReader(message(room)))
	if err != nil || lease.Cap() != room {
		t.Errorf("a message of %d bytes, as many as there is room for, is in %d: %v", room, lease.Cap(), err)
	}
	lease.Release()
	in.memory = buf.NewPool(16 << 10)
	if _, err := in.Lease(bytes.NewReader(message(40_000))); !errors.Is(err, buf.ErrBudget) ||
		in.memory.Stats().Leases != 0 {
		t.Errorf("%v, %+v", err, in.memory.Stats())
	}
}

// TestTrickledMessages checks that the bytes received of a message set its deadline. Fewer bytes, and pings, do not
// extend the deadline, and the memory of the message is a fraction of the memory of the message before.
func TestTrickledMessages(t *testing.T) {
	const size = 4 << 20
	for name, c := range map[string]struct {
		sent  int // at once
		each  int // then, every 0.7 s
		after time.Duration
	}{
		"a byte a second":         {0, 1, httpd.ArrivalGrace},
		"a byte after many":       {10 * httpd.ArrivalRate, 1, httpd.ArrivalGrace + 10*time.Second},
		"fast enough, then ended": {0, httpd.ArrivalRate, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.MaxMessage = 8 << 20 })
				ws := r.connect()
				ws.SetPingHandler(func(string) error { return nil }) // a pong would be within the message
				go readAll(ws)
				if err := ws.WriteMessage(websocket.BinaryMessage, message(size)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				begin := time.Now()
				var took time.Duration
				go func() { <-r.echo.c.gone; took = time.Since(begin) }()
				raw := ws.NetConn()
				head := binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, size)
				_, _ = raw.Write(append(head, 0, 0, 0, 0)) // the last four are the mask
				all, at := message(size), 0
				for n := c.sent; at < size; n = c.each {
					n = min(n, size-at)
					if _, err := raw.Write(all[at : at+n]); err != nil {
						break
					}
					at += n
					synctest.Wait()
					if m := r.mem.Stats(); m.Leased > int64(4*at+2*readAhead) {
						t.Errorf("%d bytes are leased after %d", m.Leased, at)
					}
					time.Sleep(700 * time.Millisecond)
				}
				synctest.Wait()
				if c.after == 0 {
					if len(r.echo.got) != 2 || r.echo.c.Ended() {
						t.Errorf("got %v", r.echo.got)
					}
				} else if r.echo.ending.Reason != EndIdle || took != c.after {
					t.Errorf("ended as %s after %v, want %s after %v", r.echo.ending.Reason, took, EndIdle, c.after)
				}
				_ = ws.Close()
				synctest.Wait()
				if m := r.mem.Stats(); m.Leases != 0 {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

// Each way in which a client ends the connection has its own reason.
func TestEndsOfClients(t *testing.T) {
	for name, c := range map[string]struct {
		do  func(ws *websocket.Conn)
		why End
	}{
		"closes": {func(ws *websocket.Conn) {
			_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
				time.Now().Add(time.Second))
		}, EndClient},
		"goes": {func(ws *websocket.Conn) { _ = ws.Close() }, EndGone},
		"is cut off": {func(ws *websocket.Conn) {
			_, _ = ws.NetConn().Write([]byte{0x82, 0x85})
			_ = ws.Close()
		}, EndGone},
		"talks nonsense": {func(ws *websocket.Conn) {
			_, _ = ws.NetConn().Write([]byte("\xff\xff\xff\xff\xff\xff"))
		}, EndMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				ws := r.connect()
				go readAll(ws)
				synctest.Wait()
				begin := time.Now()
				c.do(ws)
				r.ended(begin, c.why, 0)
				_ = ws.Close()
			})
		})
	}
}

// A refused or rejected connection gets the reason.
func TestRefusedConnections(t *testing.T) {
	for _, c := range []struct {
		open, reject error
		code         wire.CloseCode
		text         string
	}{
		{stream.Errorf(stream.NotFound, "", "x"), nil, wire.CloseNotFound, "[not_found true]"},
		{nil, stream.Errorf(stream.Overloaded, "", "x"), wire.CloseTooMany, "[overloaded true]"},
		{nil, stream.Errorf(stream.Unauthenticated, "", "x"), wire.CloseUnauthenticated, "[unauthenticated true]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.echo.open, r.reject = c.open, c.reject
			begin := time.Now()
			texts, code := readAll(r.connect())
			if code != int(c.code) || fmt.Sprint(texts) != c.text {
				t.Errorf("%v, %d, want %d", texts, code, c.code)
			}
			r.ended(begin, EndRefused, 0)
		})
	}
}

// The number of connections is bounded, and so is the number of connections being rejected.
func TestRoom(t *testing.T) {
	r := newRig(t, nil)
	conns := func(n int, rejected error) (out []*Conn) {
		for range n {
			c := &Conn{socket: &socket{}, rejected: rejected, gone: make(chan struct{})}
			if r.enter(c) != nil {
				return out
			}
			out = append(out, c)
		}
		return out
	}
	in := conns(3, nil)
	if len(in) != 2 || r.Count() != 2 || stream.CodeOf(r.Admit(Client{})) != stream.Overloaded {
		t.Errorf("%d of 2 places taken, %v", len(in), r.Admit(Client{}))
	}
	full := stream.Errorf(stream.Overloaded, "", "full")
	rejected := conns(maxRejecting+1, full)
	if len(rejected) != maxRejecting || r.Count() != 2 || r.Stats().Conns != 2+maxRejecting {
		t.Errorf("%d are being told, %d connections", len(rejected), r.Count())
	}
	r.leave(rejected[0])
	if len(conns(2, full)) != 1 {
		t.Error("the place of one that was told is not free")
	}
	r.leave(in[0])
	if r.Admit(Client{}) != nil || len(conns(2, nil)) != 1 {
		t.Error("the place of one that has left is not free")
	}
	r.Close()
	r.leave(rejected[1])
	r.leave(in[1])
	if !errors.Is(r.Admit(Client{}), ingest.ErrDraining) || len(conns(1, nil)) != 0 || len(conns(1, full)) != 0 {
		t.Errorf("%v", r.Admit(Client{}))
	}
}

// When the server shuts down all clients are told, and Drain returns when all
// connections have ended.
func TestDrainTellsAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ws := r.connect()
		synctest.Wait()
		r.Close()
		go r.Drain()
		texts, code := readAll(ws)
		if code != int(wire.CloseGoingAway) || fmt.Sprint(texts) != "[draining true]" {
			t.Errorf("%v, %d", texts, code)
		}
		r.ended(time.Now(), EndDraining, 0)
	})
}

func TestCodesOfEndings(t *testing.T) {
	for code, want := range map[stream.Code]wire.CloseCode{
		stream.NotFound: wire.CloseNotFound, stream.Unloaded: wire.CloseNotFound,
		stream.Overloaded: wire.CloseOverloaded, stream.Unavailable: wire.CloseOverloaded,
		stream.Draining: wire.CloseDraining, stream.Unauthenticated: wire.CloseUnauthenticated,
		stream.InvalidArgument: wire.ClosePolicy,
		stream.Unsupported:     wire.ClosePolicy, stream.PermissionDenied: wire.ClosePolicy,
		stream.Internal: wire.CloseInternal,
	} {
		err := stream.Errorf(code, "", "x")
		if e := refusal(err); e.Code != want || e.Reason != EndRefused || e.Err != err {
			t.Errorf("%s: %+v", code, e)
		}
		if code == stream.Overloaded {
			want = wire.CloseTooMany
		}
		if e := rejection(err); e.Code != want {
			t.Errorf("%s: %+v", code, e)
		}
	}
	for why, want := range map[End]stream.CloseReason{
		EndClient: stream.ClientGone, EndGone: stream.ClientGone, EndSlow: stream.SlowConsumer, EndIdle: stream.Idle,
		EndDraining: stream.ByDrain,
		EndUnloaded: stream.ByUnload, EndFault: stream.ByError, EndMalformed: stream.ByError,
	} {
		e := Ending{Reason: why}
		if e.reason() != want || e.Gone() != (why == EndClient || why == EndGone || why == EndSlow) {
			t.Errorf("%s: %s, gone %v", why, e.reason(), e.Gone())
		}
	}
	for why, want := range map[stream.CloseReason]End{
		stream.ByUnload: EndUnloaded, stream.ByDrain: EndDraining, stream.Idle: EndIdle, stream.ByError: EndFault,
	} {
		err := errors.New("x")
		if why == stream.ByDrain {
			err = ingest.ErrDraining
		}
		if e := StreamEnding(why, err); e.Reason != want || e.Err != err {
			t.Errorf("%s: %+v", why, e)
		}
	}
}
