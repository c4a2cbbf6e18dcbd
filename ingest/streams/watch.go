package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/sources"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

const (
	watchRoom = 256 // maximum number of waiting lines for one watcher
	writeWait = 10 * time.Second
)

// format is how lines are written to a watcher.
type format struct {
	mime string
	// line writes one line; lost is the number of lines lost before this line by a slow watcher.
	line func(w io.Writer, line []byte, lost uint64) error
	// keepAlive shows that the connection is alive; shown is the last line written, or nil.
	keepAlive func(w io.Writer, shown []byte) error
	// closing writes why the stream has ended; nil when the format has no way to do so.
	closing func(w io.Writer, line []byte) error
}

var events = format{httpd.EventStream,
	func(w io.Writer, line []byte, lost uint64) error {
		var text []byte
		if lost > 0 {
			text = httpd.AppendEvent(text, "lost", fmt.Appendf(nil, `{"lost":%d}`, lost))
		}
		_, err := w.Write(httpd.AppendEvent(text, "", line))
		return err
	},
	func(w io.Writer, _ []byte) error { _, err := w.Write(httpd.EventComment); return err },
	func(w io.Writer, line []byte) error {
		_, err := w.Write(httpd.AppendEvent(nil, "closed", line))
		return err
	},
}

var lines = format{"application/x-ndjson",
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
	func(w io.Writer, line []byte) error { _, err := fmt.Fprintf(w, "%s\n", line); return err },
}

var pictures = format{"multipart/x-mixed-replace; boundary=frame",
	func(w io.Writer, jpeg []byte, _ uint64) error {
		_, err := fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(jpeg),
			jpeg)
		return err
	},
	func(w io.Writer, shown []byte) error {
		if shown == nil {
			return nil
		}
		_, err := fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(shown),
			shown)
		return err
	},
	nil,
}

// accountOf returns the account of a request's client, or nil.
func accountOf(c *fiber.Ctx) *stream.Account {
	return ingest.ClientOf(httpd.ClientOf(c)).Core()
}

// holdWatcher counts a watcher of a client. holdWatcher fails at limits.max_watchers or at the client's
// quotas.watchers.
func (a *Adapter) holdWatcher(of *stream.Account) error {
	if a.watchers.Add(1) > int64(a.opts.MaxWatchers) {
		a.watchers.Add(-1)
		return stream.Errorf(stream.Overloaded, "limits.max_watchers",
			"%d clients watch already: try later, or raise the setting", a.opts.MaxWatchers)
	}
	if err := of.Hold(stream.QuotaWatchers); err != nil {
		a.watchers.Add(-1)
		return err
	}
	return nil
}

// releaseWatcher undoes holdWatcher.
func (a *Adapter) releaseWatcher(of *stream.Account) {
	a.watchers.Add(-1)
	of.Release(stream.QuotaWatchers)
}

// holdEncoder takes a place for an encoder of watched video.
func (a *Adapter) holdEncoder() error {
	if a.encoders.Add(1) > int64(a.opts.MaxEncoders) {
		a.encoders.Add(-1)
		return stream.Errorf(stream.Overloaded, "limits.max_encoders", "%d videos are encoded for watchers already: "+
			"try later, raise the setting, or watch without WebSocket", a.opts.MaxEncoders)
	}
	return nil
}

func (a *Adapter) releaseEncoder() { a.encoders.Add(-1) }

// roomForWatcher returns an error when there is no room for a watcher; see holdWatcher.
func (a *Adapter) roomForWatcher(of *stream.Account) error {
	err := a.holdWatcher(of)
	if err == nil {
		a.releaseWatcher(of)
	}
	return err
}

// errStreamEnded is the error of a new watcher of an ended stream.
var errStreamEnded = stream.Errorf(stream.Conflict, "", "the stream has ended")

// found returns a watcher, or the error of an ended stream.
func found(w *watcher, ok bool) (*watcher, error) {
	if !ok {
		return nil, errStreamEnded
	}
	return w, nil
}

