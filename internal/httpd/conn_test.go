package httpd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// fakeConn records the calls of a connection.
type fakeConn struct {
	net.Conn
	in        io.Reader
	done      []string
	deadlines []time.Time
}

func (c *fakeConn) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	c.done = append(c.done, "read")
	return n, err
}

func (c *fakeConn) Close() error { c.done = append(c.done, "close"); return nil }

func (c *fakeConn) SetReadDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

// halfConn can also be closed in one direction.
type halfConn struct {
	fakeConn
	err error
}

func (c *halfConn) CloseWrite() error { c.done = append(c.done, "close write"); return c.err }

// framed encodes the text of from in chunks.
type framed struct {
	from io.Reader
	text bytes.Buffer
	err  error
}

func (f *framed) Read(b []byte) (int, error) {
	for f.text.Len() == 0 && f.err == nil {
		part := make([]byte, 4096)
		n, err := f.from.Read(part)
		if f.err = err; n > 0 {
			fmt.Fprintf(&f.text, "%x\r\n%s\r\n", n, part[:n])
		}
		if err == io.EOF {
			f.text.WriteString("0\r\n\r\n")
		}
	}
	if f.text.Len() > 0 {
		return f.text.Read(b)
	}
	return 0, f.err
}

// request returns a request with the body and the announced length; length -1 means chunks.
func request(t *testing.T, conn net.Conn, body io.Reader, length int) *fiber.Ctx {
	t.Helper()
	app := fiber.New()
	rc := new(fasthttp.RequestCtx)
	rc.Init2(conn, nil, false)
	rc.Request.Header.SetMethod("POST")
	if length < 0 {
		body = &framed{from: body}
	}
	rc.Request.SetBodyStream(body, length)
	c := app.AcquireCtx(rc)
	t.Cleanup(func() { app.ReleaseCtx(c) })
	return c
}

// A body already read by fasthttp leaves the deadline alone; a larger body, or a body in chunks, has the time limit
// of its length.
func TestDeadlinesOfBodies(t *testing.T) {
	for _, c := range []struct {
		name      string
		n, length int
		want      []time.Duration
	}{
		{"read already", prefetch, prefetch, nil},
		{"larger", prefetch + 1, prefetch + 1, []time.Duration{ArrivalTime(prefetch + 1)}},
		{"much larger", 10 * ArrivalRate, 10 * ArrivalRate, []time.Duration{ArrivalTime(10 * ArrivalRate)}},
		{"in chunks", 5 * firstChunk, -1, []time.Duration{ArrivalTime(firstChunk), ArrivalTime(4 * firstChunk),
			ArrivalTime(16 * firstChunk)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := &fakeConn{}
			before := time.Now()
			body, err := readBody(request(t, conn, bytes.NewReader(make([]byte, c.n)), c.length), 1<<20,
				new(heapRoom).room)
			after := time.Now()
			if err != nil || len(body) != c.n {
				t.Errorf("%d bytes, %v", len(body), err)
			}
			if len(conn.deadlines) != len(c.want) {
				t.Fatalf("%d deadlines, want %v", len(conn.deadlines), c.want)
			}
			for i, d := range conn.deadlines {
				if d.Before(before.Add(c.want[i])) || d.After(after.Add(c.want[i])) {
					t.Errorf("deadline %d is in %v, want %v", i, d.Sub(before), c.want[i])
				}
			}
		})
	}
}

// gone is a client with expired credentials.
type gone struct{ err error }

func (g gone) OnEnd(func(error)) func() { return func() {} }
func (g gone) Err() error               { return g.err }

