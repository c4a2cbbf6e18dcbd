package conn

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/stream"
	"millrace/stream/buf"
)

// pair returns both ends of a TCP connection, the first as a link.
func pair(t *testing.T, memory *buf.Pool) (*link, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return newLink(near, memory, time.Now()), far
}

// Small reads take bytes of an earlier read from the network, and memory is leased only while unread bytes remain.
// Reads without memory, and large reads, go to the network.
func TestReadAhead(t *testing.T) {
	for name, c := range map[string]struct {
		budget int64
		chunk  int
		reads  int // from the network
	}{
		"small":     {0, 100, 1},
		"no memory": {1, 100, 10},
		"large":     {0, directRead, 1},
	} {
		t.Run(name, func(t *testing.T) {
			mem := buf.NewPool(c.budget)
			l, far := pair(t, mem)
			reads := 0
			l.onRead = func(time.Duration) { reads++ }
			sent := message(10 * c.chunk)
			if _, err := far.Write(sent[:1000]); err != nil {
				t.Fatal(err)
			}
			if c.chunk != 100 {
				sent = sent[:1000]
			}
			var got []byte
			for len(got) < len(sent) {
				p := make([]byte, c.chunk)
				n, err := l.Read(p)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p[:n]...)
				if held := mem.Stats().Leases == 1; held != (name == "small" && len(got) < len(sent)) {
					t.Fatalf("after %d bytes, memory held: %v", len(got), held)
				}
			}
			if !bytes.Equal(got, sent) || reads != c.reads {
				t.Errorf("%d bytes by %d reads from the network, want %d by %d", len(got), reads, len(sent), c.reads)
			}
			waiting := make(chan error)
			go func() {
				_, err := l.Read(make([]byte, 1))
				waiting <- err
			}()
			_ = l.SetReadDeadline(time.Unix(1, 0)) // as End does
			if err := <-waiting; !errors.Is(err, os.ErrDeadlineExceeded) || !isNetwork(err) {
				t.Error(err)
			}
			_ = l.SetReadDeadline(time.Time{})
			_ = far.Close()
			if _, err := l.Read(make([]byte, 1)); err != io.EOF {
				t.Error(err)
			}
			if n := mem.Stats().Leases; n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	}
}

// A reset by the client is a failure of the network.
func TestReadAfterReset(t *testing.T) {
	l, far := pair(t, buf.NewPool(0))
	_ = far.(*net.TCPConn).SetLinger(0)
	_ = far.Close()
	if _, err := l.Read(make([]byte, 1)); err == nil || err == io.EOF || !isNetwork(err) {
		t.Errorf("%T %v", err, err)
	}
}

func TestHeaders(t *testing.T) {
	for n, want := range map[int]string{0: "\x82\x00", 125: "\x82\x7d", 126: "\x82\x7e\x00\x7e",
		65535: "\x82\x7e\xff\xff", 65536: "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"} {
		if h := appendHeader(nil, websocket.BinaryMessage, n); string(h) != want {
			t.Errorf("%d bytes: %x", n, h)
		}
	}
}

// counted counts writes.
type counted struct {
	net.Conn
	writes atomic.Int32
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// numbered writes results as messages of size bytes; each begins with its seq.
type numbered struct {
	size     int
	released atomic.Int32
}

func (s *numbered) Write(w *Writer, r *stream.Result) {
	w.Binary(binary.BigEndian.AppendUint64(make([]byte, s.size-8, s.size), r.Seq))
}

func (s *numbered) Released(bool) { s.released.Add(1) }

// Small queued messages leave in one write, in order with large messages, and count as waiting until the write.
func TestWaitingMessagesLeaveTogether(t *testing.T) {
	for _, c := range []struct {
		sizes  []int
		writes int32
	}{
		{[]int{100, 200, 300}, 1},
		{[]int{1000, maxSmall - entryCost, maxSmall - entryCost, maxSmall - entryCost, maxSmall - entryCost}, 2},
		// the small message before the large, the large message's two parts, and the last message
		{[]int{100, maxSmall + 1, 100}, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.OutboxMessages = 10 })
			var conn *counted
			r.wrap = func(c net.Conn) net.Conn { conn = &counted{Conn: c}; return conn }
			ws := r.connect()
			synctest.Wait()
			r.echo.c.Push(Entry{Text: []byte("is being written")}) // the client does not read yet
			synctest.Wait()
			before := conn.writes.Load()
			var sources []*numbered
			for i, n := range c.sizes {
				sources = append(sources, &numbered{size: n})
				res := &stream.Result{Seq: uint64(i), Outputs: []stream.Tensor{{Data: make([]byte, n-8)}}}
				r.echo.c.Push(Entry{Source: sources[i], Result: res})
			}
			if _, text, err := ws.ReadMessage(); err != nil || string(text) != "is being written" {
				t.Fatal(string(text), err)
			}
			synctest.Wait()
			for i, s := range sources {
				if s.released.Load() != 0 {
					t.Errorf("message %d counts as written, and is not", i)
				}
			}
			for i, n := range c.sizes {
				_, msg, err := ws.ReadMessage()
				if err != nil || len(msg) != n || binary.BigEndian.Uint64(msg[n-8:]) != uint64(i) {
					t.Fatalf("message %d: %d bytes, %v", i, len(msg), err)
				}
			}
			synctest.Wait()
			if n := conn.writes.Load() - before; n != c.writes {
				t.Errorf("%v: %d writes, want %d", c.sizes, n, c.writes)
			}
			for i, s := range sources {
				if s.released.Load() != 1 {
					t.Errorf("message %d was released %d times", i, s.released.Load())
				}
			}
			_ = ws.Close()
			r.ended(time.Now(), EndGone, 0)
		})
	}
}

