package streams

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/coded"
)

// Reload makes list the configured streams while the server runs. Reload removes streams missing in list, adds new
// streams and streams removed by requests, and changes streams in place whose settings differ from the previous
// configuration. All other streams go on, including streams of requests. list must be valid. An error names the
// failed entries; all other entries take effect.
func (a *Adapter) Reload(list []Config) (did ingest.Changes, err error) {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	before := a.configured()
	a.mu.Lock()
	a.opts.Streams = list
	a.mu.Unlock()
	a.opts.Store.setConfigured(list)
	for _, c := range before {
		if named(list, c.Name) != nil {
			continue
		}
		if f, err := a.find(c.Name); err == nil && f.origin == "config" {
			f.forget.Store(true)
			a.remove(f)
			did.Removed = append(did.Removed, c.Name)
		}
	}
	var errs []error
	for i, c := range list {
		f, err := a.find(c.Name)
		to := &did.Changed
		switch {
		case err != nil:
			to, err = &did.Added, a.add(c, "config", nil)
		case f.origin != "config":
			err = stream.Errorf(stream.Conflict, "name",
				"%q is the name of a stream that a request has added: remove that one, or choose another name", c.Name)
		default:
			if old := named(before, c.Name); old != nil && reflect.DeepEqual(*old, c) {
				continue
			}
			err = a.reconfigure(f, c)
		}
		if err != nil {
			errs = append(errs, coded.PrefixField(fmt.Sprintf("streams[%d]", i), err))
			continue
		}
		*to = append(*to, c.Name)
	}
	return did, errors.Join(errs...)
}

// reset restores a stream to the configuration, even after a request has removed the stream.
func (a *Adapter) reset(name string) (*runner, error) {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	c := named(a.configured(), name)
	f, err := a.find(name)
	switch {
	case c == nil && err == nil:
		return nil, stream.Errorf(stream.Conflict, "",
			"%q was added by a request, and has no settings of the configuration to go back to", name)
	case c == nil:
		return nil, stream.Errorf(stream.NotFound, "", "no stream of the configuration has the name %.140q", name)
	case err == nil && f.origin != "config":
		return nil, nameConflict(name)
	case err == nil:
		err = a.reconfigure(f, *c)
	default:
		err = a.add(*c, "config", nil)
	}
	if err != nil {
		return nil, err
	}
	return a.find(name)
}

// reconfigure changes a stream to its settings in the configuration.
func (a *Adapter) reconfigure(f *runner, c Config) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	_, err := a.apply(f, c, false)
	if err == nil {
		a.opts.Log.Info("a stream has the settings of the configuration", "stream", f.name)
	}
	return err
}

// configured returns the streams of the configuration.
func (a *Adapter) configured() []Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opts.Streams
}

func named(list []Config, name string) *Config {
	if i := slices.IndexFunc(list, func(c Config) bool { return c.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}
