package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/rest"
	"millrace/ingest/ws"
	"millrace/internal/accept"
	"millrace/internal/httpd"
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/stream"
)

// guardRoutes puts a check of the role, where clients need credentials, and of the quotas in front of the handlers of every route that is not
// open to all. All routes must be registered.
func (s *Server) guardRoutes() error {
	if s.http == nil {
		return nil
	}
	described := map[string]*openapi.Route{} // by method and path
	all := s.routes()
	for i := range all {
		for _, path := range all[i].Paths() {
			for method := range strings.SplitSeq(all[i].Method, "|") {
				described[method+" "+path] = &all[i]
			}
		}
	}
	served := map[string]bool{} // without what is called for every path, such as the measuring of requests
	for _, r := range s.http.App.GetRoutes(true) {
		served[r.Method+" "+r.Path] = true
	}
	for _, routes := range s.http.App.Stack() {
		for _, r := range routes {
			if !served[r.Method+" "+r.Path] {
				continue
			}
			name := r.Method
			if name == fiber.MethodHead {
				name = fiber.MethodGet
			}
			of := described[name+" "+r.Path]
			if of == nil || of.Role == 0 {
				return fmt.Errorf("server: %s %s has no role: each route is described in the openapi.go of its package", r.Method, r.Path)
			}
			var first []fiber.Handler
			if audited(of) && s.audit != nil {
				first = []fiber.Handler{s.auditRoute(r.Path)}
			}
			needed := s.roleOf(of)
			if needed == role.Open {
				r.Handlers = append(first, r.Handlers...)
				continue
			}
			before := []fiber.Handler{s.charge}
			if s.auth.on() {
				before = []fiber.Handler{s.guard(of, needed, modelIn(r.Path)), s.charge}
			}
			r.Handlers = append(append(first, before...), r.Handlers...)
		}
	}
	if c := s.cfg.Apps; c.Address != "" && c.Address != Off {
		s.http.OnlyPrograms(func(path string) bool { return path == "/" || path == "/apps" || strings.HasPrefix(path, "/apps/") })
	}
	if s.cfg.Management.Apart() {
		s.http.Reserve(func(method, path string) bool {
			of := described[method+" "+path]
			return of != nil && of.Role == role.Manage
		})
	}
	return nil
}

// managesHere reports whether the address that a request came to is one at which the server is managed.
func (s *Server) managesHere(c *fiber.Ctx) bool {
	return !s.cfg.Management.Apart() || httpd.ToManagement(c)
}

// roleOf returns the role that a route needs by the settings.
func (s *Server) roleOf(r *openapi.Route) role.Role {
	if r.Path == openapiRoute && s.ssfRoot() {
		return role.Open // where clients of Simple Server Framework read it without a key
	}
	if r.Probe && s.cfg.Auth.Health == "open" {
		return role.Open
	}
	return r.Role
}

// ssfRoot reports whether the routes of an application of Simple Server Framework are at the root.
func (s *Server) ssfRoot() bool {
	return s.cfg.Programs.Root != "" && styleOf(s.cfg.Models, s.cfg.Programs.Root) == "ssf"
}

// lasts returns httpd.Config.Lasts; nil where clients need no credentials.
func (s *Server) lasts() func(*fiber.Ctx) func(end func(error)) (ended func()) {
	if !s.auth.on() {
		return nil
	}
	return func(c *fiber.Ctx) func(func(error)) func() {
		p, _ := c.Locals(ingest.PrincipalKey{}).(*ingest.Principal)
		return func(end func(error)) func() { return s.auth.lasting.Add(p, end) }
	}
}

// still returns httpd.Config.Still; nil where clients need no credentials.
func (s *Server) still() func(*fiber.Ctx) error {
	if !s.auth.on() {
		return nil
	}
	return func(c *fiber.Ctx) error {
		p, _ := c.Locals(ingest.PrincipalKey{}).(*ingest.Principal)
		if p == nil {
			return nil
		}
		err := s.auth.still(p, time.Now())
		if err != nil {
			c.Set(fiber.HeaderWWWAuthenticate, wwwAuthenticate)
		}
		return err
	}
}

// modelIn returns the name of the parameter of a path that has a model's name; "" when it has none.
func modelIn(path string) string {
	switch {
	case strings.HasSuffix(path, "/trace/setting"): // which is that of all models
	case strings.Contains(path, "/:model"):
		return "model"
	case strings.HasPrefix(path, "/apps/:name"):
		return "name"
	}
	return ""
}

// guard returns a handler that goes on for clients with a role, and, for a WebSocket, for those that offer a ticket,
// which the handler behind it takes. A client that is limited to some models may use routes of these, and those whose
// handler regards it.
func (s *Server) guard(r *openapi.Route, needed role.Role, model string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if r.WebSocket && ws.OffersTicket(c) {
			return c.Next()
		}
		if answered, err := s.admit(c, needed, func(p *ingest.Principal) error {
			switch {
			case model != "":
				name, err := url.PathUnescape(c.Params(model)) // as the handlers read it
				if err != nil {
					name = c.Params(model)
				}
				return p.AllowsModel(name)
			case r.Limited:
				return nil
			}
			return p.NotWhole()
		}); answered {
			return err
		}
		return c.Next()
	}
}