// addWatcher counts and registers a watcher of a client. addWatcher fails when there is no room for the watcher, or
// the stream has ended.
func (a *Adapter) addWatcher(of *stream.Account, enter func() (*watcher, error),
	leave func(*watcher)) (w *watcher, left func(), err error) {
	if err := a.holdWatcher(of); err != nil {
		return nil, nil, err
	}
	w, err = enter()
	if err != nil {
		a.releaseWatcher(of)
		return nil, nil, err
	}
	return w, func() { leave(w); a.releaseWatcher(of) }, nil
}

// watched answers a request with a stream's lines or pictures until the request or the stream ends. The reply
// bypasses the HTTP server, whose write time-out would end the reply.
func (a *Adapter) watched(c *fiber.Ctx, m format, f *runner, enter func() (*watcher, error),
	leave func(*watcher)) error {
	account := accountOf(c)
	if err := a.roomForWatcher(account); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, m.mime)
	c.Set(fiber.HeaderCacheControl, "no-store")
	if c.Method() == fiber.MethodHead {
		return nil
	}
	a.http.GoLive(c, a.ctx, a.run, "watcher", func(l *httpd.Live) {
		a.serve(l, m, f, account, enter, leave)
	}, func() {})
	return nil
}

// serve writes to one watcher until the watcher disconnects or is stuck, or the stream has ended.
func (a *Adapter) serve(l *httpd.Live, m format, f *runner, of *stream.Account, enter func() (*watcher, error),
	leave func(*watcher)) {
	w, left, err := a.addWatcher(of, enter, leave)
	if err != nil {
		l.Fail(err)
		return
	}
	defer left()
	if l.Begin() == nil {
		_ = a.writeLines(l.Context(), m, l, w, f.closedLine)
	}
}

// Reasons of the client's side for the end of a watch.
var (
	errDisconnected = httpd.ErrClientGone
	errSentMessage  = errors.New("the client sent a message")
)

// writeLines writes the watcher's lines. At the end of the stream or the server, writeLines tells the watcher and
// returns nil. After losing its rights, the watcher is told the reason, and writeLines returns ctx's cause. If the
// client does not read, writeLines returns errDisconnected.
func (a *Adapter) writeLines(ctx context.Context, m format, out io.Writer, w *watcher,
	closedLine func(error) []byte) error {
	beats := time.NewTicker(a.opts.Heartbeat)
	defer beats.Stop()
	var shown []byte
	for {
		var err error
		over := false
		select {
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if stream.CodeOf(cause) == stream.Unauthenticated {
				if m.closing != nil {
					_ = m.closing(out, closedLine(cause))
				}
				return cause
			}
			if !errors.Is(cause, context.Canceled) {
				return cause
			}
			over = true
		case line, more := <-w.lines:
			if over = !more; over {
				break
			}
			shown = line
			err = m.line(out, line, w.lost.Swap(0))
		case <-beats.C:
			err = m.keepAlive(out, shown)
		}
		if over && m.closing != nil {
			err = m.closing(out, closedLine(nil))
		}
		switch {
		case err != nil:
			return errDisconnected
		case over:
			return nil
		}
	}
}

// closedLine returns the last line for watchers, with the reason: why the stream has ended, or why a watcher may not
// go on (revoked).
func (f *runner) closedLine(revoked error) []byte {
	st := f.state()
	why := string(st.State) // ended or failed
	switch {
	case revoked != nil:
		why = "unauthenticated"
	case f.a.ctx.Err() != nil:
		why = "draining"
	case f.ctx.Err() != nil:
		why = "deleted"
	}
	line := oip.AppendString([]byte(`{"stream":`), f.name)
	line = oip.AppendString(append(line, `,"closed":`...), why)
	if revoked != nil {
		line = wire.AppendPlainError(append(line, ','), revoked)
	} else if st.State == sources.Failed && st.Err != nil {
		line = wire.AppendPlainError(append(line, ','), st.Err)
	}
	return append(line, '}')
}
