package native

import (
	"context"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/stream"
)

// User is a user the program vouches for. A User may run inferences and read the inputs and outputs of models (the
// role infer), but not load or unload models.
type User struct {
	// Name appears to workers and in logs, traces and metrics: at most 128 letters, digits and . _ @ -, the first a
	// letter or digit. Users of the same name share their quotas. A key, token or user of the server with the same
	// name has separate quotas.
	Name string
	// Models are patterns, such as door-*, of the models the user may use; empty = all models.
	Models []string
	// Quotas maps names such as requests or frames to limits that replace the settings quotas.*; 0 = unlimited. The
	// Quotas of the last User of a name apply to all clients of this name.
	Quotas map[string]float64
}

// Credentials are the credentials of a user of the program, for the server to check. The zero value has no
// credentials.
type Credentials struct {
	Key     string // an API key or a token, alone or as the value of a header Authorization
	Session string // the cookie session_key
}

// As returns a client that acts for a user of the program. The user has an account of quotas with the server. As
// costs little, so a program may make a client for each request. Errors: InvalidArgument.
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
	p := &access.Principal{Key: "native:" + u.Name, Name: u.Name, Roles: role.Set(0).With(role.Infer),
		Models: u.Models, Quotas: u.Quotas}
	return &Client{shared: c.shared, of: p}, nil
}

// Authenticate returns a client that acts for the owner of the credentials, as over the protocols. Each call uses the
// owner's present roles, models and quotas. A revoked key, an expired token or an ended session allows nothing more,
// and ends streams. Errors: Unauthenticated; Unavailable before the server runs, and Draining when the server ends;
// calls of the client also return PermissionDenied.
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

// mayAct returns an error for a client that already acts for a user, and so lacks the rights of the program.
func (c *Client) mayAct() error {
	name := c.known.Name()
	switch {
	case c.isOwner():
		return nil
	case c.of != nil:
		name = c.of.Name
	}
	return stream.Errorf(stream.PermissionDenied, "",
		"the client acts for %s, and not for others: use that of the server", name)
}

// isOwner reports whether the client is the program's own.
func (c *Client) isOwner() bool { return c.of == nil && c.known == nil }

// begin returns the client of a call with its present rights, and counts the call.
func (c *Client) begin(s *service, n access.Need) (*ingest.Client, error) {
	switch {
	case c.known != nil:
		return c.known.Call(n)
	case c.of != nil:
		return s.gate.TrustedClient(c.of).Call(n)
	}
	return s.gate.Owner(), nil
}

// audit writes a line about a management call to the audit log, except for calls of the program itself and calls
// before the server serves.
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
