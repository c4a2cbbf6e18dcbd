package httpd

import (
	"slices"

	"github.com/gofiber/fiber/v2"
)

// Reserve takes the routes for which reserved reports true, by their method and path, from all connections but those of Config.Management. There,
// a request to one is answered as if it did not exist, also in the methods that are allowed at its path and by handlers for
// requests without a route. All routes must be registered; Reserve must be called before Serve, once at most.
func (s *Server) Reserve(reserved func(method, path string) bool) {
	// An application of its own cannot call what it has not. It shares the routes, with their handlers, and their order.
	open := fiber.New(s.config)
	open.Server().KeepHijackedConns = true                      // which Hijack asks of the application of a request
	open.Use("/", func(c *fiber.Ctx) error { return c.Next() }) // so that it builds the tree of its routes
	stack := open.Stack()
	for i, routes := range s.App.Stack() {
		stack[i] = slices.DeleteFunc(slices.Clone(routes), func(r *fiber.Route) bool { return reserved(r.Method, r.Path) })
	}
	s.open = open.Handler()
}

// ToManagement reports whether a request came to Config.Management.
func ToManagement(c *fiber.Ctx) bool { return connOf(c.Context().Conn()).isManagement() }

// isManagement reports whether the connection came to Config.Management. c may be nil.
func (c *conn) isManagement() bool { return c != nil && c.management }
