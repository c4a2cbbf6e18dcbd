package access

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"millrace/internal/accept"
	"millrace/internal/processors"
	"millrace/internal/role"
	"millrace/internal/textfile"
	"millrace/stream"
	"millrace/stream/buf"
)

// Access knows the clients of a server. Four verbs decide what a client may do: Identify finds the principal of
// credentials, Principal.Authorize checks what a call needs, Current returns the present state of a principal, and
// OnEnd reports the end of credentials. A nil Access and a zero Access identify nobody. Access is safe for
// concurrent use.
type Access struct {
	open        bool       // clients need no credentials; New and AllowEverybody alone set open
	key         string     // the server's own key, which has every role; "" = none
	owner       *Principal // the client with the server's own key; without a name
	keys        *Keys
	users       *Users
	module      *Module
	oidc        *OIDC
	clients     *Authority // of client certificates
	roles       role.Set   // of users without an entry in the file of users
	counts      [NoOutcomes]atomic.Uint64
	checking    chan struct{} // holds an element for each password check
	sessions    *Sessions
	logins      *Logins
	revocations Revocations
	tickets     Tickets
	accounts    *Accounts
	audit       *Audit
	limit       *accept.Limit // knows the trusted proxies; nil = all addresses share one account
	memory      *buf.Pool     // for hashing passwords
}

// Options configure New. Errors of New name the settings in parentheses.
type Options struct {
	Open     bool          // clients need no credentials; no credentials may be configured then
	Key      string        // the server's own key (api_key); "" = none
	Keys     string        // the file of keys (auth.keys); "" = none
	Users    string        // the file of users (auth.users); "" = none
	ClientCA string        // the file of the authorities of client certificates (tls.client_ca); "" = none
	Module   ModuleOptions // the Python module that checks passwords (auth.module, auth.python); File "" = none
	OIDC     OIDCOptions   // the provider of tokens (auth.oidc); Issuer "" = none
	Roles    []string      // roles of users without an entry in the file of users (auth.roles); empty = infer
	Sessions time.Duration // how long a session is valid (auth.session_time)

	Quotas Quotas
	Audit  *Audit            // nil = no audit log
	Limit  *accept.Limit     // knows the trusted proxies; nil = all addresses share one account
	Memory *buf.Pool         // charged for hashing passwords
	Turns  *processors.Turns // give way to the hashing of passwords; nil = there are none
	Log    *slog.Logger
}

// New opens the files and starts the programs that options name. Close ends the programs.
func New(o Options) (*Access, error) {
	a := &Access{
		open: o.Open, key: o.Key, owner: &Principal{Key: KeyName, Roles: role.All},
		checking: make(chan struct{}, maxLogins),
		sessions: NewSessions(o.Sessions), logins: NewLogins(), accounts: NewAccounts(o.Quotas), audit: o.Audit,
		limit: o.Limit, memory: o.Memory,
	}
	if o.Open && (o.Key != "" || o.Keys != "" || o.Users != "" || o.ClientCA != "" || o.Module.File != "" ||
		o.OIDC.Issuer != "") {
		return nil, stream.Errorf(stream.InvalidArgument, "",
			"access: Options.Open is set beside credentials: leave Open out, or the credentials")
	}
	bad := func(setting string, err error) error {
		return stream.Errorf(stream.InvalidArgument, setting, "%w", err)
	}
	if len(o.Roles) == 0 {
		o.Roles = []string{role.Infer.String()}
	}
	var err error
	if a.roles, err = role.Parse(o.Roles); err != nil {
		return nil, bad("auth.roles", err)
	}
	if o.Keys != "" {
		if a.keys, err = OpenKeys(o.Keys, textfile.LogFailed(o.Log, "auth.keys")); err != nil {
			return nil, bad("auth.keys", err)
		}
	}
	if o.Users != "" {
		if a.users, err = OpenUsers(o.Users, o.Turns, textfile.LogFailed(o.Log, "auth.users")); err != nil {
			return nil, bad("auth.users", err)
		}
	}
	if o.ClientCA != "" {
		if a.clients, err = OpenAuthority(o.ClientCA, textfile.LogFailed(o.Log, "tls.client_ca")); err != nil {
			return nil, bad("tls.client_ca", err)
		}
	}
	if err := a.start(o); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// AllowEverybody returns an Access without credentials and without an audit log, for a program that serves an
// adapter without a server. All clients share one account with quotas.
func AllowEverybody(quotas Quotas) *Access {
	return &Access{open: true, sessions: NewSessions(0), accounts: NewAccounts(quotas)}
}

// MinKey is the least number of characters of a server's own key when other machines can reach the server, and thus
// try any number of keys.
const MinKey = 16

// ShortKey reports whether there is a key, of fewer characters than MinKey.
func ShortKey(key string) bool { return key != "" && utf8.RuneCountInString(key) < MinKey }

// HasShortKey reports whether the server's own key is short, see ShortKey.
func (a *Access) HasShortKey() bool { return ShortKey(a.key) }

// start starts the authentication outside the server: the provider of tokens, and the module in Python.
func (a *Access) start(o Options) error {
	if o.OIDC.Issuer != "" {
		o.OIDC.Named, o.OIDC.Log = a.named, o.Log
		a.oidc = NewOIDC(context.Background(), o.OIDC)
	}
	if o.Module.File == "" {
		return nil
	}
	if o.Module.Python == "" {
		o.Module.Python = "python3"
	}
	var err error
	if o.Module.Python, err = exec.LookPath(o.Module.Python); err != nil {
		return stream.Errorf(stream.NotFound, "auth.python", "%w", err)
	}
	if o.Module.File, err = filepath.Abs(o.Module.File); err == nil {
		o.Module.Log = o.Log
		a.module, err = OpenModule(context.Background(), o.Module)
	}
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "auth.module", "%w", err)
	}
	return nil
}

