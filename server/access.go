package server

import (
	"context"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
)

// clients is the ingest.Access of a server.
type clients struct{ s *Server }

var _ ingest.Access = clients{}

// Required implements ingest.Access.
func (a clients) Required() bool { return a.s.auth.on() }

// Identify implements ingest.Access.
func (a clients) Identify(ctx context.Context, c access.Credentials) (*access.Principal, error) {
	return a.s.auth.authenticate(ctx, c)
}

// Current implements ingest.Access.
func (a clients) Current(p *access.Principal) (*access.Principal, error) {
	return a.s.auth.valid(p, time.Now())
}

// Unchanged implements ingest.Access.
func (a clients) Unchanged(p *access.Principal) error { return a.s.auth.still(p, time.Now()) }

// AccountOf implements ingest.Access.
func (a clients) AccountOf(p *access.Principal, c access.Credentials) *access.Account {
	if p != nil {
		return a.s.accounts.Of(p)
	}
	if c.Conn == nil && c.Remote != nil {
		return a.s.accounts.OfAddress(a.s.addressOf(c.Remote, c.Forwarded))
	}
	return a.s.accountAt(c.Conn, c.Forwarded)
}

// Count implements ingest.Access.
func (a clients) Count(o access.Outcome) { a.s.auth.count(o) }

// Lasting implements ingest.Access.
func (a clients) Lasting() *access.Lasting { return &a.s.auth.lasting }

// Audit implements ingest.Access.
func (a clients) Audit(x access.Act) {
	if x.Address == "" && x.Remote != nil {
		x.Address = addressText(a.s.addressOf(x.Remote, x.Forwarded))
	}
	a.s.audit.write(x)
}