// The shorter time for a pong does not apply to later messages, and each message has its full time regardless of
// earlier writes.
func TestDeadlinesOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ws := r.connect()
		for i := range 50 {
			if err := ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			r.echo.c.Push(Entry{Text: fmt.Append(nil, i)})
			if _, text, err := ws.ReadMessage(); err != nil || string(text) != fmt.Sprint(i) {
				t.Fatal(string(text), err)
			}
			time.Sleep(writeWait / 100)
		}
		synctest.Wait()
		begin := time.Now()
		r.echo.c.Push(Entry{Text: []byte("not read")})
		<-r.echo.c.gone
		if took := time.Since(begin); took < writeWait-writeWait/32 || took > writeWait ||
			r.echo.ending.Reason != EndSlow {
			t.Errorf("%s after %v", r.echo.ending.Reason, took)
		}
		r.Stop()
		_ = ws.Close()
	})
}

func TestNothingAfterClose(t *testing.T) {
	l, far := pair(t, buf.NewPool(0))
	if err := l.control(websocket.CloseMessage, websocket.FormatCloseMessage(1000, "end"), time.Second); err != nil {
		t.Fatal(err)
	}
	frames := net.Buffers{[]byte("late")}
	if err := l.send(&frames, time.Second); err != websocket.ErrCloseSent {
		t.Error(err)
	}
	if err := l.control(websocket.PongMessage, nil, time.Second); err != websocket.ErrCloseSent {
		t.Error(err)
	}
	_ = l.Close()
	if all, _ := io.ReadAll(far); string(all) != "\x88\x05\x03\xe8end" {
		t.Errorf("%x", all)
	}
}

// Frames of two goroutines stay whole, also over TLS, where a message is several writes
// and nothing is read ahead.
func TestFramesStayWhole(t *testing.T) {
	keys := httptest.NewUnstartedServer(nil)
	keys.StartTLS()
	defer keys.Close()
	for _, encrypted := range []bool{false, true} {
		mem := buf.NewPool(0)
		l, far := pair(t, mem)
		if encrypted {
			l = newLink(tls.Server(l.Conn, &tls.Config{Certificates: keys.TLS.Certificates}), mem, time.Now())
			far = tls.Client(far, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the certificate of the test
		}
		const n = 200
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range n {
				body := bytes.Repeat([]byte{byte(i)}, 1000+100*i)
				head := appendHeader(nil, websocket.BinaryMessage, len(body))
				if err := l.send(&net.Buffers{head, body}, time.Minute); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range n {
				if err := l.control(websocket.PongMessage, []byte("pong"), time.Minute); err != nil {
					t.Error(err)
				}
			}
		})
		messages, pongs := 0, 0
		in := bufio.NewReader(far)
		for messages+pongs < 2*n {
			head := make([]byte, 4)
			if _, err := io.ReadFull(in, head[:2]); err != nil {
				t.Fatal(err)
			}
			size := int(head[1])
			if size == 126 {
				if _, err := io.ReadFull(in, head[2:]); err != nil {
					t.Fatal(err)
				}
				size = int(binary.BigEndian.Uint16(head[2:]))
			}
			body := make([]byte, size)
			if _, err := io.ReadFull(in, body); err != nil {
				t.Fatal(err)
			}
			switch {
			case head[0] == 0x8a && string(body) == "pong":
				pongs++
			case head[0] == 0x82 && size == 1000+100*messages && bytes.Count(body, []byte{byte(messages)}) == size:
				messages++
			default:
				t.Fatalf("encrypted %v: a frame %x of %d bytes after %d messages and %d pongs", encrypted, head, size,
					messages, pongs)
			}
		}
		wg.Wait()
		if _, err := far.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(l, got); err != nil || string(got) != "hello" || mem.Stats().Leases != 0 {
			t.Errorf("%q, %v, %+v", got, err, mem.Stats())
		}
	}
}

// corked is a connection below TLS; counts writes, and writes that would have left although corked.
type corked struct {
	net.Conn
	held          []byte
	isCorked      bool
	writes, corks int
	records       int // written while corked
}

func (c *corked) Cork(buf []byte) { c.held, c.isCorked, c.records = buf[:0], true, 0; c.corks++ }

func (c *corked) Uncork() error {
	if !c.isCorked {
		return nil
	}
	c.isCorked = false
	_, err := c.Write(c.held)
	return err
}

