package server

import (
	"context"
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/internal/secret"
	"millrace/stream"
)

// sessionName is the name of the cookie of a session.
const sessionName = "session_key"

// authenticator finds who sent a request. It is safe for concurrent use.
type authenticator struct {
	required bool              // clients need credentials
	key      string            // the server's own key, which has every role; "" = none
	owner    *access.Principal // the client with that key; without a name
	keys     *access.Keys
	users    *access.Users
	module   *access.Module
	oidc     *access.OIDC
	clients  *access.Authority // of client certificates
	roles    role.Set          // of users who are in no file
	counts   [access.NoOutcomes]atomic.Uint64
	checking chan struct{} // holds an element for each login with a password
	sessions *access.Sessions
	logins   *access.Logins
	lasting  access.Lasting // what clients have begun
}

func newAuthenticator(s *Server) (*authenticator, error) {
	c := &s.cfg.Auth
	a := &authenticator{required: authenticates(&s.cfg), owner: &access.Principal{Key: access.KeyName, Roles: role.All}, checking: make(chan struct{}, maxLogins), sessions: access.NewSessions(c.Sessions), logins: access.NewLogins()}
	bad := func(setting string, err error) error {
		return stream.Errorf(stream.InvalidArgument, setting, "%w", err)
	}
	var err error
	if a.key, err = secret.Read(s.cfg.APIKey); err != nil {
		return nil, bad("api_key", err)
	}
	if short(a.key) { // see Exposed
		s.log.Warn("the key is short enough to be guessed: take a random one of 16 characters or more", "setting", "api_key")
	}
	names := c.Roles
	if len(names) == 0 {
		names = []string{role.Infer.String()}
	}
	if a.roles, err = role.Parse(names); err != nil {
		return nil, bad("auth.roles", err)
	}
	if c.Keys != "" {
		if a.keys, err = access.OpenKeys(c.Keys, s.rereadFailed("auth.keys")); err != nil {
			return nil, bad("auth.keys", err)
		}
	}
	if c.Users != "" {
		if a.users, err = access.OpenUsers(c.Users, s.rereadFailed("auth.users")); err != nil {
			return nil, bad("auth.users", err)
		}
	}
	if s.cfg.TLS.ClientCA != "" {
		if a.clients, err = access.OpenAuthority(s.cfg.TLS.ClientCA, s.rereadFailed("tls.client_ca")); err != nil {
			return nil, bad("tls.client_ca", err)
		}
		s.tls.ClientAuth, s.tls.VerifyConnection = tls.RequestClientCert, a.clients.Verify
	}
	return a, a.start(s)
}

// start starts what authenticates outside the server: the provider of tokens, and the module in Python.
func (a *authenticator) start(s *Server) error {
	c := &s.cfg.Auth
	if c.OIDC.Issuer != "" {
		a.oidc = access.NewOIDC(context.Background(), access.OIDCOptions{
			Issuer: c.OIDC.Issuer, Audience: c.OIDC.Audience, UserClaim: c.OIDC.UserClaim, RolesClaim: c.OIDC.RolesClaim, Named: a.named, Log: s.log,
		})
	}
	if c.Module == "" {
		return nil
	}
	python := c.Python
	if python == "" {
		python = "python3"
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return stream.Errorf(stream.NotFound, "auth.python", "%w", err)
	}
	file, err := filepath.Abs(c.Module)
	if err == nil {
		a.module, err = access.OpenModule(context.Background(), access.ModuleOptions{Python: path, File: file, Env: config.WithoutSecrets(os.Environ()), Log: s.log})
	}
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "auth.module", "%w", err)
	}
	return nil
}

// close ends what start has started.
func (a *authenticator) close() {
	if a == nil {
		return
	}
	if a.module != nil {
		a.module.Close()
	}
	if a.oidc != nil {
		a.oidc.Close()
	}
}

// on reports whether clients need credentials.
func (a *authenticator) on() bool { return a.required }

// passwords reports whether users log in with passwords.
func (a *authenticator) passwords() bool { return a.users != nil || a.module != nil }

var outcomeNames = [access.NoOutcomes]string{"allowed", "missing", "wrong", "expired", "denied", "limited"}

