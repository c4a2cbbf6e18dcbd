package server

import (
	"millrace/compat"
	"millrace/compat/style"
	"millrace/ingest/apps"
	"millrace/ingest/grpc"
	"millrace/workers"
)

// httpStyles returns the styles for the adapter of HTTP routes.
func httpStyles() (out []*apps.Style) {
	for _, s := range compat.Styles {
		out = append(out, s.HTTP)
	}
	return out
}

// grpcStyles returns the styles for the adapter of gRPC.
func grpcStyles() (out []*grpc.Style) {
	for _, s := range compat.Styles {
		if s.GRPC != nil {
			out = append(out, s.GRPC)
		}
	}
	return out
}

// metricsStyle returns the style whose names the metrics of requests have, or nil.
func metricsStyle(c *Config) *style.Style {
	for _, s := range compat.Styles {
		if s.Metrics != nil && s.Metrics.On(c.Parts) {
			return s
		}
	}
	return nil
}

// styleOf returns the style that the configuration gives to a program, or "".
func styleOf(models []workers.Config, name string) string {
	for _, m := range models {
		if m.Name == name {
			style, _ := m.Params["style"].(string)
			return style
		}
	}
	return ""
}

// rootAccess returns the rules of credentials of the style that the configuration gives to the program at the root.
func (s *Server) rootAccess() apps.Access {
	if of := s.rootStyle(); of != nil {
		return of.HTTP.Access
	}
	return apps.Access{}
}

// rootStyle returns the style that the configuration gives to the program at the root, or nil.
func (s *Server) rootStyle() *style.Style {
	if s.cfg.Programs.Root == "" {
		return nil
	}
	return compat.Lookup(styleOf(s.cfg.Models, s.cfg.Programs.Root))
}

// answersLive returns grpc.Options.AnswersLive.
func (s *Server) answersLive() bool {
	of := s.rootStyle()
	return of != nil && of.GRPC != nil && of.GRPC.AnswersLive
}
