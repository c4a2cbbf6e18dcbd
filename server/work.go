package server

import (
	"context"

	"millrace/ingest/tasks"
	durable "millrace/tasks"
)

// Work says how a server runs tasks of another host.
type Work = tasks.RunOptions

// Work runs tasks of a source on the models of the server until ctx ends, and then ends as tasks.Consumer does. The
// server needs the address http, or Config.Inside. Work may be called once Ready is closed.
func (s *Server) Work(ctx context.Context, from durable.Source, w Work) {
	w.Log, w.Media, w.Tracer = s.log, s.taskMedia(), s.observe.tasks()
	s.http.App.Handler() // builds the tree of the routes, also without an address
	tasks.Run(ctx, s.http, s.gate, from, w)
}

// taskMedia says how tasks read videos and pictures.
func (s *Server) taskMedia() tasks.Media {
	hardware, sandboxed := s.children.decoding()
	return tasks.Media{Limits: s.cfg.Limits, Hardware: hardware, Sandbox: sandboxed,
		AllowPrivate: s.cfg.Sources.AllowPrivate}
}
