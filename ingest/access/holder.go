package access

import (
	"strings"
	"time"

	"millrace/internal/role"
	"millrace/stream"
)

// Holder returns the present principal with a key (Principal.Key), for work that goes on after the requests of the
// principal. A token's roles are in the token only, and so Holder returns all roles for a principal of a token. Errors:
// Unauthenticated, when the key or the user was removed, or has expired; Unavailable, when this server cannot tell,
// because a file cannot be read again, or the setting of the way to authenticate is missing.
func (a *Access) Holder(key string, now time.Time) (*Principal, error) {
	p, fault := a.holder(key, now)
	switch {
	case p != nil:
		return p, nil
	case fault != "":
		return nil, stream.Errorf(stream.Unavailable, "", "the credentials %.140s cannot be checked: %s", key, fault)
	}
	return nil, stream.Errorf(stream.Unauthenticated, "", "the credentials %.140s were removed or have expired", key)
}

// holder is Holder; nil = none, and fault says why nobody can tell.
func (a *Access) holder(key string, now time.Time) (p *Principal, fault string) {
	kind, name, _ := strings.Cut(key, ":")
	for _, way := range []struct {
		kind, setting string
		on            bool
	}{{KeyName, "api_key", a.key != ""}, {"key", "auth.keys", a.keys != nil}, {"user", "auth.users", a.users != nil},
		{"oidc", "auth.oidc", a.oidc != nil}, {"cert", "tls.client_ca", a.clients != nil},
		{"module", "auth.module", a.module != nil}} {
		if kind == way.kind && !way.on {
			return nil, way.setting + " is not set"
		}
	}
	switch kind {
	case KeyName:
		return a.owner, ""
	case "key":
		if p = a.keys.Current(&Principal{Key: key}, now); p == nil {
			fault = a.keys.file.Fault()
		}
		return p, fault
	case "user":
		p, _ = a.users.Current(name, now)
		if p == nil || p.Entry == "" { // an entry without a password is of a token, certificate or module
			return nil, a.users.file.Fault()
		}
		return p, ""
	case "oidc":
		return &Principal{Key: key, Name: name, Roles: role.All}, ""
	case "cert", "module":
		if p = a.named(key, name, nil); !p.Listed || p.Roles != 0 {
			return p, ""
		}
		return nil, a.users.file.Fault()
	}
	return nil, ""
}
