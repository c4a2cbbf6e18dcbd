package ws

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
)

// callsPath is where a text message is a call in the form of the Open Inference
// Protocol, whose one input is the address of a video.
const callsPath = "/models/infer"

func (a *Adapter) routes(app *fiber.App) {
	for _, path := range []string{callsPath, "/v2/stream", "/v2/models/:model/stream", "/v2/models/:model/versions/:version/stream"} {
		app.Get(path, a.handle)
	}
	app.Post("/v2/tickets", a.mintTicket)
}

// handle checks everything that can be told as an HTTP error and hijacks the
// connection. What outlives it is copied: the request's memory is used again.
func (a *Adapter) handle(c *fiber.Ctx) error {
	backend := a.backend.Load()
	if backend == nil {
		return stream.Errorf(stream.Unavailable, "", "the server is starting")
	}
	if !a.http.OriginAllowed(c) {
		return stream.Errorf(stream.PermissionDenied, "", "pages of the web origin %q may not open streams here: add it to origins", clip(c.Get("Origin")))
	}
	q, version, err := readQuery(c)
	if err != nil {
		return err
	}
	if q.model != "" {
		if _, _, err := (*backend).Models().Model(q.model, version); err != nil {
			return err
		}
	}
	req, err := httpd.Handshake(c)
	if err != nil {
		return err
	}
	offered := websocket.Subprotocols(req)
	page := c.Get("Origin") != "" && slices.Contains(offered, wire.Subprotocol)
	refused := a.admit(offered)
	if refused != nil && !page {
		return refused
	}
	if q.model == "" && !q.calls && !slices.Contains(offered, wire.Subprotocol) {
		return stream.Errorf(stream.InvalidArgument, "model", "is missing: want /v2/stream?model=NAME or /v2/models/NAME/stream, or the subprotocol %s", wire.Subprotocol)
	}
	if refused == nil {
		a.mu.Lock()
		refused = a.room()
		a.mu.Unlock()
		if refused != nil && (stream.CodeOf(refused) == stream.Draining || !page) {
			return httpd.WithStatus(fiber.StatusServiceUnavailable, refused) // the limit is the server's, not this client's
		}
	}
	httpd.Hijack(c, func(conn net.Conn, buffered []byte) {
		s := newSession(a, conn, *backend, q, version)
		s.refused = refused
		if a.enter(s) != nil {
			refuse(conn, "503 Service Unavailable")
			return
		}
		if !a.group.run("reader", func() { s.serve(req, buffered) }, s.fault) {
			a.leave(s, EndRefused)
			refuse(conn, "503 Service Unavailable")
		}
	})
	return nil
}

// maxRefusing bounds the web pages that are being told why they may not stay: a
// page is not shown the status of a refused handshake, so it is let in for that.
const maxRefusing = 64

// room says why there is no place for another session. a.mu is held.
func (a *Adapter) room() error {
	switch {
	case a.closing:
		return stream.Errorf(stream.Draining, "", "the server is shutting down")
	case len(a.sessions)-a.refusing >= a.opts.MaxSessions:
		return stream.Errorf(stream.Overloaded, "limits.max_sessions", "%d sessions are open already: try later, or raise the setting", a.opts.MaxSessions)
	}
	return nil
}

// readQuery reads model, version and options from the request's address.
func readQuery(c *fiber.Ctx) (q query, version string, err error) {
	q = query{codec: stream.Auto}
	c.Context().QueryArgs().VisitAll(func(key, value []byte) {
		if err == nil {
			err = q.set(string(key), string(value))
		}
	})
	if err != nil {
		return q, "", err
	}
	if err := q.check(); err != nil {
		return q, "", err
	}
	if c.Route().Path == callsPath {
		q.calls, q.outputs = true, asReply
		return q, "", nil
	}
	if version, err = pathPart(c, "version"); err != nil {
		return q, "", err
	}
	name, err := pathPart(c, "model")
	switch {
	case err != nil:
		return q, "", err
	case name != "" && q.model != "":
		return q, "", stream.Errorf(stream.InvalidArgument, "model", "is in the path already")
	case name != "":
		q.model = name
	}
	return q, version, nil
}

func pathPart(c *fiber.Ctx, name string) (string, error) {
	v, err := url.PathUnescape(strings.Clone(c.Params(name)))
	if err != nil {
		return "", stream.Errorf(stream.InvalidArgument, name, "is not a well-formed part of an address")
	}
	return v, nil
}
