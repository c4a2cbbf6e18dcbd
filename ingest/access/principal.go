package access

import (
	"crypto/x509"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/role"
	"millrace/stream"
)

// Principal is the sender of a request, for all protocols. A Principal does not change. Authorize of a nil Principal
// refuses every call.
type Principal struct {
	// identity: "key:ID" of a named key, "user:NAME", "native:NAME" of a user of a Go program, "api_key" for the
	// server's own key
	Key     string
	Name    string // in logs and the metadata of workers
	Roles   role.Set
	Expires time.Time // when the credentials expire; zero = not by themselves
	Listed  bool      // an entry of the file of users determines roles and models
	Models  []string  // patterns of the permitted models; nil = all
	Session string    // the id of the session by which it authenticated; "" = by other credentials
	// distinguishes the entry of a user from another one of the same name, and with another password; "" = no user's
	Entry string

	// the client certificate of the principal, and the certificates up to the authority
	Certificates []*x509.Certificate

	Quotas  map[string]float64      // by their names, in place of the settings
	account atomic.Pointer[Account] // see Accounts.Of
	Client  atomic.Value            // the gate's *ingest.Client of the principal
}

// InSession returns p in the session with an id.
func (p *Principal) InSession(session string) *Principal {
	return &Principal{Key: p.Key, Name: p.Name, Roles: p.Roles, Expires: p.Expires, Listed: p.Listed, Models: p.Models,
		Quotas: p.Quotas, Session: session, Entry: p.Entry}
}

// Allows returns nil if the principal has the role, and an error with the code permission_denied otherwise.
func (p *Principal) Allows(r role.Role) error {
	if p == nil || p.Roles.Has(r) {
		return nil
	}
	return stream.Errorf(stream.PermissionDenied, "", "%s has not the role %s, which this needs", p.Name, r)
}

// Equal reports whether two principals have the same identity and the same rights.
func (p *Principal) Equal(other *Principal) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.Key == other.Key && p.Roles == other.Roles && slices.Equal(p.Models, other.Models)
}

// Changed returns an error if now, the present state of the principal, has other roles or models. Errors:
// Unauthenticated.
func (p *Principal) Changed(now *Principal) error {
	if p.Equal(now) {
		return nil
	}
	return stream.Errorf(stream.Unauthenticated, "", "the roles or models of %s were changed: connect again", p.Name)
}

// Limited reports whether the principal may use some models only.
func (p *Principal) Limited() bool { return p != nil && len(p.Models) > 0 }

// AllowsModel returns nil if the principal may use the model or endpoint, and an error with the code
// permission_denied otherwise, also for the name of no model.
func (p *Principal) AllowsModel(name string) error {
	if !p.Limited() {
		return nil
	}
	for _, pattern := range p.Models {
		if ok, _ := path.Match(pattern, name); ok {
			return nil
		}
	}
	return stream.Errorf(stream.PermissionDenied, "", "%s may not use the model %.128q, only %s", p.Name, name,
		strings.Join(p.Models, ", "))
}

// Authorize returns nil if the principal may make a call with a need. Errors: PermissionDenied.
func (p *Principal) Authorize(n Need) error {
	if p == nil {
		return ErrUnknownClient
	}
	if n.Role == 0 {
		return ErrNoRole
	}
	if err := p.Allows(n.Role); err != nil || !p.Limited() {
		return err
	}
	switch {
	case n.Model != "":
		return p.AllowsModel(n.Model)
	case n.Scope == ServerScope:
		return p.limitedToModels()
	}
	return nil
}

// The errors of calls that enter no gate, or with the zero Need.
var (
	ErrUnknownClient error = stream.Errorf(stream.PermissionDenied, "",
		"the client of this call is not known: its adapter has not called Gate.Enter, or went on after an error")
	ErrNoRole error = stream.Errorf(stream.PermissionDenied, "",
		"the call has no role: its adapter must set the role in the access.Need of Gate.Enter")
)

// limitedToModels returns the error of a request about the whole server, for a principal with a limited list of models.
func (p *Principal) limitedToModels() error {
	return stream.Errorf(stream.PermissionDenied, "", "%s is limited to the models %s, and this is about all", p.Name,
		strings.Join(p.Models, ", "))
}

// maxName is the largest length of a principal's name.
const maxName = 128

// nameForm is the form of a name. Logs, metrics and headers have the name unchanged.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]*$`)

// CheckName returns an error if the name of a key or a user is wrong.
func CheckName(name string) error {
	if len(name) > maxName || !nameForm.MatchString(name) {
		return fmt.Errorf("%.140q is not a name: want at most %d letters, digits and . _ @ -, the first a letter or "+
			"digit", name, maxName)
	}
	return nil
}

// maxPatterns is the largest number of patterns of models of a principal.
const maxPatterns = 256

// CheckPatterns returns an error if patterns of names of models are wrong.
func CheckPatterns(patterns []string) error {
	if len(patterns) > maxPatterns {
		return fmt.Errorf("has %d patterns: want at most %d", len(patterns), maxPatterns)
	}
	for i, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" || len(pattern) > 128 {
			return fmt.Errorf("[%d]: %.140q is not a pattern of names: want one such as door or door-*", i, pattern)
		}
	}
	return nil
}
