package config

import (
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"

	"millrace/stream/coded"
)

// domain matches names for which an authority gives certificates without DNS records: names of several parts, without
// a wildcard.
var domain = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// validateACME returns the errors of tls.acme.
func (c *Config) validateACME() (errs []error) {
	a := c.TLS.ACME
	bad := func(setting, format string, args ...any) {
		errs = append(errs, coded.Errorf(coded.InvalidArgument, "tls.acme."+setting, format, args...))
	}
	if !a.On() {
		if a.Email != "" || a.AcceptTerms || a.Cache != "" || a.DirectoryCA != "" {
			bad("domains", "is missing: tls.acme needs the names that certificates are for")
		}
		return errs
	}
	for _, name := range a.Domains {
		if _, err := netip.ParseAddr(name); err == nil || len(name) > 253 || !domain.MatchString(name) {
			bad("domains", "%.140q is not a name that an authority gives certificates for: want one in lower case "+
				"such as models.example.org, not an address or a wildcard", name)
		}
	}
	if c.HTTP == Off {
		bad("domains", "needs the address http, where the authority checks the names")
	}
	if m, err := mail.ParseAddress(a.Email); a.Email != "" && (err != nil || m.Address != a.Email) {
		bad("email", "%.140q is not an address: want one such as ops@example.org", a.Email)
	}
	if u, err := url.Parse(a.Directory); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		bad("directory", "%.140q is not the URL of a directory: want https://HOST/PATH", a.Directory)
	}
	if !a.AcceptTerms {
		bad("accept_terms", "is not set: the authority gives certificates to who accepts its terms of service, to "+
			"which %s leads", a.Directory)
	}
	return errs
}
