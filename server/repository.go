package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"millrace/config"
	"millrace/internal/backoff"
	"millrace/stream"
	"millrace/workers"
)

// loadRepository loads the models of the repository that are loaded at the start. One
// of which no version can be loaded, or a stage cannot, ends the start, unless its files may
// change or exit_on_error is off.
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
		parts, staged := s.programs.of(name)
		if (none != nil || staged && parts.app == nil) && s.cfg.Repository.Mode != config.LoadPoll && *s.cfg.Repository.Exit {
			return fmt.Errorf("model_repository: %w", errs[name])
		}
		s.unloadable(name, errs[name])
	}
	return nil
}

// loadAll loads models of the repository, and returns those that failed and why.
func (s *Server) loadAll(ctx context.Context, names []string) (left []string, errs map[string]error) {
	errs = s.models.LoadAll(ctx, names, func(name string) error { return s.syncProgram(ctx, name) })
	for _, name := range names {
		if errs[name] == nil {
			delete(s.failing, name)
		} else {
			left = append(left, name)
		}
	}
	return left, errs
}

// configured reports whether a model is one of the configuration.
func (s *Server) configured(name string) bool {
	return slices.ContainsFunc(*s.configs.Load(), func(c workers.Config) bool { return c.Name == name })
}

// maxRetry is the longest wait before a model that could not be loaded is tried again.
const maxRetry = 5 * time.Minute

// failing is a model of the repository that could not be loaded.
type failing struct {
	reason string // as logged
	waits  backoff.Backoff
	again  time.Time // when it is tried again, at the latest
}

// unloadable remembers when a model is tried again, and logs an error unless it was the
// last one of the model, too. The reason is in the index.
func (s *Server) unloadable(name string, err error) {
	f := s.failing[name]
	if f == nil {
		f = &failing{waits: backoff.Backoff{Min: s.cfg.Repository.Poll, Max: maxRetry}}
		if s.failing == nil {
			s.failing = map[string]*failing{}
		}
		s.failing[name] = f
	}
	f.again = time.Now().Add(f.waits.Next(rand.Float64()))
	if f.reason != err.Error() {
		f.reason = err.Error()
		s.log.Error("a model of the repository cannot be loaded", "model", name, "error", err)
	}
}

// retried returns the models that could not be loaded and are to be tried again now,
// besides those whose files have changed: after a wait that becomes longer each time, or
// when others have changed, which may be what they need.
func (s *Server) retried(changed []string) (names []string) {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(s.failing)) {
		f := s.failing[name]
		switch {
		case slices.Contains(changed, name):
			f.waits.Reset()
		case len(changed) > 0 || !now.Before(f.again):
			names = append(names, name)
		}
	}
	return names
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
		for _, name := range gone {
			delete(s.failing, name)
		}
		changed = slices.DeleteFunc(changed, s.configured)
		left, errs := s.loadAll(ctx, append(changed, s.retried(changed)...))
		for _, name := range left {
			if ctx.Err() == nil && !s.draining.Load() {
				s.unloadable(name, errs[name])
			}
		}
		for _, name := range gone {
			if s.configured(name) {
				continue
			}
			if err := s.models.Remove(ctx, name); err != nil && stream.CodeOf(err) != stream.NotFound && ctx.Err() == nil && !s.draining.Load() {
				s.log.Error("a model that is gone from the repository cannot be unloaded", "model", name, "error", err)
			} else if err := s.syncProgram(ctx, name); err != nil {
				s.log.Error("the stages of a program that is gone from the repository cannot be unloaded", "model", name, "error", err)
			}
		}
	}
}
