package access

import (
	"strings"
	"time"

	"millrace/internal/role"
	"millrace/stream"
)

// Holder returns the present principal with a key (Principal.Key), for work that goes on after the requests of the
// principal. A token's roles are in the token only, and so Holder returns all roles for a principal of a token. Errors:
// Unauthenticated, when the key, the user or the way to authenticate was removed, or has expired.
func (a *Access) Holder(key string, now time.Time) (*Principal, error) {
	if p := a.holder(key, now); p != nil {
		return p, nil
	}
	return nil, stream.Errorf(stream.Unauthenticated, "", "the credentials %.140s were removed or have expired", key)
}

// holder is Holder; nil = none.
func (a *Access) holder(key string, now time.Time) *Principal {
	kind, name, _ := strings.Cut(key, ":")
	switch {
	case kind == KeyName && a.key != "":
		return a.owner
	case kind == "key" && a.keys != nil:
		return a.keys.Current(&Principal{Key: key}, now)
	case kind == "user" && a.users != nil:
		p, _ := a.users.Current(name, now)
		if p == nil || p.Entry == "" { // an entry without a password is of a token, certificate or module
			return nil
		}
		return p
	case kind == "oidc" && a.oidc != nil:
		return &Principal{Key: key, Name: name, Roles: role.All}
	case kind == "cert" && a.clients != nil, kind == "module" && a.module != nil:
		if p := a.named(key, name, nil); !p.Listed || p.Roles != 0 {
			return p
		}
	}
	return nil
}