// guardHandler is guard for what net/http serves, which is about all models.
func (s *Server) guardHandler(needed role.Role, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		switch {
		case !s.auth.on():
			accept.Spoke(conn)
			h.ServeHTTP(w, r)
			return
		case needed == role.Open:
			accept.Heard(conn)
			h.ServeHTTP(w, r)
			return
		}
		of := &requestCredentials{keys: []string{r.Header.Get(keyName), bearer(r.Header.Get(fiber.HeaderAuthorization))}}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			of.certs = r.TLS.PeerCertificates
		}
		_, err := s.auth.admits(r.Context(), of, needed, (*ingest.Principal).NotWhole)
		switch {
		case err == nil:
			accept.Spoke(conn)
			h.ServeHTTP(w, r)
		case stream.CodeOf(err) == stream.Unauthenticated:
			w.Header().Set(fiber.HeaderWWWAuthenticate, wwwAuthenticate)
			http.Error(w, err.Error(), http.StatusUnauthorized)
		default:
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	})
}

// admit finds the principal of a request, and answers one that has not the role, or may not use what the request is about, where
// it reports true. limited checks those that may use some models only.
func (s *Server) admit(c *fiber.Ctx, needed role.Role, limited func(*ingest.Principal) error) (answered bool, err error) {
	p, err := s.auth.admits(c.UserContext(), s.credentialsOf(c, s.ssfRoot()), needed, limited)
	if err == nil {
		c.Locals(ingest.PrincipalKey{}, p)
		httpd.Accepted(c.Context())
		return false, nil
	}
	c.Locals(actorKey{}, p)
	return true, s.refuseCredentials(c, err)
}

// credentialsOf returns the credentials of a request. query says that the key may be in the query, where proxies and
// histories keep it.
func (s *Server) credentialsOf(c *fiber.Ctx, query bool) *requestCredentials {
	of := &requestCredentials{}
	of.keys = append(of.own[:0], c.Get(keyName), bearer(c.Get(fiber.HeaderAuthorization)))
	if c.Get(fiber.HeaderCookie) != "" {
		of.keys, of.session = append(of.keys, c.Cookies(keyName)), c.Cookies(sessionName)
	}
	if query {
		of.keys = append(of.keys, c.Query(keyName))
	}
	if s.auth.clients != nil {
		if state := c.Context().TLSConnectionState(); state != nil && len(state.PeerCertificates) > 0 {
			of.certs = state.PeerCertificates
		}
	}
	return of
}

// refuseCredentials answers a request that is refused because of err.
func (s *Server) refuseCredentials(c *fiber.Ctx, err error) error {
	if s.ssfRoot() { // as clients of Simple Server Framework expect it
		detail := "Invalid credentials (Login first with /login?api_key=<key>)"
		if s.auth.key == "" && s.auth.passwords() {
			detail = "Invalid session (Login first with /session_login)"
		}
		return c.Status(fiber.StatusForbidden).JSON(map[string]string{"detail": detail, "error": err.Error(), "code": string(stream.PermissionDenied)})
	}
	if stream.CodeOf(err) == stream.Unauthenticated {
		c.Set(fiber.HeaderWWWAuthenticate, wwwAuthenticate)
	}
	return err
}

// guardProgram answers a request to a program at the root that may not use the server, or whose client is over its quota, and reports true.
// declared says that the program has a route for it, which always needs a key.
func (s *Server) guardProgram(c *fiber.Ctx, declared bool) (bool, error) {
	if c.Locals(ingest.AccountKey{}) != nil { // of a route that guardRoutes has guarded
		return false, nil
	}
	if m := c.Method(); !declared && (m == fiber.MethodGet || m == fiber.MethodHead) && s.isOpen(c.Path()) {
		return false, nil
	}
	if s.auth.on() && c.Locals(ingest.PrincipalKey{}) == nil {
		if answered, err := s.admit(c, role.Infer, func(p *ingest.Principal) error { return p.AllowsModel(s.cfg.Programs.Root) }); answered {
			return true, err
		}
	}
	err := s.chargeRequest(c)
	return err != nil, err
}

// isOpen reports whether what the style of a program serves at a path needs no key.
func (s *Server) isOpen(path string) bool {
	switch path {
	case "/", "/docs":
		return true
	case openapiRoute:
		return s.ssfRoot()
	case s.cfg.Metrics.Path:
		return s.metricsRole() == role.Open
	}
	return strings.HasPrefix(path, "/docs/") || rest.IsProbe(path)
}

// metricsRole returns the role that the metrics of a server need. Unless auth.metrics says so, everybody reads them who can reach
// them, if that is this machine only: they have the names of clients and models.
func metricsRole(ctx context.Context, c *Config) role.Role {
	addr := c.HTTP
	if c.Metrics.Separate() {
		addr = c.Metrics.Address
	}
	if c.Auth.Metrics == "open" || c.Auth.Metrics == "" && !(authenticates(c) && reachable(ctx, addr)) {
		return role.Open
	}
	return role.Metrics
}
