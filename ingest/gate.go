package ingest

import (
	"context"
	"time"

	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// Gate lets clients in. An adapter gets a gate, and reaches models only by the Client of each call.
// Enter and Identify of a zero Gate or a nil Gate refuse every client. A Gate is safe for concurrent use.
type Gate struct {
	backend Backend
	access  *access.Access // nil = no client may enter
	owner   *Client
	open    *Client // of calls with role.Open, if clients need credentials
}

// NewGate returns a gate to a backend for the clients of a. Without a, only the owner may use the gate.
func NewGate(b Backend, a *access.Access) *Gate {
	g := &Gate{backend: b, access: a}
	g.owner, g.open = &Client{gate: g, owner: true}, &Client{gate: g, open: true}
	return g
}

// errShut is the error of a gate without a backend.
var errShut = stream.Errorf(stream.PermissionDenied, "",
	"the gate of this adapter is shut: the server has not opened it")

// Enter returns the client of a call, and counts the call in the client's quotas. Errors:
// Unauthenticated; PermissionDenied, when the client has not the role or may not use the model;
// FlowControl, for quotas.requests. The client beside PermissionDenied names the refused principal
// and may do nothing.
func (g *Gate) Enter(ctx context.Context, c access.Credentials, n access.Need) (*Client, error) {
	if g == nil || g.access == nil {
		return nil, errShut
	}
	if n.Role == role.Open && g.access.Required() {
		return g.open, nil
	}
	var p *access.Principal
	var at stream.Instant
	if g.access.Required() {
		now := time.Now() // the only reading of the clock here
		at = stream.InstantOf(now)
		var err error
		if p, err = g.access.IdentifyAt(ctx, c, now); err != nil {
			return nil, err
		}
	}
	return g.admit(p, c, n, at)
}

// admit is Enter of a client identified at a time; 0 = the clock was not read.
func (g *Gate) admit(p *access.Principal, c access.Credentials, n access.Need, at stream.Instant) (*Client, error) {
	if err := g.authorize(p, n); err != nil {
		return &Client{refused: p}, err
	}
	client := g.client(p, g.access.AccountOf(p, c))
	if n.Role == role.Open {
		return client, nil
	}
	return client, client.account.Core().Take(stream.QuotaRequests, 1, at)
}

// authorize returns nil if a principal may make a call, and counts the call.
func (g *Gate) authorize(p *access.Principal, n access.Need) error {
	if !g.access.Required() {
		if n.Role == 0 {
			return access.ErrNoRole
		}
		return nil
	}
	if n.Scope == access.LaterScope && n.Model == "" && p.Limited() && p.Allows(n.Role) == nil {
		return nil
	}
	err := p.Authorize(n)
	g.count(err)
	return err
}

// count counts a call of a known client; err is nil, or the reason of the refusal.
func (g *Gate) count(err error) {
	if err != nil {
		g.access.Count(access.Denied)
	} else {
		g.access.Count(access.Allowed)
	}
}

// client returns the client of a principal, or of an account when p is nil. The principal and the
// account remember the client.
func (g *Gate) client(p *access.Principal, a *access.Account) *Client {
	if p == nil {
		if c, _ := a.Client.Load().(*Client); c != nil && c.gate == g {
			return c
		}
		c := &Client{gate: g, account: a}
		a.Client.Store(c)
		return c
	}
	if c, _ := p.Client.Load().(*Client); c != nil && c.gate == g && c.account == a && !c.trusted {
		return c
	}
	c := &Client{gate: g, principal: p, account: a}
	c.checked.Store(int64(stream.Now()))
	p.Client.Store(c)
	return c
}

// Identify returns the client of credentials. Each call of the client begins with Client.Call. Errors:
// Unauthenticated.
func (g *Gate) Identify(ctx context.Context, c access.Credentials) (*Client, error) {
	if g == nil || g.access == nil {
		return nil, errShut
	}
	if !g.access.Required() {
		return nil, stream.Errorf(stream.Unauthenticated, "", "the server has no keys or users to check credentials "+
			"against: set auth.keys or another way, or vouch for the user (Client.As)")
	}
	p, err := g.access.Identify(ctx, c)
	if err != nil {
		return nil, err
	}
	return g.client(p, g.access.AccountOf(p, c)), nil
}

// TrustedClient returns the client of a user of a Go program, without credentials: the program vouches for the
// user. Each call of the client begins with Client.Call.
func (g *Gate) TrustedClient(p *access.Principal) *Client {
	a := g.access.AccountOf(p, access.Credentials{})
	if c, _ := p.Client.Load().(*Client); c != nil && c.gate == g && c.account == a && c.trusted {
		return c
	}
	c := &Client{gate: g, principal: p, account: a, trusted: true}
	p.Client.Store(c)
	return c
}

// Redeem uses a ticket up (Client.Ticket), and returns the client that requested the ticket. Redeem does not check
// that the client's credentials are still valid. Errors: Unauthenticated.
func (g *Gate) Redeem(ticket string) (*Client, error) {
	if g == nil || g.access == nil {
		return nil, errShut
	}
	p, a, err := g.access.Redeem(ticket)
	switch {
	case err != nil:
		return nil, err
	case p == nil && g.access.Required():
		return nil, access.ErrUnknownClient
	}
	return g.client(p, a), nil
}

// Owner returns the client of the server itself and of a Go program that embeds the server. The owner may
// do everything, and has no quotas.
func (g *Gate) Owner() *Client {
	if g == nil {
		return nil
	}
	return g.owner
}

// Count counts the outcome of credentials checked by the adapter itself, for example a ticket.
func (g *Gate) Count(o access.Outcome) { g.access.Count(o) }

// Audit writes a line of the audit log, if any.
func (g *Gate) Audit(a access.Act) { g.access.Audit(a) }

// Required reports whether clients need credentials.
func (g *Gate) Required() bool { return g.access.Required() }

// State returns whether the server is ready or draining.
func (g *Gate) State() State { return g.backend.State() }

// Memory returns the pool for leases of frames.
func (g *Gate) Memory() *buf.Pool { return g.backend.Memory() }

// Settings returns the backend's settings that clients may change, if any.
func (g *Gate) Settings() (Settings, bool) { s, ok := g.backend.(Settings); return s, ok }

// Holder returns the present roles and models of the principal with a key (access.Principal.Key), for work that goes on
// after the requests of the client; nil where clients need no credentials. Errors: Unauthenticated;
// Unavailable, when this server cannot tell.
func (g *Gate) Holder(key string) (*access.Principal, error) {
	if !g.access.Required() {
		return nil, nil
	}
	return g.access.Holder(key, time.Now())
}
