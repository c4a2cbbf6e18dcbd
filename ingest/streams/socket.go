package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/internal/httpd"
	"millrace/stream"
)

// closeWait bounds the wait for the client's half of the closing handshake.
const closeWait = 2 * time.Second

// upgrader is for all watchers. Origin was checked before.
var upgrader = websocket.Upgrader{
	HandshakeTimeout: writeWait, ReadBufferSize: 512, WriteBufferSize: 4 << 10, WriteBufferPool: &sync.Pool{},
	CheckOrigin: func(*http.Request) bool { return true },
}

// isSocket says whether a request asks for WebSocket.
func isSocket(c *fiber.Ctx) bool {
	return strings.Contains(strings.ToLower(c.Get(fiber.HeaderUpgrade)), "websocket")
}

// watchSocket sends results as text messages, a line each.
func (a *Adapter) watchSocket(c *fiber.Ctx, f *runner) error {
	if !a.http.OriginAllowed(c) {
		return stream.Errorf(stream.PermissionDenied, "", "pages of the web origin %.256q may not watch streams here: add it to origins", c.Get(fiber.HeaderOrigin))
	}
	req, err := httpd.Handshake(c)
	if err != nil {
		return err
	}
	if err := a.roomForWatcher(); err != nil {
		return err
	}
	httpd.Hijack(c, func(conn net.Conn, buffered []byte) {
		if !a.run("watcher", func() { a.serveSocket(conn, buffered, req, f) }) {
			_ = conn.Close()
		}
	})
	return nil
}

// serveSocket writes to one watcher until it leaves, is stuck, or nothing comes
// any more. It owns the connection.
func (a *Adapter) serveSocket(conn net.Conn, buffered []byte, req *http.Request, f *runner) {
	defer conn.Close()
	w, leave, ok := a.addWatcher(conn, func() (*watcher, bool) { return f.results.watch(watchRoom, false) }, f.results.leave)
	if !ok {
		return
	}
	defer leave()
	ws, err := httpd.Upgrade(&upgrader, conn, buffered, req)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	read := make(chan struct{})
	listening := a.tasks.Go("reader", func() { // ends with the connection
		defer close(read)
		listen(ws, a.opts.Heartbeat+a.opts.PongWait, cancel)
	}, nil)
	if !listening {
		return
	}
	if cause := a.writeLines(ctx, messages(ws), io.Discard, w, f.closedLine); !errors.Is(cause, errClientGone) {
		code, text := websocket.CloseNormalClosure, ""
		switch {
		case errors.Is(cause, errSentMessage):
			code, text = websocket.ClosePolicyViolation, "nothing is read here"
			why := stream.Errorf(stream.Unsupported, "", "nothing is read here: this connection gives results; PATCH /v2/streams/%s changes the stream", f.config.Name)
			_ = sendText(ws, append(appendError([]byte("{"), stream.CodeOf(why), why), '}'))
		case a.ctx.Err() != nil:
			code, text = websocket.CloseGoingAway, "the server is shutting down"
		}
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(writeWait))
		t := time.AfterFunc(closeWait, func() { _ = conn.Close() })
		<-read // the client's close, or the end of its patience
		t.Stop()
	}
}

// listen reads what the client sends until it is gone, or silent for so long.
// Pongs and a close are all that is allowed; a message takes no memory, whatever
// its size.
func listen(ws *websocket.Conn, silence time.Duration, cancel context.CancelCauseFunc) {
	defer cancel(errClientGone)
	alive := func(string) error { return ws.SetReadDeadline(time.Now().Add(silence)) }
	_ = alive("")
	ws.SetPongHandler(alive)
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

// messages is the format of a WebSocket, which is kept alive by pings.
func messages(ws *websocket.Conn) format {
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

func sendText(ws *websocket.Conn, text []byte) error {
	if err := ws.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	return ws.WriteMessage(websocket.TextMessage, text)
}
