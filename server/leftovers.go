package server

import (
	"context"

	"millrace/internal/scratch"
)

// namedLeftovers is how many folders a line of the log names.
const namedLeftovers = 10

// removeLeftovers removes temporary folders of processes that were killed. The start does not wait for it.
func (s *Server) removeLeftovers(ctx context.Context) {
	folders, err := scratch.Sweep(ctx)
	if n := len(folders); n > 0 {
		s.log.Info("removed temporary folders that no process holds: their server was killed", "folders", folders[:min(n, namedLeftovers)], "count", n)
	}
	if err != nil {
		s.log.Warn("not all temporary folders of servers that were killed could be removed: remove them by hand", "error", err)
	}
}
