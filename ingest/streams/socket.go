package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
)

const (
	// closeWait is the longest wait for the client's part of the closing handshake.
	closeWait = 2 * time.Second
	// pongWait is the longest wait for sending an answer to a ping.
	pongWait = time.Second
	// videoBuffer is for the bytes of encoded video that the system keeps for one client.
	videoBuffer = 256 << 10
)

// A watcher's WebSocket and the connections of package ws share only the upgrade and the close codes. A watcher's
// WebSocket has no messages of the client and no outbox (a slow watcher loses lines), and sends pings in the pauses
// between lines like the other forms of watching. Adapters do not import each other.

// upgrader serves all watchers. A watcher sends nothing but pings, pongs and a close.
var upgrader = httpd.NewUpgrader(512)

// isSocket reports whether a request asks for WebSocket.
func isSocket(c *fiber.Ctx) bool {
	return strings.Contains(strings.ToLower(c.Get(fiber.HeaderUpgrade)), "websocket")
}

// watchSocket sends a watcher's lines as messages.
func (a *Adapter) watchSocket(c *fiber.Ctx, f *runner, form func(*websocket.Conn, *watcher) format,
	enter func() (*watcher, error), leave func(*watcher)) error {
	if !a.http.OriginAllowed(c) {
		return stream.Errorf(stream.PermissionDenied, "",
			"pages of the web origin %.256q may not watch streams here: add it to origins", c.Get(fiber.HeaderOrigin))
	}
	req, err := httpd.Handshake(c)
	if err != nil {
		return err
	}
	if err := a.roomForWatcher(accountOf(c)); err != nil {
		return err
	}
	client := ingest.ClientOf(httpd.ClientOf(c))
	httpd.Hijack(c, func(conn net.Conn, buffered []byte) {
		if !a.run("watcher", func() { a.serveSocket(conn, buffered, req, f, client, form, enter, leave) }) {
			_ = conn.Close()
		}
	})
	return nil
}

// serveSocket writes to one watcher until the watcher disconnects or is stuck, or the stream has ended. serveSocket
// owns the connection.
func (a *Adapter) serveSocket(conn net.Conn, buffered []byte, req *http.Request, f *runner, client *ingest.Client,
	form func(*websocket.Conn, *watcher) format, enter func() (*watcher, error), leave func(*watcher)) {
	defer conn.Close()
	w, left, err := a.addWatcher(client.Core(), enter, leave)
	if err != nil {
		httpd.ReplyError(conn, err)
		return
	}
	defer left()
	ws, err := httpd.Upgrade(upgrader, conn, buffered, req)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	defer client.OnEnd(cancel)()
	read := make(chan struct{})
	listening := a.tasks.Go("reader", func() { // ends with the connection
		defer close(read)
		listen(ws, a.opts.Heartbeat+a.opts.PongWait, cancel)
	}, nil)
	if !listening {
		return
	}
	if cause := a.writeLines(ctx, form(ws, w), io.Discard, w, f.closedLine); !errors.Is(cause, errDisconnected) {
		code, text := wire.CloseNormal, ""
		switch {
		case errors.Is(cause, errSentMessage):
			why := stream.Errorf(stream.Unsupported, "",
				"messages are not accepted: this connection sends results; PATCH /v2/streams/%s changes the stream",
				f.name)
			code, text = wire.CloseCodeOf(why), "messages are not accepted"
			_ = sendText(ws, append(wire.AppendPlainError([]byte("{"), why), '}'))
		case stream.CodeOf(cause) == stream.FlowControl:
			code, text = wire.ClosePolicy, "too many pings"
			_ = sendText(ws, append(wire.AppendPlainError([]byte("{"), cause), '}'))
		case stream.CodeOf(cause) == stream.Unauthenticated:
			code, text = wire.CloseUnauthenticated, "the credentials are not valid any more"
		case a.ctx.Err() != nil:
			code, text = wire.CloseGoingAway, "the server is shutting down"
		}
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(int(code), text),
			time.Now().Add(writeWait))
		t := time.AfterFunc(closeWait, func() { _ = conn.Close() })
		<-read // until the client has closed, or pongWait has passed
		t.Stop()
	}
}

// listen reads from the client until the client disconnects or is silent for too long. Clients may send only pongs, a
// close, and pings within the limits of httpd.Pings; a message takes no memory, whatever its size.
func listen(ws *websocket.Conn, silence time.Duration, cancel context.CancelCauseFunc) {
	defer cancel(errDisconnected)
	alive := func(string) error { return ws.SetReadDeadline(time.Now().Add(silence)) }
	_ = alive("")
	ws.SetPongHandler(alive)
	var pings httpd.Pings
	ws.SetPingHandler(func(data string) error {
		answer, err := pings.Ping(time.Now())
		if err != nil {
			cancel(err)
		} else if answer {
			// if the write fails, the writer or the reader ends the connection
			_ = ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(pongWait))
		}
		return nil
	})
	for {
		_, r, err := ws.NextReader()
		if err != nil {
			return
		}
		cancel(errSentMessage)
		if _, err := io.Copy(io.Discard, r); err != nil {
			return
		}
	}
}

// messages is the format of results on a WebSocket. Pings keep the connection alive.
func messages(ws *websocket.Conn, _ *watcher) format {
	return format{
		line: func(_ io.Writer, line []byte, lost uint64) error {
			if lost > 0 {
				if err := sendText(ws, fmt.Appendf(nil, `{"lost":%d}`, lost)); err != nil {
					return err
				}
			}
			return sendText(ws, line)
		},
		keepAlive: func(io.Writer, []byte) error {
			return ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeWait))
		},
		closing: func(_ io.Writer, line []byte) error { return sendText(ws, line) },
	}
}

// videoMessages is the format of encoded video on a WebSocket.
func videoMessages(ws *websocket.Conn, w *watcher) format {
	limitBuffer(ws.NetConn())
	m := messages(ws, w)
	m.line = func(_ io.Writer, line []byte, _ uint64) error {
		w.bytes.Add(-int64(len(line)))
		if isText(line) {
			return sendText(ws, line)
		}
		return send(ws, websocket.BinaryMessage, line)
	}
	return m
}

// limitBuffer bounds the bytes that the system keeps for the client: by default, a slow watcher would be many seconds
// behind before the server notices.
func limitBuffer(c net.Conn) {
	for {
		switch x := c.(type) {
		case interface{ SetWriteBuffer(int) error }:
			_ = x.SetWriteBuffer(videoBuffer)
			return
		case interface{ NetConn() net.Conn }: // below TLS
			c = x.NetConn()
		default:
			return
		}
	}
}

func sendText(ws *websocket.Conn, text []byte) error { return send(ws, websocket.TextMessage, text) }

func send(ws *websocket.Conn, kind int, data []byte) error {
	if err := ws.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	return ws.WriteMessage(kind, data)
}
