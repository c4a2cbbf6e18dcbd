package server

import (
	"github.com/gofiber/fiber/v2"

	"millrace/client"
	"millrace/ingest/rest/request"
	"millrace/stream"
	"millrace/tracing"
)

// loggingRoute reads and changes the settings of the log: the logging extension of the Open Inference Protocol.
const loggingRoute = "/v2/logging"

// ownOption is the query option that adds this server's own settings to the answer; Triton's clients expect the
// protocol's settings alone.
const ownOption = "own"

func (s *Server) loggingRoutes(app *fiber.App) {
	app.Get(loggingRoute, func(c *fiber.Ctx) error {
		if c.QueryBool(ownOption) {
			return c.JSON(s.observe.logAnswer())
		}
		return c.JSON(s.observe.logState())
	})
	app.Post(loggingRoute, func(c *fiber.Ctx) error {
		body, err := s.readSettings(c)
		if err != nil {
			return err
		}
		change, err := request.LogChange(body)
		if err != nil {
			return err
		}
		if err := (backend{s}).ChangeLog(change); err != nil {
			return err
		}
		if _, own := change["level"]; own {
			return c.JSON(s.observe.logAnswer())
		}
		return c.JSON(s.observe.logState())
	})
}

// logging returns the current settings of the log.
func (o *observer) logging() client.Logging {
	return client.Logging{Level: tracing.LevelName(o.level.Level()), Format: o.settings.Format,
		File: o.settings.File, DebugRate: o.settings.DebugRate}
}

// SetLogLevel sets the lowest logged level: debug, info, warn or error. SetLogLevel is safe for concurrent use.
func (s *Server) SetLogLevel(name string) error { return s.observe.setLevel(name) }

// setLevel sets the lowest logged level.
func (o *observer) setLevel(name string) error {
	level, err := tracing.ParseLevel(name)
	if err != nil || name == "" {
		return stream.Errorf(stream.InvalidArgument, "level", "%.32q is not a level: want %s", name,
			"debug, info, warn or error")
	}
	o.switches.Set() // enables all levels from the lowest logged level
	before := tracing.LevelName(o.level.Level())
	if before == name {
		return nil
	}
	say := func() { o.log.Info("the log's level was changed", "from", before, "to", name) }
	if name == "debug" || name == "info" {
		o.level.Set(level)
		say()
		return nil
	}
	say() // before the new level suppresses the line
	o.level.Set(level)
	return nil
}
