package conn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/internal/wire"
	"millrace/stream"
)

// halfPipe is a pipe that can be closed for writing alone; err makes closing fail.
type halfPipe struct {
	net.Conn
	err error
}

func (h halfPipe) CloseWrite() error { return h.err }

// A client told the reason of the end has a while to leave; a disconnected client has no time.
func TestLinger(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		end   Ending
		after time.Duration
	}{
		"told":                     {nil, Draining(), lingerTime},
		"gone":                     {nil, Ending{Reason: EndGone}, 0},
		"cannot be closed in half": {syscall.ENOTCONN, Draining(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.wrap = func(conn net.Conn) net.Conn { return halfPipe{conn, c.err} }
				ws := r.connect()
				go func() { _, _ = io.Copy(io.Discard, ws.NetConn()) }()
				synctest.Wait()
				r.echo.c.End(c.end)
				r.ended(time.Now(), c.end.Reason, c.after)
				_ = ws.Close()
			})
		})
	}
	if lingerTime != 2*time.Second {
		t.Errorf("%v", lingerTime)
	}
}

// countedReads counts the reads from a connection after closing for writing.
type countedReads struct {
	halfPipe
	half  atomic.Bool
	reads atomic.Int32
}

func (c *countedReads) CloseWrite() error { c.half.Store(true); return nil }

func (c *countedReads) Read(b []byte) (int, error) {
	if c.half.Load() {
		c.reads.Add(1)
	}
	return c.halfPipe.Read(b)
}

// A client that keeps sending small messages after the end does not cost a read each. Large amounts are read without
// pauses.
func TestLingerReadsLittle(t *testing.T) {
	for _, c := range []struct {
		size, min, max int
	}{
		{16, 2, int(lingerTime/lingerPause) + 2},
		{32 << 10, lingerBytes >> 15, lingerBytes >> 15},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			conn := &countedReads{}
			r.wrap = func(inner net.Conn) net.Conn { conn.halfPipe = halfPipe{Conn: inner}; return conn }
			ws := r.connect()
			go func() { _, _ = io.Copy(io.Discard, ws.NetConn()) }()
			synctest.Wait()
			r.echo.c.End(Ending{EndRefused, wire.ClosePolicy, stream.Errorf(stream.FlowControl, "ping", "too many")})
			flood := make([]byte, c.size)
			for {
				if _, err := ws.NetConn().Write(flood); err != nil {
					break
				}
			}
			<-r.echo.c.gone
			if n := int(conn.reads.Load()); n < c.min || n > c.max {
				t.Errorf("%d reads of messages of %d bytes, want %d to %d", n, c.size, c.min, c.max)
			}
			_ = ws.Close()
		})
	}
}

// The server abandons a client that does not take the answer to its handshake.
func TestHandshakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) {
			o.Hooks.Opened = func() { t.Error("opened") }
			o.Hooks.Closed = func(End, time.Duration) { t.Error("closed, and was never open") }
		})
		near, far := net.Pipe()
		defer func() { _ = near.Close() }()
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://server.test/", nil)
		for k, v := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13",
			"Sec-Websocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
		} {
			req.Header.Set(k, v)
		}
		r.echo.c = r.New(far, r.mem, r.form)
		begin := time.Now()
		r.Start(r.echo.c, r.echo, Client{}, nil, req, nil)
		<-r.echo.c.gone
		if took := time.Since(begin); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("given up after %v", took)
		}
		r.ended(time.Now(), EndRefused, 0)
	})
}

// A panic during a write ends the connection; the entries taken for the write leave the outbox, each once.
func TestPanicOfTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		r := newRig(t, func(o *Options) {
			o.Hooks.Closed = func(why End, lasted time.Duration) { told = append(told, fmt.Sprint(why, " ", lasted)) }
			o.Hooks.Panic = func(goroutine string) { told = append(told, goroutine) }
		})
		ws := r.connect()
		synctest.Wait()
		begin := time.Now()
		var out released
		r.echo.c.Push(Entry{Text: []byte("is being written")})
		synctest.Wait()
		r.echo.c.Push(Entry{Source: faulty{&out}, Result: &stream.Result{}})
		r.echo.c.Push(Entry{Source: &out, Result: &stream.Result{}})
		r.echo.c.Push(Entry{Source: &out, Result: &stream.Result{}})
		time.Sleep(time.Second)
		readAll(ws)
		r.ended(begin, EndFault, time.Second)
		if fmt.Sprint(told) != "[writer fault 1s]" || out.all != 3 || r.Stats().Panics != 1 {
			t.Errorf("%q, %+v, %+v", told, out, r.Stats())
		}
	})
}

