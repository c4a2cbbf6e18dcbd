package ingest

import (
	"context"
	"net/netip"
)

// Everybody is an Access without credentials and without an audit log, for a program that serves an
// adapter without a server. All clients share one account.
type Everybody struct {
	Accounts *Accounts
	lasting  Lasting
}

var _ Access = (*Everybody)(nil)

// NewEverybody returns an Access with quotas for all clients together.
func NewEverybody(q Quotas) *Everybody { return &Everybody{Accounts: NewAccounts(q)} }

// Required implements Access.
func (e *Everybody) Required() bool { return false }

// Identify implements Access.
func (e *Everybody) Identify(context.Context, Credentials) (*Principal, error) { return nil, nil }

// Current implements Access.
func (e *Everybody) Current(p *Principal) (*Principal, error) { return p, nil }

// Unchanged implements Access.
func (e *Everybody) Unchanged(*Principal) error { return nil }

// AccountOf implements Access.
func (e *Everybody) AccountOf(p *Principal, _ Credentials) *Account {
	if p != nil {
		return e.Accounts.Of(p)
	}
	return e.Accounts.OfAddress(netip.Addr{})
}

// Count implements Access.
func (e *Everybody) Count(Outcome) {}

// Lasting implements Access.
func (e *Everybody) Lasting() *Lasting { return &e.lasting }

// Audit implements Access.
func (e *Everybody) Audit(Act) {}
