package server

import (
	"context"
	"fmt"
	"log/slog"

	"millrace/config"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/repository"
)

// loader loads the models of the configuration, of addresses and of the repository, and loads models again when their
// source or their folder changes.
type loader struct {
	log        *slog.Logger
	settings   config.Repository
	life       *lifecycle
	configured *configured
	models     *workers.Manager
	programs   *programs
	sources    *ModelSources // nil = no model has an address
	repository *repository.Repository
	polls      polls
	polled     polled // the changes of the repository
}

// openLoader opens the sources and the repository of a configuration. serve sets the rest.
func openLoader(cfg *Config, configured *configured, life *lifecycle, log *slog.Logger) (*loader, error) {
	l := &loader{log: log, settings: cfg.Repository, life: life, configured: configured,
		polls: polls{failing: map[string]string{}, refused: map[string]refusal{}, changed: make(chan struct{}, 1)}}
	var err error
	if l.sources, err = OpenModelSources(cfg, log, nil); err != nil {
		return nil, err
	}
	if l.repository, err = repository.New(repository.Options{Dir: l.sources.FolderOf(cfg),
		MaxSent: cfg.Repository.MaxSent, YAML: config.ReadModel}); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// provide lets the manager load models of the repository.
func (l *loader) provide(o *workers.ManagerOptions) { o.Repository = l.repository }

// serve sets the manager that loads the models, and the programs, whose stages follow the models.
func (l *loader) serve(models *workers.Manager, programs *programs) {
	l.models, l.programs = models, programs
}

// load loads the models of the configuration and of the repository at the start.
func (l *loader) load(ctx context.Context, models []workers.Config) error {
	order, err := workers.LoadOrder(models)
	if err != nil {
		return within("models", err)
	}
	l.sources.Fetch(ctx, models)
	for _, i := range order {
		used, err := l.define(ctx, models[i])
		if err == nil {
			_, err = l.models.Load(ctx, models[i].Name, workers.Load{})
			used(err == nil)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%w while model %s was being loaded", context.Cause(ctx), models[i].Name)
		case err != nil && l.programs.startsWithout(models[i].Name, err):
			continue
		case err != nil:
			return within(fmt.Sprintf("models[%d]", i), err)
		}
		if err := l.programs.sync(ctx, models[i].Name); err != nil { // names the stage
			return within(fmt.Sprintf("models[%d]", i), stream.Errorf(stream.CodeOf(err), "", "%w", err))
		}
	}
	return l.loadRepository(ctx)
}

// define makes a model known, with a local file in place of an address. used is that of ModelSources.Local.
func (l *loader) define(ctx context.Context, m workers.Config) (used func(loaded bool), err error) {
	local, state, used, err := l.sources.Local(ctx, m)
	if err != nil {
		return nil, err
	}
	l.sources.LogState("model", m.Name, state)
	if err := l.models.Define(local); err != nil {
		used(false)
		return nil, err
	}
	return used, nil
}

// drop removes the files of a model that was unloaded.
func (l *loader) drop(name string) { l.sources.Drop(name) }

// refresh looks for new states of sources after a change of the configuration: of models now, and of the repository
// unless the poll does.
func (l *loader) refresh(ctx context.Context) error {
	select {
	case l.polls.changed <- struct{}{}:
	default:
	}
	if l.settings.Mode == config.LoadPoll {
		return nil
	}
	_, err := l.updateRepository(ctx) // requests then load the present state of an address
	return err
}

// lookups returns the looks for states of sources, by outcome.
func (l *loader) lookups() map[string]uint64 { return l.sources.lookups() }

// close removes the files of models with addresses.
func (l *loader) close() {
	if err := l.sources.Close(); err != nil {
		l.log.Warn("the folder of fetched models was not removed", "error", err)
	}
}