func (c *corked) Write(b []byte) (int, error) {
	if c.isCorked && len(c.held)+len(b) <= cap(c.held) {
		c.records++
		c.held = append(c.held, b...)
		return len(b), nil
	}
	c.writes++
	return c.Conn.Write(b)
}

// Over TLS a message of 30 KB is two records, the first with the header, and both leave in one write. Without memory
// the records leave one by one.
func TestRecordsLeaveTogether(t *testing.T) {
	keys := httptest.NewUnstartedServer(nil)
	keys.StartTLS()
	defer keys.Close()
	for name, c := range map[string]struct {
		budget        int64
		writes, corks int
	}{"together": {1 << 20, 1, 1}, "no memory": {4096, 2, 0}} {
		t.Run(name, func(t *testing.T) {
			mem := buf.NewPool(c.budget)
			plain, far := pair(t, mem)
			below := &corked{Conn: plain.Conn}
			l := newLink(tls.Server(below, &tls.Config{Certificates: keys.TLS.Certificates}), mem, time.Now())
			got := make(chan []byte)
			in := tls.Client(far, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the certificate of the test
			go func() {
				b := make([]byte, 200<<10)
				_, _ = io.ReadFull(in, b)
				b = b[:30<<10+4]
				_, _ = io.ReadFull(in, b)
				got <- b
			}()
			// Records are small until a connection has sent 128 KiB.
			if err := l.send(&net.Buffers{make([]byte, 200<<10)}, time.Minute); err != nil {
				t.Fatal(err)
			}
			below.writes, below.corks = 0, 0
			w := &Writer{socket: &socket{link: l, shared: &shared{opts: Options{WriteWait: time.Minute}}},
				buffers: &writeBuffers{}}
			body := bytes.Repeat([]byte("frame"), 30<<10/5)
			w.Binary(body)
			if b := <-got; !bytes.Equal(b[4:], body) ||
				!bytes.Equal(b[:4], appendHeader(nil, websocket.BinaryMessage, len(body))) {
				t.Errorf("another message of %d bytes arrived: %x", len(b), b[:8])
			}
			if below.writes != c.writes || below.corks != c.corks || c.corks > 0 && below.records != 2 {
				t.Errorf("%d writes, corked %d times with %d records", below.writes, below.corks, below.records)
			}
			if n := mem.Stats().Leases; n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	}
}

// A control frame waits for its time while a message is written, and is then abandoned.
func TestControlWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		l := newLink(near, buf.NewPool(0), time.Now())
		done := make(chan error)
		go func() {
			frames := net.Buffers{[]byte("message")}
			done <- l.send(&frames, time.Minute)
		}()
		synctest.Wait()
		begin := time.Now()
		if err := l.control(websocket.PongMessage, nil, time.Second); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if err := l.control(websocket.PongMessage, nil, time.Second); err == nil {
			t.Error("sent while a message is written")
		}
		p := make([]byte, 100)
		if n, _ := far.Read(p); string(p[:n]) != "message" || <-done != nil {
			t.Errorf("%q", p[:n])
		}
		go func() { done <- l.control(websocket.PongMessage, nil, time.Second) }()
		if n, _ := far.Read(p); string(p[:n]) != "\x8a\x00" || <-done != nil {
			t.Errorf("%q", p[:n])
		}
		_ = near.Close()
	})
}

// partial is a connection whose writes stop after some bytes.
type partial struct {
	net.Conn
	take    int // bytes of the next write
	written int
}

func (p *partial) Write(b []byte) (int, error) {
	n := min(p.take, len(b))
	p.written += n
	if n < len(b) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

func (p *partial) SetWriteDeadline(time.Time) error { return nil }

// TestNothingAfterAnIncompleteFrame checks that nothing follows an incomplete frame, since the client would take the
// next bytes for the rest of the frame, and that a frame with no byte sent does no harm.
func TestNothingAfterAnIncompleteFrame(t *testing.T) {
	for name, c := range map[string]struct {
		take  int
		first func(*link) error
		more  bool
	}{
		"pong in part": {3, func(l *link) error {
			return l.control(websocket.PongMessage, []byte("data"), time.Second)
		}, false},
		"pong not sent": {0, func(l *link) error {
			return l.control(websocket.PongMessage, []byte("data"), time.Second)
		}, true},
		"message": {3, func(l *link) error {
			return l.send(&net.Buffers{[]byte("a frame")}, time.Second)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &partial{take: c.take}
			l := newLink(conn, nil, time.Now())
			if err := c.first(l); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			conn.take = 1 << 20
			before := conn.written
			for _, err := range []error{l.send(&net.Buffers{[]byte("a frame")}, time.Second),
				l.control(websocket.CloseMessage, nil, time.Second)} {
				if c.more != (err == nil) {
					t.Errorf("%v", err)
				}
			}
			if c.more != (conn.written > before) {
				t.Errorf("%d bytes followed", conn.written-before)
			}
		})
	}
}
