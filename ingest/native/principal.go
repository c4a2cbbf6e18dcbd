package native

import (
	"context"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/stream"
)

// User is one whom the program vouches for. It may run inferences and read what models take
// and return (the role infer), and not load or unload any.
type User struct {
	// Name is what workers, logs, traces and metrics are told: at most 128 letters, digits and
	// . _ @ -, the first a letter or digit. Users of one name have their quotas together, and
	// a key, token or user of the server with that name has its own.
	Name string
	// Models are patterns such as door-* of the only models that the user may use; empty = all.
	Models []string
	// Quotas are by name, such as requests or frames, in place of those of the settings quotas.*;
	// 0 = any number. Those of the last User of a name hold for all its clients.
	Quotas map[string]float64
}

// Credentials are what somebody has who uses the program, for the server to check. The zero
// value has none.
type Credentials struct {
	Key     string // an API key or a token, alone or as the value of a header Authorization
	Session string // the cookie session_key
}

// As returns a client that acts for a user of the program, who has an account of quotas with
// the server. It costs little, so that a program may make one for each request. Errors:
// InvalidArgument.
func (c *Client) As(u User) (*Client, error) {
	if err := c.mayAct(); err != nil {
		return nil, err
	}
	if err := access.CheckName(u.Name); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "name", "%w", err)
	}
	if err := access.CheckPatterns(u.Models); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "models", "%w", err)
	}
	if err := access.CheckQuotas(u.Quotas); err != nil {
		return nil, err
	}
	p := &access.Principal{Key: "native:" + u.Name, Name: u.Name, Roles: role.Set(0).With(role.Infer), Models: u.Models, Quotas: u.Quotas}
	return &Client{shared: c.shared, of: p}, nil
}

// Authenticate returns a client that acts for whom the credentials are of, as over the
// protocols: with its roles, models and quotas as they are at each call, and a key that was
// revoked, a token that has expired or a session that has ended allows nothing more, and
// ends streams. Errors: Unauthenticated; Unavailable before the server runs, and Draining when it ends; calls of the client also return PermissionDenied.
func (c *Client) Authenticate(ctx context.Context, with Credentials) (*Client, error) {
	if err := c.mayAct(); err != nil {
		return nil, err
	}
	s, err := c.use()
	if err != nil {
		return nil, err
	}
	of := access.Credentials{Session: with.Session}
	of.Key(with.Key)
	of.Key(access.Bearer(with.Key))
	known, err := s.gate.Identify(ctx, of)
	if err != nil {
		return nil, err
	}
	return &Client{shared: c.shared, known: known}, nil
}

// mayAct returns an error for a client that acts for somebody already, who has not the
// rights of the program.
func (c *Client) mayAct() error {
	name := c.known.Name()
	switch {
	case c.isOwner():
		return nil
	case c.of != nil:
		name = c.of.Name
	}
	return stream.Errorf(stream.PermissionDenied, "", "the client acts for %s, and not for others: use that of the server", name)
}

// isOwner reports whether the client is the program's own.
func (c *Client) isOwner() bool { return c.of == nil && c.known == nil }

// begin returns the client for whom a call is made, as it is now, and counts the call.
func (c *Client) begin(s *service, n access.Need) (*ingest.Client, error) {
	switch {
	case c.known != nil:
		return c.known.Call(n)
	case c.of != nil:
		return s.gate.Vouch(c.of).Call(n)
	}
	return s.gate.Owner(), nil
}

// audit writes a line of the audit log about a call that manages, but for calls of the program itself and
// calls before the server serves.
func (c *Client) audit(s *service, method, model string, by *ingest.Client, err error) {
	if s.gate == nil || c.isOwner() { // the server has not begun to serve
		return
	}
	who := by.Principal()
	switch {
	case by != nil:
	case c.of != nil:
		who = c.of
	default:
		who = c.known.Principal()
	}
	s.gate.Audit(access.Act{By: who, Protocol: protocol, Verb: method, Target: model, Err: err})
}
