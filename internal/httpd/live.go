package httpd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// liveWrite is the time limit of one write of a live reply.
const liveWrite = 10 * time.Second

// EventStream is the media type of server-sent events.
const EventStream = "text/event-stream"

// Live is a reply whose parts are sent as they become ready. A Live owns its connection, since the HTTP server would
// end the reply after the write time-out and would not notice a client that disconnects. The methods may be called
// concurrently.
type Live struct {
	ctx  context.Context
	conn net.Conn

	mu     sync.Mutex
	head   []byte // header not yet written
	chunks bool   // each part is a chunk
	out    []byte // bytes collected for one write, at most liveBuffer
	broken error  // error of a write; nothing may follow
}

// liveBuffer is how much of a live reply is written at once, but for larger parts of the caller's.
const liveBuffer = 4 << 10

var _ io.Writer = (*Live)(nil)

// GoLive makes the reply to c a live reply, with the current headers of c's response. When the handler has returned,
// run starts serve in a goroutine called name, and a goroutine called reader; after serve the connection is closed.
// The reply's context ends with ctx, when the client has disconnected, or when the client's credentials have expired.
// not is called instead of serve if run starts nothing, or if the connection fails before the takeover, for example
// while an earlier reply is written.
func (s *Server) GoLive(c *fiber.Ctx, ctx context.Context, run func(name string, f func()) bool, name string,
	serve func(*Live), not func()) {
	if w := connOf(c.Context().Conn()); w != nil {
		w.lost = not
	}
	l := &Live{head: []byte("HTTP/1.1 200 OK\r\nConnection: close\r\nX-Accel-Buffering: no\r\n")}
	c.Response().Header.VisitAll(func(k, v []byte) {
		switch string(k) {
		case fiber.HeaderContentLength, fiber.HeaderConnection:
		default:
			l.head = fmt.Appendf(l.head, "%s: %s\r\n", k, v)
		}
	})
	// Readers of events recognise the end of an event by the end of its chunk: many read bodies without chunks in
	// blocks. Readers of other live replies may not know chunks.
	if c.Request().Header.IsHTTP11() && bytes.HasPrefix(c.Response().Header.ContentType(), []byte(EventStream)) {
		l.chunks = true
		l.head = append(l.head, "Transfer-Encoding: chunked\r\n"...)
	}
	l.head = append(l.head, "\r\n"...)
	whenEnded := onEnd(c)
	Hijack(c, func(conn net.Conn, _ []byte) {
		l.conn = conn
		started := run(name, func() {
			defer conn.Close()
			live, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer whenEnded(cancel)()
			l.ctx = live
			reading := run("reader", func() { // ends with the connection
				_, _ = io.Copy(io.Discard, conn)
				cancel(ErrClientGone)
			})
			if reading {
				serve(l)
				l.end()
			} else {
				not()
			}
		})
		if !started {
			_ = conn.Close()
			not()
		}
	})
}

// Context ends when the client has disconnected, with the cause ErrClientGone, or when the context passed to GoLive
// ends.
func (l *Live) Context() context.Context { return l.ctx }

// Begin sends the header, unless already sent.
func (l *Live) Begin() error {
	_, err := l.Write(nil)
	return err
}

// Write sends the header, unless the header was sent before, and then p. Write waits at most 10 s for a client that
// does not read.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(p)
}

func (l *Live) write(p []byte) (n int, err error) {
	if err := l.begin(len(p)); err != nil {
		return 0, err
	}
	if err := l.add(p); err != nil {
		return 0, err
	}
	return len(p), l.finish(len(p))
}

// begin begins a part of n bytes; the client must take the whole part within liveWrite.
func (l *Live) begin(n int) error {
	if l.broken != nil {
		return l.broken
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(liveWrite)); err != nil {
		return err
	}
	l.out = append(l.out[:0], l.head...)
	l.head = nil
	if l.chunks && n > 0 {
		l.out = append(strconv.AppendInt(l.out, int64(n), 16), "\r\n"...)
	}
	return nil
}

