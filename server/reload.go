package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/stream"
	"millrace/workers"
)

// isReloaded reports whether Reload changes a setting.
func isReloaded(path string) bool {
	return path == "hosts" || path == "origins" || path == "log.level" || strings.HasPrefix(path, "quotas.")
}

// configured is the configuration after the last Reload.
type configured struct {
	models    atomic.Pointer[[]workers.Config]
	defining  sync.Mutex // held from the check of a name of ingest.Definer to the definition
	reloading sync.Mutex // guards the fields below
	last      *Config    // of the last Reload; nil = no Reload
	refused   []string   // the models that the last Reload failed to load
}

func newConfigured(models []workers.Config) *configured {
	c := &configured{}
	c.models.Store(&models)
	return c
}

// list returns the models of the configuration.
func (c *configured) list() []workers.Config { return *c.models.Load() }

// has reports whether a model is a model of the configuration.
func (c *configured) has(name string) bool {
	return slices.ContainsFunc(c.list(), func(m workers.Config) bool { return m.Name == name })
}

// lockNames lets one caller at a time check and define the name of a model, until unlock is called.
func (c *configured) lockNames() (unlock func()) {
	c.defining.Lock()
	return c.defining.Unlock
}

// lockReload lets one caller at a time load models of the configuration again, until unlock is called.
func (c *configured) lockReload() (unlock func()) {
	c.reloading.Lock()
	return c.reloading.Unlock
}

// before returns the configuration before a Reload: the configuration of the last Reload, or the first configuration
// without the hosts that New added for tls.acme.
func (c *configured) before(first Config) *Config {
	if c.last != nil {
		return c.last
	}
	first.Hosts = first.Hosts[:len(first.Hosts)-len(first.TLS.ACME.Domains)]
	return &first
}

// replace sets the models. replace returns the previous models, and the models that the last Reload failed to load.
func (c *configured) replace(models *[]workers.Config) (before []workers.Config, again []string) {
	before, again = *c.models.Swap(models), c.refused
	c.refused = nil
	return before, again
}

// failed records a model that a Reload failed to load.
func (c *configured) failed(name string) { c.refused = append(c.refused, name) }

// applied records the configuration of a Reload.
func (c *configured) applied(cfg *Config) { c.last = cfg }

// Reload applies a new configuration to the running server. Reload changes hosts, origins, quotas and the level of
// the log; loads new and changed models and unloads removed models; adds, replaces and removes server streams (see
// streams.Adapter.Reload); and reads the files of certificates, keys and users again. Settings that need a restart
// stay unchanged, and the log names these settings. An invalid configuration changes nothing. When a model cannot be
// loaded, the previous model stays in service, and the error names the model.
func (s *Server) Reload(ctx context.Context, cfg Config) error {
	select {
	case <-s.life.ready:
	default:
		return stream.Errorf(stream.Unavailable, "", "the server has not started yet")
	}
	defer s.configured.lockReload()()
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = Replicate(cfg)
	order, err := workers.LoadOrder(cfg.Models)
	if err != nil {
		return within("models", err)
	}
	for i := range cfg.Models {
		if err := cfg.Models[i].WithDefaults().Validate(); err != nil {
			return within(fmt.Sprintf("models[%d]", i), err)
		}
	}
	if s.http != nil {
		rules, err := s.http.NewRules(slices.Concat(cfg.Hosts, cfg.TLS.ACME.Domains), cfg.Origins)
		if err != nil {
			return err
		}
		s.http.Use(rules)
	}
	if err := s.metrics.reload(slices.Concat(cfg.Hosts, cfg.TLS.ACME.Domains)); err != nil {
		return err
	}
	changed := s.configured.before(s.cfg).Changed(&cfg)
	inForce := s.cfg // limits change with a restart only
	inForce.Quotas = cfg.Quotas
	s.access.SetQuotas(inForce.ClientQuotas())
	if slices.Contains(changed, "log.level") { // otherwise keep the level set by a request
		err = s.SetLogLevel(cfg.Log.Level)
	}
	models, wrong := s.reloadModels(ctx, cfg.Models, order)
	err = errors.Join(err, s.connections.tls.reread(), wrong, s.loader.refresh(ctx))
	var streamed ingest.Changes
	if a := adapterOf[*streams.Adapter](s.listening); a != nil {
		streamed, wrong = a.Reload(cfg.Streams)
		err = errors.Join(err, wrong)
	}
	s.configured.applied(&cfg)
	s.logReload(changed, models, streamed, s.cfg.Changed(&cfg), err != nil)
	return err
}

// logReload logs the changes of a Reload. changed are the settings that differ from the previous configuration,
// started the settings that differ from the configuration at the start.
func (s *Server) logReload(changed []string, models, streamed ingest.Changes, started []string, failed bool) {
	restart := slices.DeleteFunc(started, func(path string) bool {
		return isReloaded(path) || path == "streams" && adapterOf[*streams.Adapter](s.listening) != nil
	})
	if len(restart) > 0 {
		s.log.Warn("changed settings need a restart of the server, and have no effect until then", "settings", restart)
	}
	settings := slices.DeleteFunc(changed, func(path string) bool { return !isReloaded(path) })
	text := "the configuration was read again"
	var attrs []slog.Attr
	if len(settings) > 0 {
		attrs = append(attrs, slog.Any("settings", settings))
	}
	attrs = append(attrs, models.Attr("models"), streamed.Attr("streams"))
	if len(settings) == 0 && models.Empty() && streamed.Empty() && len(restart) == 0 && !failed {
		text += ": nothing has changed"
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, text, attrs...)
}

// reloadModels changes the configured models to models, in order, and retries models that failed to load before.
func (s *Server) reloadModels(ctx context.Context, models []workers.Config,
	order []int) (did ingest.Changes, err error) {
	before, again := s.configured.replace(&models)
	named := func(list []workers.Config, name string) *workers.Config {
		if i := slices.IndexFunc(list, func(c workers.Config) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	var errs []error
	for _, i := range order {
		m := &models[i]
		old := named(before, m.Name)
		if old != nil && reflect.DeepEqual(*old, *m) && !slices.Contains(again, m.Name) {
			continue
		}
		used, err := s.loader.define(ctx, *m)
		watch := s.watched.begin(*m)
		if err == nil {
			_, err = s.models.Load(ctx, m.Name, workers.Load{})
			used(err == nil)
		}
		if err == nil {
			err = s.programs.sync(ctx, m.Name)
		}
		watch()
		switch {
		case err != nil:
			s.configured.failed(m.Name)
			errs = append(errs, within(fmt.Sprintf("models[%d]", i), err))
		case old == nil:
			did.Added = append(did.Added, m.Name)
		default:
			did.Changed = append(did.Changed, m.Name)
		}
	}
	for i := len(before) - 1; i >= 0; i-- { // remove ensembles before their models
		name := before[i].Name
		if named(models, name) != nil {
			continue
		}
		s.watched.set(name, nil)
		s.models.Forget(name)
		err := s.models.Remove(ctx, name)
		if err == nil {
			err = s.programs.sync(ctx, name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("model %s, which is gone from the configuration, cannot be unloaded: %w",
				name, err))
			continue
		}
		s.loader.drop(name)
		did.Removed = append(did.Removed, name)
	}
	return did, errors.Join(errs...)
}
