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
	"millrace/workers/repository"
)

// loadRepository loads the repository's models that must be loaded at the start. A model fails the start when none of
// its versions or one of its stages cannot be loaded, unless its files may change or exit_on_error is off.
func (s *Server) loadRepository(ctx context.Context) error {
	if _, err := s.updateRepository(ctx); err != nil {
		return err
	}
	s.polled.changes.Repository = s.repository
	all, err := s.polled.changes.Take()
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
		if !s.configured.has(name) {
			left = append(left, name)
		} else if slices.Contains(all, name) {
			s.log.Warn("a model of the repository is not loaded: one of the configuration has its name", "model", name)
		}
	}
	left, errs := s.loadAll(ctx, left)
	for _, name := range left {
		_, none := s.models.Group(name, "")
		parts, staged := s.programs.of(name)
		if (none != nil || staged && parts.app == nil) && s.cfg.Repository.Mode != config.LoadPoll &&
			*s.cfg.Repository.Exit {
			return fmt.Errorf("model_repository: %w", errs[name])
		}
		s.unloadable(name, errs[name])
	}
	return nil
}

// loadAll loads models of the repository, and returns the failed models with their errors.
func (s *Server) loadAll(ctx context.Context, names []string) (left []string, errs map[string]error) {
	errs = s.models.LoadAll(ctx, names, func(name string) error { return s.syncProgram(ctx, name) })
	for _, name := range names {
		if errs[name] == nil {
			delete(s.polled.failing, name)
		} else {
			left = append(left, name)
		}
	}
	return left, errs
}

// maxRetry is the longest wait before the next attempt to load a failed model.
const maxRetry = 5 * time.Minute

// failing is a model of the repository with a failed load.
type failing struct {
	reason      string // as logged
	waits       backoff.Backoff
	nextAttempt time.Time // latest time of the next attempt
}

// polled is the state of the repository's folder at the last look. polled is not safe for concurrent use.
type polled struct {
	changes repository.Changes
	failing map[string]*failing // models with a failed load

	lookFailed string // the last error of the repository's address; "" = none
}

// failed sets when a model is tried again, at least least from now. failed reports whether the error differs from the
// last error of the model.
func (p *polled) failed(name string, err error, least time.Duration) (differs bool) {
	f := p.failing[name]
	if f == nil {
		f = &failing{waits: backoff.Backoff{Min: least, Max: maxRetry}}
		if p.failing == nil {
			p.failing = map[string]*failing{}
		}
		p.failing[name] = f
	}
	f.nextAttempt = time.Now().Add(f.waits.Next(rand.Float64()))
	differs = f.reason != err.Error()
	f.reason = err.Error()
	return differs
}

// retried returns the failed models to load again now, in addition to the models with changed files: after a wait
// that grows with each attempt, or when other models have changed, because a failed model may need these.
func (p *polled) retried(changed []string) (names []string) {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(p.failing)) {
		f := p.failing[name]
		switch {
		case slices.Contains(changed, name):
			f.waits.Reset()
		case len(changed) > 0 || !now.Before(f.nextAttempt):
			names = append(names, name)
		}
	}
	return names
}

// unloadable schedules the next attempt to load a model, and logs an error that differs from the model's previous
// error. The index has the reason.
func (s *Server) unloadable(name string, err error) {
	if s.polled.failed(name, err, s.cfg.Repository.Poll) {
		s.log.Error("a model of the repository cannot be loaded", "model", name, "error", err)
	}
}

// look returns the models of the repository with changed folders, and the models whose folders are gone.
func (s *Server) look(ctx context.Context) (changed, gone []string, err error) {
	fetched, failed := s.updateRepository(ctx)
	changed, gone, err = s.polled.changes.Look()
	if fetched && err == nil { // the folders are complete, and do not change before the next fetch
		more, left, again := s.polled.changes.Look()
		changed, gone, err = append(changed, more...), append(gone, left...), again
	}
	if ctx.Err() != nil || failed == nil {
		s.polled.lookFailed = ""
	} else if text := failed.Error(); text != s.polled.lookFailed {
		s.polled.lookFailed = text
		s.log.Error("a new state of the model repository cannot be fetched: its models stay as they are", "error",
			failed)
	}
	return changed, gone, err
}

// poll loads and unloads models as the repository changes, until ctx ends.
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
		changed, gone, err := s.look(ctx)
		if err != nil {
			if !unlisted {
				s.log.Error("the model repository cannot be listed: its models stay as they are", "error", err)
			}
			unlisted = true
			continue
		}
		unlisted = false
		for _, name := range gone {
			delete(s.polled.failing, name)
		}
		changed = slices.DeleteFunc(changed, s.configured.has)
		left, errs := s.loadAll(ctx, append(changed, s.polled.retried(changed)...))
		for _, name := range left {
			if ctx.Err() == nil && !s.life.draining.Load() {
				s.unloadable(name, errs[name])
			}
		}
		for _, name := range gone {
			if s.configured.has(name) {
				continue
			}
			if err := s.models.Remove(ctx, name); err != nil && stream.CodeOf(err) != stream.NotFound &&
				ctx.Err() == nil && !s.life.draining.Load() {
				s.log.Error("a model that is gone from the repository cannot be unloaded", "model", name, "error", err)
			} else if err := s.syncProgram(ctx, name); err != nil {
				s.log.Error("the stages of a program that is gone from the repository cannot be unloaded", "model",
					name, "error", err)
			}
		}
	}
}
