package server

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"millrace/ingest/access"
	"millrace/ingest/rest"
	"millrace/ingest/ws"
	"millrace/internal/accept"
	"millrace/internal/httpd"
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/coded"
)

// guardRoutes has the client of a request enter through the gate before the handlers of the route. All routes must be
// registered.
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
				return fmt.Errorf("server: %s %s has no role: add the route to Routes of its adapter, or to the "+
					"openapi.go of its package", r.Method, r.Path)
			}
			var first []fiber.Handler
			if audited(of) && s.access.Audits() {
				first = []fiber.Handler{s.auditRoute(r.Path)}
			}
			first = append(first, s.guard(of, s.roleOf(of), modelIn(r.Path)))
			r.Handlers = append(first, r.Handlers...)
		}
	}
	if c := s.cfg.Apps; c.Address != "" && c.Address != Off {
		s.http.OnlyPrograms(func(path string) bool {
			return path == "/" || path == "/apps" || strings.HasPrefix(path, "/apps/")
		})
	}
	if s.cfg.Management.Separate() {
		s.http.Reserve(func(method, path string) bool {
			of := described[method+" "+path]
			return of != nil && of.Role == role.Manage && !of.Public
		})
	}
	return nil
}

// managesHere reports whether the address that a request came to is one at which the server is managed.
func (s *Server) managesHere(c *fiber.Ctx) bool {
	return !s.cfg.Management.Separate() || httpd.ToManagement(c)
}

