package httpd

import (
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// Reserve takes the routes for which reserved reports true, by their method and path, from all connections but those of Config.Management. There,
// a request to one is answered as if it did not exist, also in the methods that are allowed at its path and by handlers for
// requests without a route. All routes must be registered; Reserve must be called before Serve, once at most.
func (s *Server) Reserve(reserved func(method, path string) bool) { s.open = s.without(reserved) }

// OnlyPrograms has connections of Config.Programs reach no routes but those for which of reports true, by their path. It must be called as
// Reserve.
func (s *Server) OnlyPrograms(of func(path string) bool) {
	s.programs = s.without(func(_, path string) bool { return !of(path) })
}

// without returns a handler that has all routes but those for which leftOut reports true.
func (s *Server) without(leftOut func(method, path string) bool) fasthttp.RequestHandler {
	// An application of its own cannot call what it has not. It shares the routes, with their handlers, and their order.
	open := fiber.New(s.config)
	open.Server().KeepHijackedConns = true                      // which Hijack asks of the application of a request
	open.Use("/", func(c *fiber.Ctx) error { return c.Next() }) // so that it builds the tree of its routes
	stack := open.Stack()
	for i, routes := range s.App.Stack() {
		stack[i] = slices.DeleteFunc(slices.Clone(routes), func(r *fiber.Route) bool { return leftOut(r.Method, r.Path) })
	}
	return open.Handler()
}

// place is which of a server's addresses a connection came to.
type place int

const (
	public     place = iota // Config.Addr, and those of Also
	management              // Config.Management
	programs                // Config.Programs
)

// ToManagement reports whether a request came to Config.Management.
func ToManagement(c *fiber.Ctx) bool { return connOf(c.Context().Conn()).isManagement() }

// isManagement reports whether the connection came to Config.Management. c may be nil.
func (c *conn) isManagement() bool { return c != nil && c.at == management }

// ToPrograms reports whether a request came to Config.Programs.
func ToPrograms(c *fiber.Ctx) bool { return connOf(c.Context().Conn()).isPrograms() }

// isPrograms reports whether the connection came to Config.Programs. c may be nil.
func (c *conn) isPrograms() bool { return c != nil && c.at == programs }
