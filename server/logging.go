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
			return c.JSON(s.logAnswer())
		}
		return c.JSON(s.logState())
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
			return c.JSON(s.logAnswer())
		}
		return c.JSON(s.logState())
	})
}

// logging returns the current settings of the log.
func (s *Server) logging() client.Logging {
	return client.Logging{Level: tracing.LevelName(s.observe.level.Level()), Format: s.cfg.Log.Format,
		File: s.cfg.Log.File, DebugRate: s.cfg.Log.DebugRate}
}

// SetLogLevel sets the lowest logged level: debug, info, warn or error. SetLogLevel is safe for concurrent use.
func (s *Server) SetLogLevel(name string) error {
	level, err := tracing.ParseLevel(name)
	if err != nil || name == "" {
		return stream.Errorf(stream.InvalidArgument, "level", "%.32q is not a level: want %s", name,
			"debug, info, warn or error")
	}
	s.observe.switches.Set() // enables all levels from the lowest logged level
	before := tracing.LevelName(s.observe.level.Level())
	if before == name {
		return nil
	}
	say := func() { s.log.Info("the log's level was changed", "from", before, "to", name) }
	if name == "debug" || name == "info" {
		s.observe.level.Set(level)
		say()
		return nil
	}
	say() // before the new level suppresses the line
	s.observe.level.Set(level)
	return nil
}
