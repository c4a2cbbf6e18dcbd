package httpd

import "github.com/gofiber/fiber/v2"

// routeKey is the key of a request's own route.
type routeKey struct{}

// SetRoute sets the route of a request, where a Fiber route stands for several routes: a path known to the server,
// never a path invented by a client.
func SetRoute(c *fiber.Ctx, route string) { c.Context().SetUserValue(routeKey{}, route) }

// Route returns the pattern of the route of a request.
func Route(c *fiber.Ctx) string {
	if route, ok := c.Context().UserValue(routeKey{}).(string); ok {
		return route
	}
	return c.Route().Path
}
