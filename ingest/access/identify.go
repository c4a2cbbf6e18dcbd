package access

import (
	"context"
	"strings"
	"time"

	"millrace/internal/role"
	"millrace/internal/secret"
	"millrace/stream"
)

// Identify returns the principal of credentials. Errors: Unauthenticated, which Identify counts.
func (a *Access) Identify(ctx context.Context, c Credentials) (*Principal, error) {
	return a.IdentifyAt(ctx, c, time.Now())
}

// IdentifyAt is Identify at a time.
func (a *Access) IdentifyAt(ctx context.Context, c Credentials, now time.Time) (*Principal, error) {
	if a == nil || a.sessions == nil {
		return nil, stream.Errorf(stream.Unauthenticated, "",
			"this server knows no credentials: the server was not set up (access.New)")
	}
	p, o, err := a.identify(ctx, c, now)
	if err != nil {
		a.Count(o)
	}
	return p, err
}

// identify returns the principal of credentials, or the outcome to count.
func (a *Access) identify(ctx context.Context, c Credentials, now time.Time) (*Principal, Outcome, error) {
	some, late := false, ""
	kept, place := keptOn(c.Conn)
	for _, key := range c.Keys {
		if key == "" {
			continue
		}
		some = true
		stale := kept == nil || kept.key == ""
		if !stale && secret.Same(key, kept.key) {
			if kept.entry == nil {
				return a.owner, Allowed, nil
			}
			if a.keys.entry(key, now) == kept.entry && !kept.entry.expired(now) {
				return kept.entry.principal, Allowed, nil
			}
			stale = true // the file was read again
		}
		stale = stale && place != nil
		if a.key != "" && secret.Equal(key, a.key) {
			if stale {
				keepKey(place, kept, key, nil)
			}
			return a.owner, Allowed, nil
		}
		if a.keys != nil {
			e, old := a.keys.authenticate(key, now)
			if e != nil {
				if stale {
					keepKey(place, kept, key, e)
				}
				return e.principal, Allowed, nil
			}
			if old {
				late = KeyName
			}
		}
		if a.oidc != nil && IsToken(key) {
			p, old := a.oidc.Authenticate(ctx, key, now)
			if p != nil {
				return p, Allowed, nil
			}
			if old {
				late = "token"
			}
		}
	}
	if p, _ := a.sessions.Find(c.Session, now); p != nil {
		if p = a.current(p, now); p != nil {
			return p, Allowed, nil
		}
		a.sessions.End(c.Session) // of a removed key or user
	}
	if len(c.Certificates) > 0 && a.clients != nil {
		// the certificate was valid at the begin of the connection
		if err := a.clients.Check(c.Certificates, now); err != nil {
			return nil, Expired, stream.Errorf(stream.Unauthenticated, "",
				"the client certificate is not valid any more: connect again with a new one")
		}
		name, err := NameOf(c.Certificates[0])
		if err != nil {
			return nil, Wrong, stream.Errorf(stream.Unauthenticated, "", "the client certificate names nobody: %w", err)
		}
		p := a.named("cert:"+name, name, nil)
		p.Expires, p.Certificates = c.Certificates[0].NotAfter, c.Certificates
		return p, Allowed, nil
	}
	switch {
	case late != "":
		return nil, Expired, stream.Errorf(stream.Unauthenticated, late, "has expired")
	case some:
		return nil, Wrong, stream.Errorf(stream.Unauthenticated, "", "the key or token is wrong: %s",
			a.acceptedCredentials())
	case c.Session != "":
		return nil, Expired, stream.Errorf(stream.Unauthenticated, "", "the session has ended: log in again")
	}
	return nil, Missing, stream.Errorf(stream.Unauthenticated, "", "the key is missing: %s", a.acceptedCredentials())
}

// acceptedCredentials returns the credentials accepted from clients, for errors.
func (a *Access) acceptedCredentials() string {
	var ways []string
	if a.key != "" || a.keys != nil {
		ways = append(ways, "the header "+KeyName+", or Authorization: Bearer KEY")
	}
	if a.oidc != nil {
		ways = append(ways, "Authorization: Bearer TOKEN")
	}
	if a.Passwords() {
		ways = append(ways, "the cookie of /session_login")
	}
	if a.clients != nil {
		ways = append(ways, "a client certificate")
	}
	return "send " + strings.Join(ways, ", or ")
}

// named returns a user authenticated by a token, a certificate or the Python module. The roles are the roles of the
// user's entry in the file of users; without an entry, the given roles, or auth.roles. An entry with a password
// belongs to another user: the user of named has no roles then.
func (a *Access) named(key, name string, roles *role.Set) *Principal {
	p := &Principal{Key: key, Name: name, Roles: a.roles}
	if roles != nil {
		p.Roles = *roles
	}
	if a.users != nil {
		if u, there := a.users.Current(name, time.Now()); u != nil && u.Entry == "" {
			p.Roles, p.Models, p.Quotas, p.Listed = u.Roles, u.Models, u.Quotas, true
		} else if there {
			p.Roles, p.Listed = 0, true // the entry has expired, or belongs to another user
		}
	}
	return p
}

// current returns the present state of a principal; nil = the key, user or entry of the principal was removed or has
// expired.
func (a *Access) current(p *Principal, now time.Time) *Principal {
	again := a.listed(p, now)
	if again == nil || p.Session == "" {
		return again
	}
	return a.sessions.InSession(p.Session, again, now)
}

// listed is current without a check of the session.
func (a *Access) listed(p *Principal, now time.Time) *Principal {
	kind, name, _ := strings.Cut(p.Key, ":")
	switch kind {
	case KeyName:
		return p
	case "key":
		return a.keys.Current(p, now)
	case "cert":
		if a.clients.Check(p.Certificates, now) != nil {
			return nil
		}
	case "user":
		again, _ := a.users.Current(name, now)
		if again == nil || again.Entry != p.Entry { // another password, or another user with the same name
			return nil
		}
		return again
	}
	roles := &p.Roles // the roles of the token, unless an entry had others
	if kind != "oidc" {
		roles = nil
	}
	again := a.named(p.Key, p.Name, roles)
	again.Certificates = p.Certificates
	if again.Expires = p.Expires; p.Listed && !again.Listed || again.Listed && again.Roles == 0 {
		return nil
	}
	return again
}
