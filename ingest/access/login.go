package access

import (
	"context"
	"net/netip"
	"time"

	"millrace/stream"
)

// Bounds of logins with passwords.
const (
	maxLogins = 32 // passwords being checked or waiting for the check
	loginTime = 20 * time.Second
)

// Attempt counts an attempt of an address to log in. Errors: FlowControl, with the time to wait, after too many
// attempts.
func (a *Access) Attempt(from netip.Addr) error {
	wait := a.logins.Allow(from, time.Now())
	if wait == 0 {
		return nil
	}
	a.Count(TooMany)
	err := stream.Errorf(stream.FlowControl, "",
		"too many attempts to log in from this address: wait %v for the next one", wait)
	err.After = wait
	return err
}

// Password returns the principal with a name and a password; nil = there is none. Errors: Overloaded, when too
// many passwords are being checked.
func (a *Access) Password(ctx context.Context, name, password string) (*Principal, error) {
	select {
	case a.checking <- struct{}{}:
		defer func() { <-a.checking }()
	default:
		a.Count(TooMany)
		return nil, stream.Errorf(stream.Overloaded, "", "%d logins are being checked: try again later", maxLogins)
	}
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	if a.users != nil {
		p, err := a.users.Authenticate(ctx, name, password, time.Now(), func(n int64) (func(), error) {
			return func() { a.memory.Refund(n) }, a.memory.Charge(n)
		})
		if p != nil || err != nil {
			return p, err
		}
	}
	if a.module == nil {
		return nil, nil
	}
	// The module checks every name, so that the response time does not reveal the names in the file.
	id, err := a.module.Authenticate(ctx, name, password)
	if err != nil || id == "" {
		return nil, err
	}
	if now := time.Now(); a.users != nil && (a.users.HasPassword(name, now) || a.users.HasPassword(id, now)) {
		return nil, nil // the password of the file is the user's password
	}
	return a.named("module:"+id, id, nil), nil
}

// Begin begins a session of a principal, counts the login as allowed, and returns the text of the session's cookie.
func (a *Access) Begin(p *Principal) (string, error) {
	text, err := a.sessions.Begin(p, time.Now())
	if err == nil {
		a.Count(Allowed)
	}
	return text, err
}

// End ends the session of a cookie, and returns the principal of the session; nil = no session.
func (a *Access) End(text string) *Principal { return a.sessions.End(text) }
