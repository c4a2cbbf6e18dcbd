package ingest

import (
	"context"
	"crypto/x509"
	"net"
	"strings"

	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// Need is the role and the models that a call needs. The zero Need names no role and is refused.
type Need struct {
	Role  role.Role
	Model string // the model of the call; "" = see Scope
	Scope Scope
}

// Scope says which models a call uses when Need.Model is empty.
type Scope uint8

// The scopes.
const (
	// ServerScope is a call about the whole server. A client with a limited list of models is refused.
	ServerScope Scope = iota
	// ClientScope is a call about the models of the client, such as a list of models.
	ClientScope
	// LaterScope is a call whose message names the model. The adapter calls Client.Judge when the
	// message is read. Gate.Enter leaves the count to Client.Judge if the client's models are limited.
	LaterScope
)

// Credentials are the keys, tokens, certificates and addresses of a call. The zero value has none.
type Credentials struct {
	Keys         []string            // keys and tokens, by order of preference
	Session      string              // the value of the session cookie; "" = none
	Certificates []*x509.Certificate // the client's certificate first, then its issuers
	Conn         net.Conn            // the connection; nil = there is none
	Remote       net.Addr            // the address of the client, without a connection; nil = the program that embeds the server
	Forwarded    string              // the last line of X-Forwarded-For; ignored unless the connection is of a trusted proxy
}

// Key adds a key or a token, unless it is "".
func (c *Credentials) Key(key string) {
	if key != "" {
		c.Keys = append(c.Keys, key)
	}
}

// Access knows the clients of a server. All methods are safe for concurrent use.
type Access interface {
	// Required reports whether clients need credentials.
	Required() bool
	// Identify returns the principal of credentials. Identify counts an error, which is Unauthenticated.
	Identify(ctx context.Context, c Credentials) (*Principal, error)
	// Current returns a principal with its present roles and models, or an error when the credentials
	// are no longer valid.
	Current(p *Principal) (*Principal, error)
	// Unchanged returns nil while the credentials of a principal are valid and its roles and models
	// are the same.
	Unchanged(p *Principal) error
	// AccountOf returns the account of a principal, or of the address in c when p is nil.
	AccountOf(p *Principal, c Credentials) *Account
	// Count counts the outcome of a call's credentials. Identify has counted refused credentials.
	Count(o Outcome)
	// Lasting has the connections, calls and replies of authenticated clients.
	Lasting() *Lasting
	// Audit writes a line of the audit log.
	Audit(Act)
}

// Outcome is the result of the check of a call's credentials.
type Outcome uint8

// The outcomes.
const (
	Allowed Outcome = iota
	Missing
	Wrong
	Expired
	Denied     // the client has not the role, or may not use the model
	TooMany    // attempts to log in, of an address or at once
	NoOutcomes // how many outcomes there are
)

// Act is an administrative act of a client.
type Act struct {
	Client    *Client  // who acts, or was refused; nil = not known
	Remote    net.Addr // the address of the connection; nil = none
	Forwarded string   // as in Credentials
	Address   string   // of the client, in place of Remote and Forwarded; "" = by these
	Protocol  string   // http, grpc, native, signal
	Verb      string   // the route or the method
	Target    string   // the name that the client sent
	Err       error
	Status    int // of HTTP, for answers without an error
}

// Gate lets clients in. An adapter gets a gate, and reaches models only by the Client of each call.
// Enter and Identify of a zero Gate or a nil Gate refuse every client. A Gate is safe for concurrent use.
type Gate struct {
	backend Backend
	access  Access
	owner   *Client
	open    *Client // of calls with role.Open, if clients need credentials
}

// NewGate returns a gate to a backend for the clients of access.
func NewGate(b Backend, access Access) *Gate {
	g := &Gate{backend: b, access: access}
	g.owner, g.open = &Client{gate: g, owner: true}, &Client{gate: g, open: true}
	return g
}

// errShut is the error of a gate without a backend.
var errShut = stream.Errorf(stream.PermissionDenied, "", "the gate of this adapter is shut: the server has not opened it")

// Enter returns the client of a call, and counts the call in the client's quotas. Errors:
// Unauthenticated; PermissionDenied, when the client has not the role or may not use the model;
// FlowControl, for quotas.requests. The client beside PermissionDenied names the refused principal
// and may do nothing.
func (g *Gate) Enter(ctx context.Context, c Credentials, n Need) (*Client, error) {
	if g == nil || g.access == nil {
		return nil, errShut
	}
	if n.Role == role.Open && g.access.Required() {
		return g.open, nil
	}
	var p *Principal
	if g.access.Required() {
		var err error
		if p, err = g.access.Identify(ctx, c); err != nil {
			return nil, err
		}
	}
	return g.admit(p, c, n)
}

// admit is Enter of an identified client.
func (g *Gate) admit(p *Principal, c Credentials, n Need) (*Client, error) {
	if err := g.judge(p, n); err != nil {
		return &Client{refused: p}, err
	}
	client := g.client(p, g.access.AccountOf(p, c))
	if n.Role == role.Open {
		return client, nil
	}
	return client, client.account.Core().Take(stream.QuotaRequests, 1, 0)
}

// judge returns nil if a principal may make a call, and counts the call.
func (g *Gate) judge(p *Principal, n Need) error {
	if !g.access.Required() {
		if n.Role == 0 {
			return errNoRole
		}
		return nil
	}
	if n.Scope == LaterScope && n.Model == "" && p.Limited() && p.Allows(n.Role) == nil {
		return nil
	}
	err := p.may(n)
	g.count(err)
	return err
}

// count counts a call of a client that is known: nil, or why it is refused.
func (g *Gate) count(err error) {
	if err != nil {
		g.access.Count(Denied)
	} else {
		g.access.Count(Allowed)
	}
}

var errNoRole = stream.Errorf(stream.PermissionDenied, "", "the call has no role: its adapter says what it needs")

// client returns the client of a principal, or of an account when p is nil. The principal and the
// account remember the client.
func (g *Gate) client(p *Principal, a *Account) *Client {
	if p == nil {
		if c := a.client.Load(); c != nil && c.gate == g {
			return c
		}
		c := &Client{gate: g, account: a}
		a.client.Store(c)
		return c
	}
	if c := p.client.Load(); c != nil && c.gate == g && c.account == a && !c.vouched {
		return c
	}
	c := &Client{gate: g, of: p, account: a}
	p.client.Store(c)
	return c
}

// Identify returns the client of credentials. Each call of the client begins with Client.Call. Errors:
// Unauthenticated.
func (g *Gate) Identify(ctx context.Context, c Credentials) (*Client, error) {
	if g == nil || g.access == nil {
		return nil, errShut
	}
	if !g.access.Required() {
		return nil, stream.Errorf(stream.Unauthenticated, "", "the server has no keys or users to check credentials against: set auth.keys or another way, or vouch for the user (Client.As)")
	}
	p, err := g.access.Identify(ctx, c)
	if err != nil {
		return nil, err
	}
	return g.client(p, g.access.AccountOf(p, c)), nil
}

// Vouch returns the client of a user of a Go program, without credentials: the program vouches for the
// user. Each call of the client begins with Client.Call.
func (g *Gate) Vouch(p *Principal) *Client {
	a := g.access.AccountOf(p, Credentials{})
	if c := p.client.Load(); c != nil && c.gate == g && c.account == a && c.vouched {
		return c
	}
	c := &Client{gate: g, of: p, account: a, vouched: true}
	p.client.Store(c)
	return c
}

// Owner returns the client of the server itself and of a Go program that embeds the server. The owner may
// do everything, and has no quotas.
func (g *Gate) Owner() *Client {
	if g == nil {
		return nil
	}
	return g.owner
}

// Count counts the outcome of credentials that the adapter itself checks, such as a ticket.
func (g *Gate) Count(o Outcome) { g.access.Count(o) }

// Audit writes a line of the audit log, where the server has one.
func (g *Gate) Audit(a Act) { g.access.Audit(a) }

// Required reports whether clients need credentials.
func (g *Gate) Required() bool { return g.access.Required() }

// State returns whether the server is ready or draining.
func (g *Gate) State() State { return g.backend.State() }

// Memory returns the pool from which frames are leased.
func (g *Gate) Memory() *buf.Pool { return g.backend.Memory() }

// Settings returns the settings of the backend that clients may change, if there are any.
func (g *Gate) Settings() (Settings, bool) { s, ok := g.backend.(Settings); return s, ok }

// KeyName is the name of the header, cookie, query option and metadata of a key.
const KeyName = "api_key"

// Bearer returns the key or token in the value of a header Authorization (RFC 6750, section 2.1), or "".
func Bearer(value string) string {
	scheme, key, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}
