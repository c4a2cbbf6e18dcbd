package httpd

import (
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Relative returns a reference to a path of the server, such as /console/, relative to the path of the request (RFC
// 3986, 4.2). A client resolves the reference against the address of its own request, so the reference is right even
// behind a proxy that removes a path prefix. The reference begins with ./ or ../, and has no scheme, so that no
// client takes the reference for the address of another host.
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
