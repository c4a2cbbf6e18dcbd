package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/config"
	"millrace/stream"
	"millrace/workers"
)

// loadRepository loads the models of the repository that are loaded at the start. One
// that cannot be loaded ends the start, unless its files may change or exit_on_error is off.
func (s *Server) loadRepository(ctx context.Context) error {
	s.changes.Repository = s.repository
	all := s.changes.Take()
	names := all
	if s.cfg.Repository.Mode == config.LoadExplicit {
		names = s.cfg.Repository.Load
		if slices.Contains(names, "*") {
			names = all
		}
	}
	var left []string
	for _, name := range names {
		if !s.configured(name) {
			left = append(left, name)
		} else if slices.Contains(all, name) {
			s.log.Warn("a model of the repository is not loaded: one of the configuration has its name", "model", name)
		}
	}
	// A graph can be loaded after the models that it is made of: those that fail are tried
	// again as long as others succeed.
	for loaded := true; loaded && len(left) > 0; {
		errs := map[string]error{}
		for _, name := range left {
			if _, err := s.models.Load(ctx, name, workers.Load{}); err != nil {
				errs[name] = err
			}
		}
		loaded = len(errs) < len(left)
		left = slices.DeleteFunc(left, func(name string) bool { return errs[name] == nil })
		if loaded {
			continue
		}
		for _, name := range left {
			if s.cfg.Repository.Mode != config.LoadPoll && *s.cfg.Repository.Exit {
				return fmt.Errorf("model_repository: %w", errs[name])
			}
			s.logUnloadable(name, errs[name])
		}
	}
	return nil
}

// configured reports whether a model is one of the configuration.
func (s *Server) configured(name string) bool {
	return slices.ContainsFunc(s.cfg.Models, func(c workers.Config) bool { return c.Name == name })
}

// logUnloadable logs an error whose reason is in the index, too.
func (s *Server) logUnloadable(name string, err error) {
	s.log.Error("a model of the repository cannot be loaded", "model", name, "error", err)
}

// poll looks for changes of the repository, and loads and unloads its models, until ctx
// ends.
func (s *Server) poll(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Repository.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, gone := s.changes.Look()
		for _, name := range changed {
			if s.configured(name) {
				continue
			}
			if _, err := s.models.Load(ctx, name, workers.Load{}); err != nil && ctx.Err() == nil && !s.draining.Load() {
				s.logUnloadable(name, err)
			}
		}
		for _, name := range gone {
			if s.configured(name) {
				continue
			}
			if err := s.models.Remove(ctx, name); err != nil && stream.CodeOf(err) != stream.NotFound && ctx.Err() == nil && !s.draining.Load() {
				s.log.Error("a model that is gone from the repository cannot be unloaded", "model", name, "error", err)
			}
		}
	}
}
