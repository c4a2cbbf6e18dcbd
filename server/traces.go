package server

import (
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/stream"
	"millrace/tracing/spans"
)

// tracesRoute lists the kept frames, the newest first; each kept frame has a route below tracesRoute.
const tracesRoute = "/v2/traces"

// maxTraces is the most frames in one answer, and tracesListed the default of the option limit.
const (
	maxTraces    = 1000
	tracesListed = 100
)

// traceWait bounds the wait for the trace of an ended frame.
const traceWait = 2 * time.Second

func (s *Server) traceRoutes(app *fiber.App) {
	app.Get(tracesRoute, func(c *fiber.Ctx) error {
		q, err := tracesQuery(c)
		if err != nil {
			return err
		}
		return c.JSON(fiber.Map{"traces": s.observe.tracer.List(q)})
	})
	app.Get(tracesRoute+"/:trace", func(c *fiber.Ctx) error {
		if err := noQuery(c); err != nil {
			return err
		}
		id := c.Params("trace")
		ctx, cancel := context.WithTimeout(c.UserContext(), traceWait)
		defer cancel()
		if kept := s.observe.tracer.Find(ctx, id); kept != nil {
			return c.JSON(kept)
		}
		return stream.Errorf(stream.NotFound, "",
			"no kept frame has the trace %.64q: the trace was not kept, or newer traces have replaced the "+
				"trace (tracing.shown)", id)
	})
}

func tracesQuery(c *fiber.Ctx) (q spans.Query, err error) {
	q.Limit = tracesListed
	c.Context().QueryArgs().VisitAll(func(k, v []byte) {
		value := string(v)
		switch key := string(k); key {
		case "model":
			q.Model = value
		case "reason":
			q.Reason = value
		case "trace":
			q.Trace = value
		case "limit":
			n, e := strconv.Atoi(value)
			if e != nil || n < 1 || n > maxTraces {
				err = stream.Errorf(stream.InvalidArgument, key, "%.64q is not a whole number between 1 and %d", value,
					maxTraces)
			}
			q.Limit = n
		default:
			err = stream.Errorf(stream.InvalidArgument, key,
				"is not an option: the options are limit, model, reason and trace")
		}
	})
	return q, err
}
