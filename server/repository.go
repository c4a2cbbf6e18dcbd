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
func (l *loader) loadRepository(ctx context.Context) error {
	if _, err := l.updateRepository(ctx); err != nil {
		return err
	}
	l.polled.changes.Repository = l.repository
	all, err := l.polled.changes.Take()
	if err != nil {
		return err
	}
	names := all
	if l.settings.Mode == config.LoadExplicit {
		names = l.settings.Load
		if slices.Contains(names, "*") {
			names = all
		}
	}
	var left []string
	for _, name := range names {
		if !l.configured.has(name) {
			left = append(left, name)
		} else if slices.Contains(all, name) {
			l.log.Warn("a model of the repository is not loaded: the configuration has a model of this name", "model",
				name)
		}
	}
	left, errs := l.loadAll(ctx, left)
	for _, name := range left {
		_, none := l.models.Group(name, "")
		parts, staged := l.programs.of(name)
		if (none != nil || staged && parts.app == nil) && l.settings.Mode != config.LoadPoll &&
			*l.settings.Exit {
			return fmt.Errorf("model_repository: %w", errs[name])
		}
		l.unloadable(name, errs[name])
	}
	return nil
}

// loadAll loads models of the repository, and returns the failed models with their errors.
func (l *loader) loadAll(ctx context.Context, names []string) (left []string, errs map[string]error) {
	errs = l.models.LoadAll(ctx, names, func(name string) error { return l.programs.sync(ctx, name) })
	for _, name := range names {
		if errs[name] == nil {
			delete(l.polled.failing, name)
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
func (l *loader) unloadable(name string, err error) {
	if l.polled.failed(name, err, l.settings.Poll) {
		l.log.Error("a model of the repository cannot be loaded", "model", name, "error", err)
	}
}

// look returns the models of the repository with changed folders, and the models whose folders are gone.
func (l *loader) look(ctx context.Context) (changed, gone []string, err error) {
	fetched, failed := l.updateRepository(ctx)
	changed, gone, err = l.polled.changes.Look()
	if fetched && err == nil { // the folders are complete, and do not change before the next fetch
		more, left, again := l.polled.changes.Look()
		changed, gone, err = append(changed, more...), append(gone, left...), again
	}
	if ctx.Err() != nil || failed == nil {
		l.polled.lookFailed = ""
	} else if text := failed.Error(); text != l.polled.lookFailed {
		l.polled.lookFailed = text
		l.log.Error("a new state of the model repository cannot be fetched: its models stay as they are", "error",
			failed)
	}
	return changed, gone, err
}

// poll loads and unloads models as the repository changes, until ctx ends, with the mode poll.
func (l *loader) poll(ctx context.Context) {
	if l.settings.Mode != config.LoadPoll {
		return
	}
	tick := time.NewTicker(l.settings.Poll)
	defer tick.Stop()
	unlisted := false // the last look failed
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, gone, err := l.look(ctx)
		if err != nil {
			if !unlisted {
				l.log.Error("the model repository cannot be listed: its models stay as they are", "error", err)
			}
			unlisted = true
			continue
		}
		unlisted = false
		for _, name := range gone {
			delete(l.polled.failing, name)
		}
		changed = slices.DeleteFunc(changed, l.configured.has)
		left, errs := l.loadAll(ctx, append(changed, l.polled.retried(changed)...))
		for _, name := range left {
			if ctx.Err() == nil && !l.life.isDraining() {
				l.unloadable(name, errs[name])
			}
		}
		for _, name := range gone {
			if l.configured.has(name) {
				continue
			}
			if err := l.models.Remove(ctx, name); err != nil && stream.CodeOf(err) != stream.NotFound &&
				ctx.Err() == nil && !l.life.isDraining() {
				l.log.Error("a model that is gone from the repository cannot be unloaded", "model", name, "error", err)
			} else if err := l.programs.sync(ctx, name); err != nil {
				l.log.Error("the stages of a program that is gone from the repository cannot be unloaded", "model",
					name, "error", err)
			}
		}
	}
}
