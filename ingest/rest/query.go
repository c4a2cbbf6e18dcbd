package rest

import (
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/rest/request"
)

// readOptions reads the query.
func readOptions(c *fiber.Ctx) (o request.Options, err error) {
	args := c.Context().QueryArgs()
	if args.Len() == 0 {
		return o, nil
	}
	args.VisitAll(func(k, v []byte) {
		if err == nil {
			err = o.Set(string(k), string(v))
		}
	})
	return o, err
}

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