// stats returns how many requests had an outcome.
func (a *authenticator) stats() map[string]uint64 {
	if !a.on() {
		return nil
	}
	out := make(map[string]uint64, access.NoOutcomes)
	for i := range a.counts {
		out[outcomeNames[i]] = a.counts[i].Load()
	}
	return out
}

func (a *authenticator) count(o access.Outcome) { a.counts[o].Add(1) }

// authenticate returns whose credentials are among those of a request, and counts those that are nobody's.
func (a *authenticator) authenticate(ctx context.Context, c access.Credentials) (*access.Principal, error) {
	p, o, err := a.identify(ctx, c)
	if err != nil {
		a.count(o)
	}
	return p, err
}

// identify returns whose credentials are among those of a request.
func (a *authenticator) identify(ctx context.Context, c access.Credentials) (*access.Principal, access.Outcome, error) {
	now := time.Now()
	some, late := false, ""
	for _, key := range c.Keys {
		if key == "" {
			continue
		}
		some = true
		if a.key != "" && secret.Equal(key, a.key) {
			return a.owner, access.Allowed, nil
		}
		if a.keys != nil {
			p, old := a.keys.Authenticate(key, now)
			if p != nil {
				return p, access.Allowed, nil
			}
			if old {
				late = access.KeyName
			}
		}
		if a.oidc != nil && access.IsToken(key) {
			p, old := a.oidc.Authenticate(ctx, key, now)
			if p != nil {
				return p, access.Allowed, nil
			}
			if old {
				late = "token"
			}
		}
	}
	if p, _ := a.sessions.Find(c.Session, now); p != nil {
		if p = a.current(p, now); p != nil {
			return p, access.Allowed, nil
		}
		a.sessions.End(c.Session) // of a key or user that is gone
	}
	if len(c.Certificates) > 0 && a.clients != nil {
		if err := a.clients.Check(c.Certificates, now); err != nil { // it was valid when the connection began
			return nil, access.Expired, stream.Errorf(stream.Unauthenticated, "", "the client certificate is not valid any more: connect again with a new one")
		}
		name, err := access.NameOf(c.Certificates[0])
		if err != nil {
			return nil, access.Wrong, stream.Errorf(stream.Unauthenticated, "", "the client certificate names nobody: %w", err)
		}
		p := a.named("cert:"+name, name, nil)
		p.Expires, p.Certificates = c.Certificates[0].NotAfter, c.Certificates
		return p, access.Allowed, nil
	}
	switch {
	case late != "":
		return nil, access.Expired, stream.Errorf(stream.Unauthenticated, late, "has expired")
	case some:
		return nil, access.Wrong, stream.Errorf(stream.Unauthenticated, "", "the key or token is wrong: %s", a.wants())
	case c.Session != "":
		return nil, access.Expired, stream.Errorf(stream.Unauthenticated, "", "the session has ended: log in again")
	}
	return nil, access.Missing, stream.Errorf(stream.Unauthenticated, "", "the key is missing: %s", a.wants())
}

// wants says which credentials clients may send.
func (a *authenticator) wants() string {
	var ways []string
	if a.key != "" || a.keys != nil {
		ways = append(ways, "the header "+access.KeyName+", or Authorization: Bearer KEY")
	}
	if a.oidc != nil {
		ways = append(ways, "Authorization: Bearer TOKEN")
	}
	if a.passwords() {
		ways = append(ways, "the cookie of /session_login")
	}
	if a.clients != nil {
		ways = append(ways, "a client certificate")
	}
	return "send " + strings.Join(ways, ", or ")
}

// named returns the user of a name whom somebody else has authenticated: with the roles of the file of users if that has the name, otherwise
// with those that are given, or those of auth.roles. Where the file has a password for the name, that is of another user, who logs in with it:
// then there are no roles.
func (a *authenticator) named(key, name string, roles *role.Set) *access.Principal {
	p := &access.Principal{Key: key, Name: name, Roles: a.roles}
	if roles != nil {
		p.Roles = *roles
	}
	if a.users != nil {
		if u, there := a.users.Current(name, time.Now()); u != nil && u.Entry == "" {
			p.Roles, p.Models, p.Quotas, p.Listed = u.Roles, u.Models, u.Quotas, true
		} else if there {
			p.Roles, p.Listed = 0, true // it has expired, or is of another user
		}
	}
	return p
}

