package server

import (
	"net/netip"
	"os"

	"github.com/gofiber/fiber/v2"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/secret"
	"millrace/stream"
)

// sessionName is the name of the cookie of a session.
const sessionName = "session_key"

// openAccess opens the access of the clients of a server, and has TLS ask for client certificates where these are
// credentials.
func openAccess(s *Server) (*access.Access, error) {
	c := &s.cfg
	key, err := secret.Read(c.APIKey)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "api_key", "%w", err)
	}
	if access.ShortKey(key) { // see Exposed
		s.log.Warn("the key is short enough to be guessed: set a random key of 16 characters or more", "setting",
			"api_key")
	}
	open := !authenticates(c)
	o := access.Options{
		Open: open, Key: key, Keys: c.Auth.Keys, Users: c.Auth.Users, ClientCA: c.TLS.ClientCA, Roles: c.Auth.Roles,
		Sessions: c.Auth.Sessions,
		Module: access.ModuleOptions{Python: c.Auth.Python, File: c.Auth.Module,
			Env: config.WithoutSecrets(os.Environ())},
		OIDC: access.OIDCOptions{Issuer: c.Auth.OIDC.Issuer, Audience: c.Auth.OIDC.Audience,
			UserClaim: c.Auth.OIDC.UserClaim, RolesClaim: c.Auth.OIDC.RolesClaim},
		Quotas: c.ClientQuotas(), Limit: s.connections.limit, Memory: s.memory, Turns: s.turns, Log: s.log,
	}
	if c.Audit != "" {
		lines, err := s.observe.openAudit(c.Audit)
		if err != nil {
			return nil, err
		}
		o.Audit = access.NewAudit(lines, open, s.log)
	}
	a, err := access.New(o)
	if err == nil {
		a.Secure(s.connections.tls.config)
	}
	return a, err
}

// clientAddress returns the address of the client of a request, see access.Access.Address.
func (s *Server) clientAddress(c *fiber.Ctx) netip.Addr {
	return s.access.Address(c.Context().RemoteAddr(), forwarded(c))
}

// forwarded returns the last line of X-Forwarded-For in a request, or "".
func forwarded(c *fiber.Ctx) string {
	lines := c.Request().Header.PeekAll(fiber.HeaderXForwardedFor)
	if len(lines) == 0 {
		return ""
	}
	return string(lines[len(lines)-1])
}
