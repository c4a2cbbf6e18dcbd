package server

import (
	"net/url"
	"strings"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/openapi"
	"millrace/internal/role"

	"github.com/gofiber/fiber/v2"
)

// audited reports whether requests of a route are audited: routes that need role.Manage, logins and logouts, and routes
// that say so.
func audited(r *openapi.Route) bool {
	return r.Audit || r.Role == role.Manage || strings.HasSuffix(r.Path, "login") || strings.HasSuffix(r.Path, "logout")
}

// attemptKey is the key in a request's context for the user name of a refused login.
type attemptKey struct{}

// actorKey is the key in a request's context for the principal of a login, logout or refused request.
type actorKey struct{}

// auditRoute returns the first handler of a route.
func (s *Server) auditRoute(path string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		from := access.AddressText(s.clientAddress(c)) // read before handlers change the request
		err := c.Next()
		by := ingest.ClientOf(httpd.ClientOf(c)).Principal()
		if by == nil {
			by, _ = c.Locals(actorKey{}).(*access.Principal)
		}
		var named []string
		if name, ok := c.Locals(attemptKey{}).(string); ok {
			named = append(named, name)
		}
		for _, name := range c.Route().Params {
			value, bad := url.PathUnescape(c.Params(name))
			if bad != nil {
				value = c.Params(name)
			}
			named = append(named, value)
		}
		made := string(c.Response().Header.Peek(fiber.HeaderLocation))
		if name, is := strings.CutPrefix(made, httpd.Relative(c, "/v2/streams/")); is && len(named) == 0 {
			named = append(named, name)
		}
		status := c.Response().StatusCode()
		if err != nil {
			status = httpd.StatusOf(err)
		}
		s.access.Audit(access.Act{By: by, Address: from, Protocol: "http", Verb: c.Method() + " " + path,
			Target: strings.Join(named, " "), Err: err, Status: status})
		return err
	}
}

// AuditSignal writes a SIGHUP and its result to the audit log.
func (s *Server) AuditSignal(err error) {
	s.access.Audit(access.Act{Protocol: access.Signal, Verb: "SIGHUP", Err: err})
}
