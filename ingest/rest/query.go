package rest

import (
	"net/url"
	"strings"
	"unsafe"

	"github.com/gofiber/fiber/v2"
)

// readOptions reads the query.
func (k *call) readOptions(c *fiber.Ctx) (err error) {
	c.Context().QueryArgs().VisitAll(func(key, value []byte) {
		if err == nil {
			err = k.opt.Set(view(key), view(value))
		}
	})
	return err
}

// view returns b as a string without a copy: it changes with b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// pathValue returns a parameter of the route. It is in the request's memory: what is
// used after the handler must be copied.
func pathValue(c *fiber.Ctx, name string) string {
	v := c.Params(name)
	if strings.IndexByte(v, '%') >= 0 {
		if plain, err := url.PathUnescape(v); err == nil {
			return plain
		}
	}
	return v
}
