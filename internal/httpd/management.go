package httpd

import (
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// Reserve removes the routes for which reserved returns true from all connections except connections to
// Config.Management. Elsewhere, a request to a reserved route is answered as if the route did not exist, also in the
// methods allowed at its path and by handlers for requests without a route. All routes must be registered; Reserve
// must be called before Serve, once at most.
func (s *Server) Reserve(reserved func(method, path string) bool) {
	s.open = s.handlerWithout(reserved)
}

// OnlyPrograms restricts connections to Config.Programs to the routes with a path for which of returns true. The
// rules for calling are those of Reserve.
func (s *Server) OnlyPrograms(of func(path string) bool) {
	s.programs = s.handlerWithout(func(_, path string) bool { return !of(path) })
}

// handlerWithout returns a handler for all routes except the routes for which leftOut returns true.
func (s *Server) handlerWithout(leftOut func(method, path string) bool) fasthttp.RequestHandler {
	// A separate application cannot call a route it lacks. The application shares the routes, their handlers, and
	// their order.
	open := fiber.New(s.config)
	open.Server().KeepHijackedConns = true                      // Hijack checks this setting of the application
	open.Use("/", func(c *fiber.Ctx) error { return c.Next() }) // makes Fiber build the tree of routes
	stack := open.Stack()
	for i, routes := range s.App.Stack() {
		stack[i] = slices.DeleteFunc(slices.Clone(routes), func(r *fiber.Route) bool {
			return leftOut(r.Method, r.Path)
		})
	}
	return open.Handler()
}

// place is the server's address at which a connection arrived.
type place int

const (
	public     place = iota // Config.Addr, and the addresses of ListenAlso
	management              // Config.Management
	programs                // Config.Programs
	inside                  // none: Handle
)

// ToManagement reports whether a request arrived at the address Config.Management.
func ToManagement(c *fiber.Ctx) bool { return connOf(c.Context().Conn()).isManagement() }

// isManagement reports whether the connection arrived at the address Config.Management. c may be nil.
func (c *conn) isManagement() bool { return c != nil && c.at == management }

// ToPrograms reports whether a request arrived at the address Config.Programs.
func ToPrograms(c *fiber.Ctx) bool { return connOf(c.Context().Conn()).isPrograms() }

// isPrograms reports whether the connection arrived at the address Config.Programs. c may be nil.
func (c *conn) isPrograms() bool { return c != nil && c.at == programs }