// The credentials of a client are checked again after its body was read, unless the body came with the head of the
// request.
func TestCredentialsAfterTheBody(t *testing.T) {
	ended := errors.New("ended")
	for _, c := range []struct {
		name      string
		n, length int
		want      error
	}{
		{"with the head", prefetch, prefetch, nil},
		{"larger", prefetch + 1, prefetch + 1, ended},
		{"in chunks", 1, -1, ended},
		{"in chunks, of which there are none", 0, -1, ended},
	} {
		s, err := New(Config{Addr: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		of := request(t, &fakeConn{}, bytes.NewReader(make([]byte, c.n)), c.length)
		SetClient(of, gone{ended})
		if _, err := s.ReadBody(of, 0, new(heapRoom).room); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// The error of a malformed body in chunks mentions no length, wherever the fault is.
func TestErrorsOfChunks(t *testing.T) {
	const most = 10
	text := func(n int) io.Reader { return strings.NewReader(strings.Repeat("x", n)) }
	for _, c := range []struct {
		name string
		body io.Reader
		want string // "" = accepted
	}{
		{"just the limit", text(most), ""},
		{"just the limit, byte by byte, with the end at last", iotest.DataErrReader(iotest.OneByteReader(text(most))),
			""},
		{"a read of nothing at the limit", io.MultiReader(text(most), &pause{}, text(0)), ""},
		{"one more", text(most + 1),
			"request size exceeds the maximum allowed input size of 10 bytes (limits.max_body)"},
		{"short", io.MultiReader(text(3), iotest.ErrReader(io.ErrUnexpectedEOF)),
			"the body ended before its last chunk"},
		{"short at the limit", io.MultiReader(text(most), iotest.ErrReader(io.ErrUnexpectedEOF)),
			"the body ended before its last chunk"},
		{"broken", io.MultiReader(text(3), iotest.ErrReader(errors.New("bad chunk"))),
			"the body cannot be read: the connection has failed"},
		{"broken at the limit", io.MultiReader(text(most), iotest.ErrReader(errors.New("bad chunk"))),
			"the body cannot be read: the connection has failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, err := readBody(request(t, &fakeConn{}, c.body, -1), most, new(heapRoom).room)
			if c.want == "" && (err != nil || len(body) != most) ||
				c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("%q, %v; want %q", body, err, c.want)
			}
		})
	}
}

// heapRoom is memory for one body, allocated at once.
type heapRoom struct{ mem []byte }

func (h *heapRoom) room(n, at int) ([]byte, error) {
	grown := make([]byte, n)
	copy(grown, h.mem[:at])
	h.mem = grown
	return grown, nil
}

// pause reads nothing once before its end.
type pause struct{ done bool }

func (p *pause) Read([]byte) (int, error) {
	if p.done {
		return 0, io.EOF
	}
	p.done = true
	return 0, nil
}

// A handler's bound holds if below the server's bound; otherwise the server's bound holds.
func TestBoundsOfBodies(t *testing.T) {
	s := &Server{cfg: Config{MaxBody: 10}}
	for max, want := range map[int]int{-1: 10, 0: 10, 5: 5, 10: 10, 11: 10, math.MaxInt: 10} {
		_, err := s.ReadBody(request(t, &fakeConn{}, strings.NewReader(""), 100), max, nil)
		if err == nil || err.Error() != tooLarge(&fasthttp.RequestHeader{}, 100, want).Error() ||
			coded.CodeOf(err) != coded.TooLarge {
			t.Errorf("at most %d: %v", max, err)
		}
	}
}

// A lingering close lets the client read the reply: the server closes its own direction, reads the client's remaining
// bytes for a while, and closes the rest.
func TestLinger(t *testing.T) {
	conn := &halfConn{fakeConn: fakeConn{in: strings.NewReader("the rest of a body")}}
	before := time.Now()
	new(Server).linger(conn)
	if !slices.Equal(conn.done, []string{"close write", "read", "read", "close"}) {
		t.Errorf("done: %q", conn.done)
	}
	if len(conn.deadlines) != 1 || conn.deadlines[0].Before(before.Add(time.Second)) ||
		conn.deadlines[0].After(time.Now().Add(lingerTime)) {
		t.Errorf("deadlines %v after %v", conn.deadlines, before)
	}

	broken := &halfConn{err: net.ErrClosed}
	new(Server).linger(broken)
	if !slices.Equal(broken.done, []string{"close write", "close"}) {
		t.Errorf("one that is closed: %q", broken.done)
	}
	whole := &fakeConn{}
	new(Server).linger(whole)
	if !slices.Equal(whole.done, []string{"close"}) {
		t.Errorf("one that closes as a whole: %q", whole.done)
	}
	ended := &halfConn{}
	(&Server{ended: true}).linger(ended)
	if !slices.Equal(ended.done, []string{"close"}) {
		t.Errorf("after the end: %q", ended.done)
	}
}

// endless counts the bytes read from it.
type endless struct{ n int }

func (e *endless) Read(b []byte) (int, error) { e.n += len(b); return len(b), nil }

// A client that asked for its connection to be closed may send the rest of an unread body, but not for long.
func TestUnreadBodyBeforeAClose(t *testing.T) {
	conn, body := &fakeConn{}, &endless{}
	c := request(t, conn, body, -1)
	c.Request().Header.SetConnectionClose()
	before := time.Now()
	new(Server).finishRequest(c.Context())
	if body.n < 1<<20 || body.n > lingerBytes {
		t.Errorf("%d bytes were read", body.n)
	}
	if len(conn.deadlines) != 1 || conn.deadlines[0].Before(before.Add(lingerTime/8)) ||
		conn.deadlines[0].After(time.Now().Add(lingerTime)) {
		t.Errorf("deadlines %v after %v", conn.deadlines, before)
	}
	if c.Context().Hijacked() {
		t.Error("the connection was taken over")
	}
}

// At the shutdown, a connection without a handler may continue for a moment; a connection with a handler keeps its
// time.
func TestIdleConnectionsAtTheEnd(t *testing.T) {
	s, err := New(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	idle, busy := &fakeConn{}, &fakeConn{}
	running := newConn(busy)
	s.track(newConn(idle), fasthttp.StateNew)
	s.track(running, fasthttp.StateNew)
	running.setBusy(true)
	served := make(chan error, 1)
	served <- nil
	before := time.Now()
	if err := s.shutdown(served); err != nil {
		t.Error(err)
	}
	if len(idle.deadlines) == 0 || idle.deadlines[0].Before(before.Add(100*time.Millisecond)) ||
		idle.deadlines[0].After(time.Now().Add(time.Second)) {
		t.Errorf("deadlines %v after %v", idle.deadlines, before)
	}
	if len(busy.deadlines) > 0 {
		t.Errorf("a busy connection has a deadline: %v", busy.deadlines)
	}
}

func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	if c.MaxBody != math.MaxInt || c.HeaderTimeout != 10*time.Second || c.IdleTimeout != 2*time.Minute ||
		c.WriteTimeout != time.Minute || c.DrainTimeout != 30*time.Second || c.Log == nil || c.Limit == nil {
		t.Errorf("%+v", c)
	}
	own := Config{MaxBody: 1, HeaderTimeout: 1, IdleTimeout: 1, WriteTimeout: 1, DrainTimeout: 1}.withDefaults()
	if own.MaxBody != 1 || own.HeaderTimeout != 1 || own.IdleTimeout != 1 || own.WriteTimeout != 1 ||
		own.DrainTimeout != 1 {
		t.Errorf("what is set is changed: %+v", own)
	}
}
