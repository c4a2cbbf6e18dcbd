package ws

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/query"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/internal/wire"
	"millrace/stream"
)

// router answers the adapter's HTTP requests.
type router struct {
	protocols
	http    *httpd.Server
	gate    atomic.Pointer[ingest.Gate] // nil until the adapter serves
	address func(*fiber.Ctx) netip.Addr // Options.Address
}

func (r *router) register(app *fiber.App) {
	for _, path := range []string{"/v2/stream", "/v2/models/:model/stream",
		"/v2/models/:model/versions/:version/stream"} {
		app.Get(path, r.handle)
	}
	for _, p := range protocolList {
		if p.path != "" {
			app.Get(p.path, r.handle)
		}
	}
	app.Post("/v2/tickets", r.mintTicket)
}

// handle makes all checks that can end in an HTTP error and takes over the connection. Request data used later is
// copied, because the request's memory is reused.
func (r *router) handle(c *fiber.Ctx) error {
	gate := r.gate.Load()
	if gate == nil {
		return ingest.ErrStarting
	}
	if !r.http.OriginAllowed(c) {
		return stream.Errorf(stream.PermissionDenied, "",
			"pages of the web origin %q may not open streams here: add it to origins", conn.Clip(c.Get("Origin")))
	}
	q, err := r.readQuery(c)
	if err != nil {
		return err
	}
	client := ingest.ClientOf(httpd.ClientOf(c))
	if q.Model != "" && client.Known() { // without credentials, nothing about the models is revealed
		if _, _, err := client.Models().Model(q.Model, q.Version); err != nil {
			return err
		}
	}
	req, err := httpd.Handshake(c)
	if err != nil {
		return err
	}
	offered := websocket.Subprotocols(req)
	p := choose(c.Route().Path, offered)
	if option := firstOption(c, func(name string) bool { return !p.takes(name) }); option != "" {
		return stream.Errorf(stream.InvalidArgument, option, "is an option of plain mode, which %s does not take",
			p.name)
	}
	// A web page cannot read the status of a refused handshake, and is therefore connected and sent the error.
	explain := p.explains && c.Get("Origin") != ""
	client, rejected := r.admit(c, gate, client, offered)
	if rejected != nil && !explain {
		return rejected
	}
	if q.Model == "" && p.needsModel {
		return stream.Errorf(stream.InvalidArgument, "model",
			"is missing: want /v2/stream?model=NAME or /v2/models/NAME/stream, or the subprotocol %s", wire.Subprotocol)
	}
	by := conn.Client{Account: client.Account(), Address: r.address(c)}
	if rejected == nil {
		rejected = r.checkLimits(by)
		if rejected != nil && (stream.CodeOf(rejected) == stream.Draining || !explain) {
			r.conns.Refused()
			return rejected
		}
	}
	httpd.Hijack(c, func(nc net.Conn, buffered []byte) {
		c := r.conns.New(nc, gate.Memory(), p.form)
		c.EndWith(client)
		r.conns.Start(c, p.begin(&r.protocols, c, client, q), by, rejected, req, buffered)
	})
	return nil
}

// checkLimits returns nil, or why there is no room for another connection of a client.
func (r *router) checkLimits(of conn.Client) error {
	if err := r.conns.Admit(of); err != nil {
		return err
	}
	err := of.Account.Core().Hold(stream.QuotaSessions)
	if err == nil { // the registry holds the session
		of.Account.Core().Release(stream.QuotaSessions)
	}
	return err
}

// mintTicket answers POST /v2/tickets.
func (r *router) mintTicket(c *fiber.Ctx) error {
	text, err := ingest.ClientOf(httpd.ClientOf(c)).Ticket()
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(fiber.Map{"ticket": text, "protocol": wire.TicketPrefix + text,
		"expires_ms": access.TicketTime.Milliseconds()})
}

// OffersTicket reports whether a WebSocket request has a ticket among its subprotocols.
func OffersTicket(c *fiber.Ctx) bool {
	for part := range strings.SplitSeq(c.Get("Sec-WebSocket-Protocol"), ",") {
		if strings.HasPrefix(strings.TrimSpace(part), wire.TicketPrefix) {
			return true
		}
	}
	return false
}

// admit checks the tickets among the client's subprotocols; a client without other credentials needs a ticket. admit
// returns the client to which the ticket belongs.
func (r *router) admit(c *fiber.Ctx, gate *ingest.Gate, client *ingest.Client,
	offered []string) (*ingest.Client, error) {
	needed := !client.Known()
	for _, p := range offered {
		text, ok := strings.CutPrefix(p, wire.TicketPrefix)
		if !ok {
			continue
		}
		of, err := gate.Redeem(text)
		if err != nil {
			return nil, err
		}
		if !needed { // clients need no credentials
			continue
		}
		if err := of.Err(); err != nil {
			gate.Count(access.Expired)
			return nil, stream.Errorf(stream.Unauthenticated, "ticket", "%w", err)
		}
		of, err = of.Renew(access.Need{Role: role.Infer, Scope: access.ClientScope}) // the address is charged
		if err != nil {
			return nil, err
		}
		client = of
		httpd.SetClient(c, of)
		httpd.Accepted(c.Context())
	}
	if !client.Known() {
		return nil, stream.Errorf(stream.Unauthenticated, "ticket", "is missing: ask for one at POST /v2/tickets")
	}
	return client, nil
}

// readQuery reads model, version and options from the request's address.
func (r *router) readQuery(c *fiber.Ctx) (q query.Options, err error) {
	q.Codec = stream.Auto
	c.Context().QueryArgs().VisitAll(func(key, value []byte) {
		if err == nil {
			err = q.Set(string(key), string(value))
		}
	})
	if err != nil {
		return q, err
	}
	if err := q.Check(); err != nil {
		return q, err
	}
	var h frames.TraceHeaders
	c.Request().Header.VisitAll(h.Add)
	if q.Traceparent != "" {
		h.Add([]byte("traceparent"), []byte(q.Traceparent))
	}
	q.Trace = r.contexts.Request(&h)
	if q.Version, err = pathPart(c, "version"); err != nil {
		return q, err
	}
	name, err := pathPart(c, "model")
	switch {
	case err != nil:
		return q, err
	case name != "" && q.Model != "":
		return q, stream.Errorf(stream.InvalidArgument, "model", "is in the path already")
	case name != "":
		q.Model = name
	}
	return q, nil
}

// firstOption returns the first query option accepted by ok, or "".
func firstOption(c *fiber.Ctx, ok func(name string) bool) (first string) {
	c.Context().QueryArgs().VisitAll(func(key, _ []byte) {
		if first == "" && ok(string(key)) {
			first = string(key)
		}
	})
	return first
}

func pathPart(c *fiber.Ctx, name string) (string, error) {
	v, err := url.PathUnescape(strings.Clone(c.Params(name)))
	if err != nil {
		return "", stream.Errorf(stream.InvalidArgument, name, "is not a well-formed part of a path")
	}
	return v, nil
}