// faulty is a source that panics in Write.
type faulty struct{ *released }

func (faulty) Write(*Writer, *stream.Result) { panic("a fault of the test") }

// After a switch, a connection continues with the other outbox once the first is empty, and first writes the message
// of the switch.
func TestSwitchOutbox(t *testing.T) {
	for _, waiting := range []string{"", "1,2,"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			other := newOutbox(4, 1<<20, &r.outboxBytes)
			other.Push(Entry{Text: []byte("4")})
			switched := false
			r.echo.text = func(string) {
				c := r.echo.c
				for text := range strings.SplitSeq(strings.TrimSuffix(waiting, ","), ",") {
					if text != "" {
						c.Push(Entry{Text: []byte(text)})
					}
				}
				switched = c.SwitchOutbox(other, func(w *Writer) { w.Text([]byte("3")) })
				c.Push(Entry{Text: []byte("5")})
				c.End(Draining())
			}
			ws := r.connect()
			synctest.Wait() // the writer rests
			begin := time.Now()
			_ = ws.SetReadDeadline(begin.Add(time.Minute))
			_ = ws.WriteMessage(websocket.TextMessage, []byte("x"))
			texts, _ := readAll(ws)
			if got := strings.Join(texts, ","); got != waiting+"3,4,5,draining true" || !switched ||
				r.echo.c.Outbox != other {
				t.Fatalf("%q, switched %v", texts, switched)
			}
			r.ended(begin, EndDraining, 0)
			if r.echo.c.SwitchOutbox(other, nil) {
				t.Error("switched after the end")
			}
		})
	}
}

func TestSkip(t *testing.T) {
	in := &reader{socket: &socket{shared: &shared{}}}
	in.socket.opts.MaxMessage = 1000
	fault := errors.New("of the connection")
	for n, want := range map[int]error{0: nil, 1000: nil, 1001: errTooLarge} {
		rest := bytes.NewReader(make([]byte, n))
		if err := in.Skip(rest); !errors.Is(err, want) || rest.Len() != 0 {
			t.Errorf("%d bytes: %v, %d are left", n, err, rest.Len())
		}
	}
	if err := in.Skip(io.MultiReader(bytes.NewReader(make([]byte, 10)), failing{fault})); !errors.Is(err, fault) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestFailures checks the recognition of failures of the connection, and of time-outs.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		err              error
		network, timeout bool
	}{
		{io.EOF, true, false},
		{fmt.Errorf("within: %w", io.ErrUnexpectedEOF), true, false},
		{net.ErrClosed, true, false},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true, false},
		{os.ErrDeadlineExceeded, true, true},
		{websocket.ErrReadLimit, false, false},
	} {
		if isNetwork(c.err) != c.network || timedOut(c.err) != c.timeout {
			t.Errorf("%v: of the network %v, timed out %v", c.err, isNetwork(c.err), timedOut(c.err))
		}
	}
}

// Queued frames end for the reason of the connection: draining while the server drains, otherwise dropped.
func TestCloseStream(t *testing.T) {
	for why, want := range map[End]string{EndDraining: "error draining draining", EndIdle: "drop closed idle"} {
		k := &sink{}
		st := stream.New(&stream.Model{Name: "any", AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nowhere{}, k,
			stream.Options{})
		if err := st.Submit(stream.Frame{Seq: 1, Codec: stream.Opaque}); err != nil {
			t.Fatal(err)
		}
		e := Ending{Reason: why, Err: ingest.ErrDraining}
		e.CloseStream(st)
		if k.log != want {
			t.Errorf("%s: %q, want %q", why, k.log, want)
		}
	}
}

// sink notes endings and the stream's own.
type sink struct{ log string }

func (s *sink) Push(r *stream.Result) {
	s.log += fmt.Sprint(r.Outcome, " ")
	if r.Outcome == stream.Dropped {
		s.log += string(r.Reason) + " "
	} else {
		s.log += string(stream.CodeOf(r.Err)) + " "
	}
	r.Release()
}

func (s *sink) Done(why stream.CloseReason) { s.log += string(why) }

// nowhere is an endpoint whose frames nobody takes.
type nowhere struct{}

func (nowhere) Enqueue(*stream.Stream, any) {}
func (nowhere) Admit(bool) error            { return nil }
func (nowhere) AddWaiting(int)              {}
func (nowhere) Ended(*stream.Request)       {}
func (nowhere) Detach(*stream.Stream)       {}