// Close ends the programs that New has started.
func (a *Access) Close() {
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

// Required reports whether clients need credentials.
func (a *Access) Required() bool { return a == nil || !a.open }

// OwnKey reports whether the server has a key of its own.
func (a *Access) OwnKey() bool { return a.key != "" }

// Passwords reports whether users log in with passwords.
func (a *Access) Passwords() bool { return a.users != nil || a.module != nil }

// Certificates reports whether clients authenticate by certificates.
func (a *Access) Certificates() bool { return a.clients != nil }

// Secure makes connections with a TLS configuration ask for client certificates, if clients authenticate by
// certificates.
func (a *Access) Secure(c *tls.Config) {
	if a.clients != nil && c != nil {
		c.ClientAuth, c.VerifyConnection = tls.RequestClientCert, a.clients.Verify
	}
}

// Recheck makes the next call of Identify and of Current look at the files of keys, users and authorities.
func (a *Access) Recheck() {
	if a.keys != nil {
		a.keys.Recheck()
	}
	if a.users != nil {
		a.users.Recheck()
	}
	if a.clients != nil {
		a.clients.Recheck()
	}
}

var outcomeNames = [NoOutcomes]string{"allowed", "missing", "wrong", "expired", "denied", "limited"}

// Outcomes returns how many calls had each outcome, by the outcome's name; nil if clients need no credentials.
func (a *Access) Outcomes() map[string]uint64 {
	if !a.Required() {
		return nil
	}
	out := make(map[string]uint64, NoOutcomes)
	for i := range a.counts {
		out[outcomeNames[i]] = a.counts[i].Load()
	}
	return out
}

// Count counts the outcome of the credentials of a call. Identify counts refused credentials.
func (a *Access) Count(o Outcome) { a.counts[o].Add(1) }

// SetQuotas changes the quotas of all accounts.
func (a *Access) SetQuotas(q Quotas) { a.accounts.SetQuotas(q) }

// Uses returns the use of all accounts.
func (a *Access) Uses() []Use { return a.accounts.Uses() }

// Audit writes a line of the audit log, if there is an audit log.
func (a *Access) Audit(x Act) {
	if x.Address == "" && x.Remote != nil && a.limit != nil {
		x.Address = AddressText(a.Address(x.Remote, x.Forwarded))
	}
	a.audit.write(x)
}

// AuditLost returns how many acts have no line because the line could not be written, and whether there is an audit
// log.
func (a *Access) AuditLost() (lost uint64, on bool) { return a.audit.Stats() }

// Audits reports whether there is an audit log.
func (a *Access) Audits() bool { return a.audit != nil }

// AccountOf returns the account of a principal. Without a principal, AccountOf returns the account of the address
// in c.
func (a *Access) AccountOf(p *Principal, c Credentials) *Account {
	switch {
	case p != nil:
		return a.accounts.Of(p)
	case c.Conn == nil && c.Remote != nil && a.limit != nil:
		return a.accounts.OfAddress(a.Address(c.Remote, c.Forwarded))
	}
	return a.AccountAt(c.Conn, c.Forwarded)
}

// Ticket returns a new ticket of a principal, or of an account where clients need no credentials.
func (a *Access) Ticket(p *Principal, by *Account) (string, error) {
	return a.tickets.Issue(p, by, time.Now())
}

// Redeem uses a ticket up, and returns the principal and the account of the ticket. Errors: Unauthenticated, which
// Redeem counts.
func (a *Access) Redeem(ticket string) (*Principal, *Account, error) {
	if a == nil {
		return nil, nil, ErrUnknownClient
	}
	p, by, valid := a.tickets.Take(ticket, time.Now())
	if !valid {
		a.Count(Wrong)
		return nil, nil, stream.Errorf(stream.Unauthenticated, "ticket",
			"is not known, was used, or is older than %v: ask for one at POST /v2/tickets", TicketTime)
	}
	return p, by, nil
}