// current returns a principal as the files have it now; nil when it is gone: its key, user or entry was removed or has expired.
func (a *authenticator) current(p *access.Principal, now time.Time) *access.Principal {
	again := a.listed(p, now)
	if again == nil || p.Session == "" {
		return again
	}
	return a.sessions.As(p.Session, again, now)
}

// listed is current without a look at the session.
func (a *authenticator) listed(p *access.Principal, now time.Time) *access.Principal {
	kind, name, _ := strings.Cut(p.Key, ":")
	switch kind {
	case access.KeyName:
		return p
	case "key":
		return a.keys.Current(p, now)
	case "cert":
		if a.clients.Check(p.Certificates, now) != nil {
			return nil
		}
	case "user":
		again, _ := a.users.Current(name, now)
		if again == nil || again.Entry != p.Entry { // another password, or another user of that name
			return nil
		}
		return again
	}
	roles := &p.Roles // those of the token, unless an entry had others
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

// checkLasting is the time between two looks at the credentials of what clients have begun.
const checkLasting = time.Second

// checkLong ends what clients have begun with credentials that are not valid any more, until ctx ends.
func (a *authenticator) checkLong(ctx context.Context) {
	ticker := time.NewTicker(checkLasting)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			now := time.Now()
			a.lasting.Check(func(p *access.Principal) error { return a.still(p, now) })
		case <-ctx.Done():
			return
		}
	}
}

// still returns why the credentials of a principal are not those with which it began any more, or nil.
func (a *authenticator) still(p *access.Principal, now time.Time) error {
	again, err := a.valid(p, now)
	if err == nil && (again.Roles != p.Roles || !slices.Equal(again.Models, p.Models)) {
		return stream.Errorf(stream.Unauthenticated, "", "the roles or models of %s were changed: connect again", p.Name)
	}
	return err
}

// valid is current with why the credentials are not valid any more.
func (a *authenticator) valid(p *access.Principal, now time.Time) (*access.Principal, error) {
	if !p.Expires.IsZero() && !now.Before(p.Expires) {
		return nil, stream.Errorf(stream.Unauthenticated, "", "the credentials of %s have expired: authenticate again", p.Name)
	}
	again := a.current(p, now)
	switch {
	case again == nil && p.Session != "":
		return nil, stream.Errorf(stream.Unauthenticated, "", "the session of %s has ended: log in again", p.Name)
	case again == nil:
		return nil, stream.Errorf(stream.Unauthenticated, "", "the key or entry of %s was removed or has expired", p.Name)
	}
	return again, nil
}

// Bounds of logins with passwords.
const (
	maxLogins = 32 // that are checked, or wait for it
	loginTime = 20 * time.Second
)

// login returns who has a name and a password, or nil. Its client's connection does not give way to others meanwhile.
func (s *Server) login(c *fiber.Ctx, name, password string) (*access.Principal, error) {
	select {
	case s.auth.checking <- struct{}{}:
		defer func() { <-s.auth.checking }()
	default:
		s.auth.count(access.TooMany)
		return nil, stream.Errorf(stream.Overloaded, "", "%d logins are being checked: try again later", maxLogins)
	}
	defer httpd.Busy(c.Context())()
	ctx, cancel := context.WithTimeout(c.UserContext(), loginTime)
	defer cancel()
	if s.auth.users != nil {
		p, err := s.auth.users.Authenticate(ctx, name, password, time.Now(), func(n int64) (func(), error) {
			return func() { s.memory.Refund(n) }, s.memory.Charge(n)
		})
		if p != nil || err != nil {
			return p, err
		}
	}
	if s.auth.module == nil {
		return nil, nil
	}
	// The module is asked about every name, so that the time of an answer does not tell which are in the file.
	id, err := s.auth.module.Authenticate(ctx, name, password)
	if err != nil || id == "" {
		return nil, err
	}
	if u, now := s.auth.users, time.Now(); u != nil && (u.HasPassword(name, now) || u.HasPassword(id, now)) {
		return nil, nil // whose password is that of the file
	}
	return s.auth.named("module:"+id, id, nil), nil
}