// roleOf returns the role that a route needs by the settings.
func (s *Server) roleOf(r *openapi.Route) role.Role {
	if slices.Contains(s.rootAccess().Open, r.Path) {
		return role.Open
	}
	if r.Probe && s.cfg.Auth.Health == "open" {
		return role.Open
	}
	return r.Role
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

// guard returns a handler that goes on for clients with a role, and, for a WebSocket, for clients that offer a
// ticket, which enter in the handler behind it. A client that is limited to some models may use routes of these
// models, and routes whose handler regards the limit.
func (s *Server) guard(r *openapi.Route, needed role.Role, model string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if r.WebSocket && s.access.Required() && ws.OffersTicket(c) { // the handler has the ticket's client enter
			if err := s.access.AccountAt(c.Context().Conn(), forwarded(c)).Take(stream.QuotaRequests, 1,
				0); err != nil {
				return err
			}
			return c.Next()
		}
		n := access.Need{Role: needed}
		if model != "" {
			var err error
			if n.Model, err = url.PathUnescape(c.Params(model)); err != nil { // as the handlers read it
				n.Model = c.Params(model)
			}
		}
		if r.Limited {
			n.Scope = access.ClientScope
		}
		if answered, err := s.enter(c, n); answered {
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
		case !s.access.Required():
			accept.MarkRequestSent(conn)
			h.ServeHTTP(w, r)
			return
		case needed == role.Open:
			accept.MarkActive(conn)
			h.ServeHTTP(w, r)
			return
		}
		var of access.Credentials
		of.Key(r.Header.Get(access.KeyName))
		of.Key(access.Bearer(r.Header.Get(fiber.HeaderAuthorization)))
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			of.Certificates = r.TLS.PeerCertificates
		}
		client, err := s.gate.Enter(r.Context(), of, access.Need{Role: needed})
		if client.Known() {
			accept.MarkRequestSent(conn)
		}
		if err != nil {
			if wait := coded.RetryAfter(err); wait > 0 {
				w.Header().Set(fiber.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			}
			if stream.CodeOf(err) == stream.Unauthenticated {
				w.Header().Set(fiber.HeaderWWWAuthenticate, httpd.WWWAuthenticate)
			}
			http.Error(w, err.Error(), httpd.StatusOf(err))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// enteredKey is the key under which a request has that its client has entered with a role.
type enteredKey struct{}

// enter has the client of a request enter through the gate. It answers a client that may not, and reports true then.
func (s *Server) enter(c *fiber.Ctx, n access.Need) (answered bool, err error) {
	if httpd.IsInternal(c) {
		httpd.SetClient(c, s.gate.Owner())
		return false, nil
	}
	of := access.Credentials{Conn: c.Context().Conn()}
	switch {
	case !s.access.Required():
		of.Forwarded = forwarded(c)
	case n.Role != role.Open:
		of = s.credentialsOf(c, s.rootAccess().KeyInQuery)
	}
	client, err := s.gate.Enter(c.UserContext(), of, n)
	if err == nil || client.Known() {
		httpd.SetClient(c, client)
	}
	if client.Known() && n.Role != role.Open {
		c.Locals(enteredKey{}, true)
		httpd.Accepted(c.Context())
	}
	if err == nil {
		return false, nil
	}
	switch stream.CodeOf(err) {
	case stream.Unauthenticated, stream.PermissionDenied:
		c.Locals(actorKey{}, client.Principal())
		return true, s.refuseCredentials(c, err)
	}
	return true, err
}

// keyHeader is access.KeyName as fasthttp writes the names of headers.
const keyHeader = "Api_key"

// credentialsOf returns the credentials of a request. query says that the key may be in the query, where proxies and
// histories keep it.
func (s *Server) credentialsOf(c *fiber.Ctx, query bool) access.Credentials {
	of := access.Credentials{Conn: c.Context().Conn()}
	var key, bearer []byte
	cookies := false
	c.Request().Header.VisitAll(func(name, value []byte) { // once: each search by name costs as much
		switch string(name) {
		case keyHeader:
			if key == nil {
				key = value
			}
		case fiber.HeaderAuthorization:
			if bearer == nil {
				bearer = value
			}
		case fiber.HeaderCookie:
			cookies = true
		}
	})
	of.Key(utils.UnsafeString(key))
	of.Key(access.Bearer(utils.UnsafeString(bearer)))
	if cookies {
		of.Key(c.Cookies(access.KeyName))
		of.Session = c.Cookies(sessionName)
	}
	if query {
		of.Key(c.Query(access.KeyName))
	}
	if s.access.Certificates() {
		if state := c.Context().TLSConnectionState(); state != nil && len(state.PeerCertificates) > 0 {
			of.Certificates = state.PeerCertificates
		}
	}
	return of
}

// refuseCredentials answers a request that is refused because of err.
func (s *Server) refuseCredentials(c *fiber.Ctx, err error) error {
	if refused := s.rootAccess().Refused; refused != nil {
		status, detail := refused(!s.access.OwnKey() && s.access.Passwords())
		return c.Status(status).JSON(map[string]string{"detail": detail, "error": err.Error(),
			"code": string(stream.PermissionDenied)})
	}
	if stream.CodeOf(err) == stream.Unauthenticated {
		c.Set(fiber.HeaderWWWAuthenticate, httpd.WWWAuthenticate)
	}
	return err
}

// guardProgram answers a request to a program at the root that may not use the server, or whose client is over its
// quota, and reports true. declared: the program has a route for the request, and such a route always needs a
// key.
func (s *Server) guardProgram(c *fiber.Ctx, declared bool) (bool, error) {
	if c.Locals(enteredKey{}) != nil { // at a route that guardRoutes has guarded
		return false, nil
	}
	n := access.Need{Role: role.Infer, Model: s.cfg.Programs.Root}
	if m := c.Method(); !declared && (m == fiber.MethodGet || m == fiber.MethodHead) && s.isOpen(c.Path()) {
		n.Role = role.Open
	}
	return s.enter(c, n)
}

// isOpen reports whether what the style of a program serves at a path needs no key.
func (s *Server) isOpen(path string) bool {
	switch path {
	case "/", "/docs":
		return true
	case s.cfg.Metrics.Path:
		return s.metrics.role() == role.Open
	}
	return strings.HasPrefix(path, "/docs/") || rest.IsProbe(path) || slices.Contains(s.rootAccess().Open, path)
}

// metricsAccess decides who may read the metrics: the role and, at metrics.address, the Host of a request, so that a
// page cannot read the metrics under a name of its own.
type metricsAccess struct {
	needs func() role.Role            // the required role, computed at the first call
	host  string                      // of metrics.address
	rules atomic.Pointer[httpd.Rules] // of metrics.address; nil = there is no such listener
}

// newMetricsAccess returns the access to the metrics of cfg. Programs may change cfg.HTTP before the first request.
func newMetricsAccess(cfg *Config) *metricsAccess {
	m := &metricsAccess{needs: sync.OnceValue(func() role.Role { return metricsRole(context.Background(), cfg) })}
	m.host, _, _ = net.SplitHostPort(cfg.Metrics.Address)
	return m
}

// role returns the role that the metrics need.
func (m *metricsAccess) role() role.Role { return m.needs() }

// use sets the names of the server in a Host of metrics.address.
func (m *metricsAccess) use(hosts []string) error {
	rules, err := httpd.NewRules(m.host, hosts)
	if err == nil {
		m.rules.Store(&rules)
	}
	return err
}

// reload sets the names of the server if metrics.address listens.
func (m *metricsAccess) reload(hosts []string) error {
	if m.rules.Load() == nil {
		return nil
	}
	return m.use(hosts)
}

// checkHost returns why a request with a Host is not answered at an address of metrics.address.
func (m *metricsAccess) checkHost(host string, at net.Addr) error {
	return m.rules.Load().CheckHost(host, at)
}

// metricsRole returns the role for reading the metrics of a server. Metrics have the names of clients and models.
// Without auth.metrics, the role is needed where clients have to authenticate and other machines can reach the metrics.
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
