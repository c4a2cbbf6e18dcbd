package server

import (
	"log/slog"

	"github.com/gofiber/fiber/v2"

	"millrace/stream"
	"millrace/workers"
)

// observer joins the server's hooks to metrics and logs.
type observer struct {
	log *slog.Logger
}

func newObserver(*Server) *observer { return &observer{log: slog.Default()} }

func (o *observer) model(*stream.Model) workers.Hooks { return workers.Hooks{} }

func (o *observer) routes(*fiber.App) {}

func (o *observer) close() {}
