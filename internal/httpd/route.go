package httpd

import "github.com/gofiber/fiber/v2"

// routeKey is the key of a request's own route.
type routeKey struct{}

// SetRoute says which route a request has, when several have one of Fiber's: a path that the
// server knows, never one that clients can invent.
func SetRoute(c *fiber.Ctx, route string) { c.Context().SetUserValue(routeKey{}, route) }

// Route returns the pattern of the route of a request.
func Route(c *fiber.Ctx) string {
	if route, ok := c.Context().UserValue(routeKey{}).(string); ok {
		return route
	}
	return c.Route().Path
}
