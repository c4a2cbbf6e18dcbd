package native

import (
	"context"

	"millrace/ingest"
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
	if err := ingest.CheckName(u.Name); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "name", "%w", err)
	}
	if err := ingest.CheckPatterns(u.Models); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "models", "%w", err)
	}
	if err := ingest.CheckQuotas(u.Quotas); err != nil {
		return nil, err
	}
	p := &ingest.Principal{Key: "native:" + u.Name, Name: u.Name, Roles: role.Set(0).With(role.Infer), Models: u.Models, Quotas: u.Quotas}
	return &Client{shared: c.shared, of: p}, nil
}

// Authenticate returns a client that acts for whom the credentials are of, as over the
// protocols: with its roles, models and quotas as they are at each call, and a key that was
// revoked, a token that has expired or a session that has ended allows nothing more, and
// ends streams. Errors: Unauthenticated; calls of the client also return PermissionDenied.
func (c *Client) Authenticate(ctx context.Context, with Credentials) (*Client, error) {
	if err := c.mayAct(); err != nil {
		return nil, err
	}
	if c.opts.Auth == nil {
		return nil, stream.Errorf(stream.Unauthenticated, "", "the server has no keys or users to check credentials against: set auth.keys or another way, or vouch for the user (Client.As)")
	}
	p, err := c.opts.Auth(ctx, with)
	if err != nil {
		return nil, err
	}
	return &Client{shared: c.shared, of: p, checked: true}, nil
}

// mayAct returns an error for a client that acts for somebody already, who has not the
// rights of the program.
func (c *Client) mayAct() error {
	if c.of == nil {
		return nil
	}
	return stream.Errorf(stream.PermissionDenied, "", "the client acts for %s, and not for others: use that of the server", c.of.Name)
}

// begin returns for whom a call is made, as it is now, and its account, which is charged for
// the call; both are nil for the program itself. The call needs a role, and is about a model,
// if that is not "".
func (c *Client) begin(needed role.Role, model string) (p *ingest.Principal, a *ingest.Account, err error) {
	if c.of == nil {
		return nil, nil, nil
	}
	if p = c.of; c.checked {
		p, err = c.opts.Current(p)
	}
	if err == nil {
		err = p.Allows(needed)
	}
	if err == nil && model != "" {
		err = p.AllowsModel(model)
	}
	if c.checked {
		c.opts.Judged(err)
	}
	if err != nil {
		return nil, nil, err
	}
	a = c.opts.Account(p)
	return p, a, a.Core().Take(stream.QuotaRequests, 1, 0)
}

// beginFrame is begin for a one-shot request, whose frame is the principal's then.
func (c *Client) beginFrame(model string, f *stream.Frame) error {
	p, a, err := c.begin(role.Infer, model)
	if err != nil {
		return err
	}
	f.Account = a.Core()
	if f.Call != nil {
		call := *f.Call
		call.User, f.Call = p.Name, &call
	}
	return nil
}

// audit calls Options.Audit for a call that manages, unless the program itself has made it.
func (c *Client) audit(method, model string, err error) {
	if c.of != nil {
		c.opts.Audit(c.of, method, model, err)
	}
}
