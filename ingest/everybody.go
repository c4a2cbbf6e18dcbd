package ingest

import (
	"context"
	"net/netip"

	"millrace/ingest/access"
)

// Everybody is an Access without credentials and without an audit log, for a program that serves an
// adapter without a server. All clients share one account.
type Everybody struct {
	Accounts *access.Accounts
	lasting  access.Lasting
}

var _ Access = (*Everybody)(nil)

// NewEverybody returns an Access with quotas for all clients together.
func NewEverybody(q access.Quotas) *Everybody { return &Everybody{Accounts: access.NewAccounts(q)} }

// Required implements Access.
func (e *Everybody) Required() bool { return false }

// Identify implements Access.
func (e *Everybody) Identify(context.Context, access.Credentials) (*access.Principal, error) {
	return nil, nil
}

// Current implements Access.
func (e *Everybody) Current(p *access.Principal) (*access.Principal, error) { return p, nil }

// Unchanged implements Access.
func (e *Everybody) Unchanged(*access.Principal) error { return nil }

// AccountOf implements Access.
func (e *Everybody) AccountOf(p *access.Principal, _ access.Credentials) *access.Account {
	if p != nil {
		return e.Accounts.Of(p)
	}
	return e.Accounts.OfAddress(netip.Addr{})
}

// Count implements Access.
func (e *Everybody) Count(access.Outcome) {}

// Lasting implements Access.
func (e *Everybody) Lasting() *access.Lasting { return &e.lasting }

// Audit implements Access.
func (e *Everybody) Audit(access.Act) {}
