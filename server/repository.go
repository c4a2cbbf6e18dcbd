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
// of which no version can be loaded ends the start, unless its files may change or
// exit_on_error is off.
func (s *Server) loadRepository(ctx context.Context) error {
	s.changes.Repository = s.repository
	all, err := s.changes.Take()
	if err != nil {
		return err
	}
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
	left, errs := s.loadAll(ctx, left)
	for _, name := range left {
		_, none := s.models.Group(name, "")
		if none != nil && s.cfg.Repository.Mode != config.LoadPoll && *s.cfg.Repository.Exit {
			return fmt.Errorf("model_repository: %w", errs[name])
		}
		s.unloadable(name, errs[name])
	}
	return nil
}

// loadAll loads models of the repository, and returns those that failed and why.
func (s *Server) loadAll(ctx context.Context, names []string) (left []string, errs map[string]error) {
	errs = s.models.LoadAll(ctx, names)
	for _, name := range names {
		if errs[name] == nil {
			delete(s.reasons, name)
		} else {
			left = append(left, name)
		}
	}
	return left, errs
}

// configured reports whether a model is one of the configuration.
func (s *Server) configured(name string) bool {
	return slices.ContainsFunc(s.cfg.Models, func(c workers.Config) bool { return c.Name == name })
}

// unloadable makes the next look try a model again, and logs an error unless it was the
// last one of the model, too. The reason is in the index.
func (s *Server) unloadable(name string, err error) {
	s.changes.Retry(name)
	if s.reasons[name] == err.Error() {
		return
	}
	if s.reasons == nil {
		s.reasons = map[string]string{}
	}
	s.reasons[name] = err.Error()
	s.log.Error("a model of the repository cannot be loaded", "model", name, "error", err)
}

// poll looks for changes of the repository, and loads and unloads its models, until ctx
// ends.
func (s *Server) poll(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Repository.Poll)
	defer tick.Stop()
	unlisted := false // the last look failed
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, gone, err := s.changes.Look()
		if err != nil {
			if !unlisted {
				s.log.Error("the model repository cannot be listed: its models stay as they are", "error", err)
			}
			unlisted = true
			continue
		}
		unlisted = false
		left, errs := s.loadAll(ctx, slices.DeleteFunc(changed, s.configured))
		for _, name := range left {
			if ctx.Err() == nil && !s.draining.Load() {
				s.unloadable(name, errs[name])
			}
		}
		for _, name := range gone {
			delete(s.reasons, name)
			if s.configured(name) {
				continue
			}
			if err := s.models.Remove(ctx, name); err != nil && stream.CodeOf(err) != stream.NotFound && ctx.Err() == nil && !s.draining.Load() {
				s.log.Error("a model that is gone from the repository cannot be unloaded", "model", name, "error", err)
			}
		}
	}
}
