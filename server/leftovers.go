package server

import (
	"context"

	"millrace/internal/child"
	"millrace/internal/scratch"
)

// namedLeftovers is how many folders or processes a line of the log names.
const namedLeftovers = 10

// removeLeftovers ends program processes and removes temporary folders that killed servers left behind. The start
// does not wait for removeLeftovers.
func (s *Server) removeLeftovers(ctx context.Context) {
	killed, err := child.KillOrphans(ctx)
	if n := len(killed); n > 0 {
		s.log.Info("killed processes of programs whose server was killed", "processes",
			killed[:min(n, namedLeftovers)], "count", n)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("not all processes of programs whose server was killed could be killed: look for them with ps",
			"error", err)
	}
	folders, err := scratch.Sweep(ctx)
	if n := len(folders); n > 0 {
		s.log.Info("removed temporary folders that no process holds: their server was killed", "folders",
			folders[:min(n, namedLeftovers)], "count", n)
	}
	if err != nil {
		s.log.Warn("not all temporary folders of servers that were killed could be removed: remove them by hand",
			"error", err)
	}
}
