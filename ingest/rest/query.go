package rest

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"unsafe"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/rest/request"
	"millrace/stream"
)

// readOptions reads the query, and ignores options meant for other servers.
func (k *call) readOptions(a *Adapter, c *fiber.Ctx) (err error) {
	c.Context().QueryArgs().VisitAll(func(key, value []byte) {
		switch {
		case err != nil:
		case !slices.Contains(request.Names, view(key)):
			if a.opts.Log.Enabled(context.Background(), slog.LevelDebug) {
				a.opts.Log.Debug("a query option is ignored", "route", c.Route().Path, "option", string(key))
			}
		default:
			err = k.opt.Set(view(key), view(value))
		}
	})
	if err == nil && k.opt.Data != "" && k.opt.Outputs != request.AsRequested {
		err = stream.Errorf(stream.InvalidArgument, "data",
			"is sent with outputs=%s: the reply is either the data of one output, or a message with all of them",
			k.opt.Outputs)
	}
	return err
}

// view returns b as a string without a copy: the string changes with b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// pathValue returns a parameter of the route, in the request's memory: copy the value for use after the handler.
func pathValue(c *fiber.Ctx, name string) string {
	v := c.Params(name)
	if strings.IndexByte(v, '%') >= 0 {
		if plain, err := url.PathUnescape(v); err == nil {
			return plain
		}
	}
	return v
}
