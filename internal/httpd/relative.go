package httpd

import (
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Relative returns a reference to a path of the server, such as /console/, relative to the path of the request (RFC 3986, 4.2). A client resolves
// it against the address that the client has asked, so that it is right also where a proxy has taken a path away. It begins with ./ or ../, so
// that no client reads it as the address of another host, and has no scheme.
func Relative(c *fiber.Ctx, to string) string {
	up := strings.Repeat("../", strings.Count(c.Path(), "/")-1)
	if up == "" {
		up = "./"
	}
	return up + strings.TrimLeft(to, "/")
}

// Redirect answers with a redirect to a path of the server, by a relative reference.
func Redirect(c *fiber.Ctx, to string, status int) error {
	return c.Redirect(Relative(c, to), status)
}