// add adds bytes to the part.
func (l *Live) add(p []byte) error {
	if len(l.out)+len(p) <= liveBuffer {
		l.out = append(l.out, p...)
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	if len(p) < liveBuffer {
		l.out = append(l.out, p...)
		return nil
	}
	_, l.broken = l.conn.Write(p)
	return l.broken
}

// flush writes the collected bytes.
func (l *Live) flush() error {
	if len(l.out) > 0 {
		_, l.broken = l.conn.Write(l.out)
		l.out = l.out[:0]
	}
	return l.broken
}

// finish ends a part of n bytes, and writes the rest of the part.
func (l *Live) finish(n int) error {
	if l.chunks && n > 0 {
		l.out = append(l.out, "\r\n"...)
	}
	return l.flush()
}

// end marks the end of a reply in chunks.
func (l *Live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.chunks && l.head == nil && l.broken == nil {
		_ = l.conn.SetWriteDeadline(time.Now().Add(liveWrite))
		_, _ = io.WriteString(l.conn, "0\r\n\r\n") // a client that has left does not need the end
	}
}

// Event sends a server-sent event. name "" is a message without a name.
func (l *Live) Event(name string, data []byte) error {
	data = eventLines(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	first, lines := []byte(nil), bytes.Count(data, lineFeed)+1
	if name != "" {
		first = append(append(append(first, "event: "...), name...), '\n')
	}
	n := len(first) + lines*len("data: \n") + len(data) - (lines - 1) + 1
	if err := l.begin(n); err != nil {
		return err
	}
	if err := l.add(first); err != nil {
		return err
	}
	for more := true; more; {
		var line []byte
		line, data, more = bytes.Cut(data, lineFeed)
		for _, p := range [...][]byte{dataField, line, lineFeed} {
			if err := l.add(p); err != nil {
				return err
			}
		}
	}
	if err := l.add(lineFeed); err != nil {
		return err
	}
	return l.finish(n)
}

// eventLines returns data with line feeds as the only line ends. Lines of server-sent events end with CR, LF or both:
// a CR left in the data would begin another field (HTML Standard, 9.2.5).
func eventLines(data []byte) []byte {
	if bytes.IndexByte(data, '\r') < 0 {
		return data
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), lineFeed), []byte("\r"), lineFeed)
}

var lineFeed, dataField = []byte{'\n'}, []byte("data: ")

// Fail replies with err, and its status, if nothing has been sent yet; otherwise the result is false.
func (l *Live) Fail(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == nil {
		return false
	}
	l.head, l.chunks = nil, false
	ReplyError(l.conn, err)
	return true
}

// ReplyStatus replies with a status, a header and a body if nothing has been sent yet; otherwise the result is false.
func (l *Live) ReplyStatus(status int, header func(*fasthttp.ResponseHeader), body []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == nil {
		return false
	}
	l.head, l.chunks = nil, false
	var resp fasthttp.Response
	resp.SetStatusCode(status)
	header(&resp.Header)
	resp.SetBodyRaw(body)
	writeReply(l.conn, &resp)
	return true
}

// Heartbeat sends a comment every interval until stop is called, so that proxies keep the connection open.
func (l *Live) Heartbeat(interval time.Duration, run func(name string, f func()) bool) (stop func()) {
	done := make(chan struct{})
	run("heartbeat", func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if _, err := l.Write(EventComment); err != nil {
					return
				}
			case <-done:
				return
			case <-l.ctx.Done():
				return
			}
		}
	})
	return func() { close(done) }
}

// EventComment keeps a stream of events open; readers ignore comments.
var EventComment = []byte(": still here\n\n")

// AppendEvent appends a server-sent event; the lines of data become lines of the event.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	data = eventLines(data)
	for more := true; more; {
		var line []byte
		line, data, more = bytes.Cut(data, lineFeed)
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}

// ReplyError replies with err on a connection that was taken over.
func ReplyError(conn net.Conn, err error) {
	var resp fasthttp.Response
	setError(&resp, err)
	writeReply(conn, &resp)
}

func writeReply(conn net.Conn, resp *fasthttp.Response) {
	_ = conn.SetWriteDeadline(time.Now().Add(liveWrite))
	var text strings.Builder
	resp.Header.SetConnectionClose()
	resp.Header.SetContentLength(len(resp.Body()))
	_, _ = resp.Header.WriteTo(&text)
	text.Write(resp.Body())
	_, _ = io.WriteString(conn, text.String())
}

// AddHeader adds a header of a program's reply, except the headers about the connection: the server sets these.
func AddHeader(h *fasthttp.ResponseHeader, name, value string) {
	switch strings.ToLower(name) {
	case "content-length", "connection", "transfer-encoding", "keep-alive", "upgrade", "trailer":
	case "set-cookie":
		h.Add(name, value)
	default:
		h.Set(name, value)
	}
}
