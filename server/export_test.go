package server

import "millrace/internal/processors"

// Turns returns the turns of a server's long computations.
func Turns(s *Server) *processors.Turns { return s.turns }
