package streams

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
	"millrace/stream"
)

const (
	watchRoom = 256 // lines that wait for one watcher
	heartbeat = 15 * time.Second
	writeWait = 10 * time.Second
)

// form is how a watcher is written to.
type form struct {
	mime string
	// line writes one line; lost is how many came before it that the watcher was
	// too slow for.
	line func(w io.Writer, line []byte, lost uint64) error
	// beat says that there is nothing new; last is the last line written, or nil.
	beat func(w io.Writer, last []byte) error
}

var events = form{"text/event-stream",
	func(w io.Writer, line []byte, lost uint64) error {
		if lost > 0 {
			if _, err := fmt.Fprintf(w, "event: lost\ndata: {\"lost\":%d}\n\n", lost); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, "data: %s\n\n", line)
		return err
	},
	func(w io.Writer, _ []byte) error { _, err := io.WriteString(w, ": still here\n\n"); return err },
}

var lines = form{"application/x-ndjson",
	func(w io.Writer, line []byte, lost uint64) error {
		if lost > 0 {
			if _, err := fmt.Fprintf(w, "{\"lost\":%d}\n", lost); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, "%s\n", line)
		return err
	},
	func(w io.Writer, _ []byte) error { _, err := io.WriteString(w, "\n"); return err },
}

var pictures = form{"multipart/x-mixed-replace; boundary=frame",
	func(w io.Writer, jpeg []byte, _ uint64) error {
		_, err := fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(jpeg), jpeg)
		return err
	},
	func(w io.Writer, last []byte) error {
		if last == nil {
			return nil
		}
		_, err := fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(last), last)
		return err
	},
}

// watched answers a request with what a stream gives, for as long as both last.
// The reply is written to the bare connection: the HTTP server would end it
// after its time for writing.
func (a *Adapter) watched(c *fiber.Ctx, m form, enter func() (*watcher, bool), leave func(*watcher)) error {
	if a.watchers.Load() >= int64(a.opts.MaxWatchers) {
		return stream.Errorf(stream.Overloaded, "limits.max_watchers", "%d watch already: try later, or raise the setting", a.opts.MaxWatchers)
	}
	c.Set(fiber.HeaderContentType, m.mime)
	c.Set(fiber.HeaderCacheControl, "no-store")
	if c.Method() == fiber.MethodHead {
		return nil
	}
	var head strings.Builder
	head.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\nX-Accel-Buffering: no\r\n")
	c.Response().Header.VisitAll(func(k, v []byte) {
		switch string(k) {
		case fiber.HeaderContentLength, fiber.HeaderConnection:
		default:
			fmt.Fprintf(&head, "%s: %s\r\n", k, v)
		}
	})
	head.WriteString("\r\n")
	httpd.Hijack(c, func(conn net.Conn, _ []byte) {
		if !a.run("watcher", func() { a.serve(conn, head.String(), m, enter, leave) }) {
			_ = conn.Close()
		}
	})
	return nil
}

// serve writes to one watcher until it leaves, is stuck, or nothing comes any
// more. It owns the connection.
func (a *Adapter) serve(conn net.Conn, head string, m form, enter func() (*watcher, bool), leave func(*watcher)) {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	defer conn.Close()
	w, ok := enter()
	if !ok {
		_ = conn.SetWriteDeadline(time.Now().Add(writeWait))
		_, _ = io.WriteString(conn, "HTTP/1.1 409 Conflict\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n"+`{"error":"the stream is over","code":"conflict"}`)
		return
	}
	defer leave(w)
	a.watchers.Add(1)
	defer a.watchers.Add(-1)
	a.tasks.Go(func() { // ends with the connection
		_, _ = io.Copy(io.Discard, conn)
		cancel()
	})
	out := deadlined{conn}
	if _, err := io.WriteString(out, head); err != nil {
		return
	}
	quiet := time.NewTicker(heartbeat)
	defer quiet.Stop()
	var last []byte
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case line, more := <-w.lines:
			if !more {
				return
			}
			last = line
			quiet.Reset(heartbeat)
			err = m.line(out, line, w.lost.Swap(0))
		case <-quiet.C:
			err = m.beat(out, last)
		}
		if err != nil {
			return
		}
	}
}

// deadlined gives each write its time.
type deadlined struct{ net.Conn }

func (d deadlined) Write(p []byte) (int, error) {
	if err := d.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return 0, err
	}
	return d.Conn.Write(p)
}
