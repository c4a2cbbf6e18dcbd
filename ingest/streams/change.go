package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
)

// publicParts says which parts of a stream may use only public addresses because a request made the part. Each sink
// has its own flag.
type publicParts struct{ source bool }

// errOver means that the video has ended, so a change needs new goroutines.
var errOver = errors.New("the video has ended")

// change changes a running stream and its stored copy. The store receives changes in the order in which the stream
// applies the changes.
func (a *Adapter) change(f *runner, object map[string]any, client *stream.Account) (*runner, error) {
	f.changing.Lock()
	defer f.changing.Unlock()
	before := f.settings()
	next, err := before.changed(object)
	if err == nil {
		err = a.mayChange(f, before, next, object)
	}
	if err != nil {
		return f, err
	}
	undo, err := a.makeFile(f.openSinks(), next, client)
	if err != nil {
		return f, err
	}
	if f, err = a.apply(f, next, true); err != nil {
		undo()
		return f, err
	}
	a.opts.Log.Info("a stream was changed", "stream", f.name, "change", changeText(object))
	if err := a.opts.Store.change(f.stored, next); err != nil {
		return f, stream.Errorf(stream.CodeOf(err), "",
			"the stream was changed, but the change could not be stored for the next start of the server: %w", err)
	}
	return f, nil
}

// mayChange returns an error if a request may not make the changes in object, which lead from before to next.
func (a *Adapter) mayChange(f *runner, before, next Config, object map[string]any) error {
	if before.Source != next.Source {
		if err := a.mayRead(next); err != nil {
			return err
		}
	} else if !reflect.DeepEqual(before.Settings, next.Settings) {
		f.mu.Lock()
		public := f.public.source
		f.mu.Unlock()
		if err := next.settings().Validate(next.Source, public); err != nil {
			return err
		}
	}
	if err := a.maySend(before.Sinks, next); err != nil {
		return err
	}
	if !reflect.DeepEqual(before.Rules, next.Rules) || !sameModels(before, next) {
		if err := a.checkRules(next); err != nil {
			return err
		}
	}
	if err := a.checkClips(next); err != nil {
		return err
	}
	had := before.models()
	for _, m := range next.models() {
		if slices.ContainsFunc(had, func(o ModelConfig) bool { return o.Model == m.Model && o.Version == m.Version }) {
			continue
		}
		model, _, err := a.backend.Models().Model(m.Model, m.Version)
		if err == nil {
			err = takesPictures(m.Model, model)
		}
		if err != nil {
			text := err.Error()
			if own := new(stream.Error); errors.As(err, &own) {
				text = own.Msg
			}
			return stream.Errorf(stream.CodeOf(err), modelField(object, m.Model), "%s: the stream keeps %s", text,
				before.modelNames())
		}
	}
	return nil
}

// modelField returns the request field that names the model.
func modelField(object map[string]any, model string) string {
	entries, _ := object["models"].([]any)
	for i, v := range entries {
		if entry, _ := v.(map[string]any); entry["model"] == model {
			return fmt.Sprintf("models[%d].model", i)
		}
	}
	return "model"
}

// takesPictures returns an error if a model does not accept the frames of a source.
func takesPictures(name string, m *stream.Model) error {
	if m.Image == nil && !m.AcceptsAnyInput {
		return stream.Errorf(stream.Unsupported, "model", "model %s takes tensors, not pictures", name)
	}
	return nil
}

// changeText returns the keys of a change, sorted, with their values in JSON, without secrets.
func changeText(object map[string]any) string {
	parts := make([]string, 0, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if key == "source" || key == "sinks" { // may contain passwords
			parts = append(parts, key)
			continue
		}
		value, err := json.Marshal(object[key])
		if err != nil { // the value came as JSON
			value = []byte(err.Error())
		}
		parts = append(parts, key+"="+string(value))
	}
	return strings.Join(parts, " ")
}

// apply makes next the settings of a stream. A change of anything but the policies restarts a stream whose video has
// ended; apply then returns the new runner.
func (a *Adapter) apply(f *runner, next Config, byRequest bool) (*runner, error) {
	err := f.apply(next, byRequest)
	if err != errOver {
		return f, err
	}
	by := f.origins(next, byRequest)
	f.cancel()
	<-f.done
	if err := a.addBy(next, f.origin, f.stored, by); err != nil {
		return f, err
	}
	return a.find(next.Name)
}

// origins returns the origins of a stream's parts after a change: unchanged parts keep their origin.
func (f *runner) origins(next Config, byRequest bool) origins {
	f.mu.Lock()
	defer f.mu.Unlock()
	return origins{f.publicSource(next, byRequest), func(k sinks.Settings) sinkOrigin {
		return f.originOf(k, f.a.sinkOrigin(byRequest))
	}}
}

// sinkOrigin returns the origin of the parts changed by a request or by the configuration.
func (a *Adapter) sinkOrigin(byRequest bool) sinkOrigin {
	return sinkOrigin{byRequest, byRequest && !a.opts.AllowPrivate}
}

// publicSource reports whether the source of changed settings may have public addresses only. f.mu is held.
func (f *runner) publicSource(next Config, byRequest bool) bool {
	if byRequest && f.now.Source == next.Source {
		return f.public.source // only settings of the source differ, if anything does
	}
	return f.a.sinkOrigin(byRequest).public
}

// originOf returns the origin of a sink's target: the origin of a present sink with the same target, else by. f.mu is
// held.
func (f *runner) originOf(k sinks.Settings, by sinkOrigin) sinkOrigin {
	i := slices.IndexFunc(f.sinks, func(o openSink) bool {
		return sameType(o.settings, k) && target(o.settings) == target(k)
	})
	if i >= 0 && by.request {
		return f.sinks[i].origin
	}
	return by
}

// apply makes next the settings of a running stream. Unchanged parts go on.
func (f *runner) apply(next Config, byRequest bool) error {
	defer f.resize()
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.now
	source := before.Source != next.Source || !reflect.DeepEqual(before.Settings, next.Settings)
	packets := before.Clips.Enabled() != next.Clips.Enabled() && f.clips != nil
	again := source || before.FPS != next.FPS || before.Loop != next.Loop || packets
	if f.over && (again || !sameModels(before, next) || !reflect.DeepEqual(before.Sinks, next.Sinks)) {
		return errOver
	}
	if err := f.mayLeave(before, next); err != nil {
		return err
	}
	f.public.source = f.publicSource(next, byRequest)
	f.now = next
	f.applyRules(before, next)
	f.clips.Set(next.Clips, next.modelList())
	f.applyModels(next.models())
	f.applySinks(next.Sinks, f.a.sinkOrigin(byRequest))
	if again {
		f.replaceReading()
	}
	f.countMu.Lock()
	all := slices.Concat(f.consumers, f.leaving) // the source may wait for a leaving model
	f.countMu.Unlock()
	for _, c := range all {
		switch {
		case c.feed == nil:
		case next.Paused && !before.Paused:
			c.feed.stream.Pause()
		case before.Paused && !next.Paused:
			c.feed.stream.Resume()
		}
	}
	return nil
}

// mayLeave returns an error if too many removed models are still leaving. A removed model keeps memory until its
// frames are answered; in a pause, not before the stream is resumed. f.mu is held.
func (f *runner) mayLeave(before, next Config) error {
	f.countMu.Lock()
	defer f.countMu.Unlock()
	if sameModels(before, next) || len(f.leaving) < maxLeaving {
		return nil
	}
	return stream.Errorf(stream.Conflict, "model", "%d models that were removed have frames that wait: resume the "+
		"stream if it is paused, and wait until they are answered", len(f.leaving))
}

// sameModels reports whether two configurations have the same models, in the same modes.
func sameModels(a, b Config) bool {
	return slices.EqualFunc(a.models(), b.models(), ModelConfig.sameSettings)
}

// sameSettings reports whether a model goes on with the settings of another entry.
func (m ModelConfig) sameSettings(o ModelConfig) bool {
	return m.Model == o.Model && m.Version == o.Version && m.Policy.Mode == o.Policy.Mode
}

// applyModels makes list the models. New models replace the removed models as soon as the new models are open or have
// failed to open. f.mu is held.
func (f *runner) applyModels(list []ModelConfig) {
	removed := slices.Clone(f.consumers)
	var next, added []*consumer
	for _, m := range list {
		i := slices.IndexFunc(removed, func(c *consumer) bool { return c.sameSettings(m) })
		if i < 0 {
			c := f.newConsumer(m)
			next, added = append(next, c), append(added, c)
			continue
		}
		c := removed[i]
		removed = slices.Delete(removed, i, i+1)
		c.Policy = m.Policy
		if c.feed != nil {
			_ = c.feed.stream.Replace(m.Policy) // the policy is valid and has the same mode
		}
		next = append(next, c)
	}
	f.countMu.Lock()
	f.consumers = next
	f.leaving = slices.Concat(f.leaving, removed)
	f.queue.resize(queueLen(len(next) + len(f.leaving)))
	f.countMu.Unlock()
	f.preview.setSeveral(len(next) > 1)
	for _, o := range removed {
		if len(added) == 0 {
			o.end()
			o.endFollowed()
			continue
		}
		by := added[len(added)-1]
		if i := slices.IndexFunc(added, func(c *consumer) bool { return c.Model == o.Model }); i >= 0 {
			by = added[i]
			by.preview, by.rules = o.preview, o.rules // keeps the watchers and the counts
		}
		by.replaces = append(append(by.replaces, o), o.replaces...)
		o.replaces = nil
	}
	for _, c := range added {
		if f.started {
			f.startConsumer(c)
		}
	}
}

// applySinks makes list the sinks. Unchanged sinks stay open. f.writing and f.mu are held.
func (f *runner) applySinks(list []sinks.Settings, by sinkOrigin) {
	removed := slices.Clone(f.sinks)
	var next []openSink
	for _, k := range list {
		i := slices.IndexFunc(removed, func(o openSink) bool { return sameType(o.settings, k) })
		if i >= 0 && reflect.DeepEqual(removed[i].settings, k) {
			next = append(next, removed[i])
			removed = slices.Delete(removed, i, i+1)
			continue
		}
		var earlier sinks.Sink
		if i >= 0 && f.started {
			earlier = removed[i].Sink
		}
		s := f.openSink(k, f.originOf(k, by), earlier)
		next = append(next, s)
		if f.started {
			f.startSink(s)
		}
	}
	f.sinks = next
	f.unfollow()
	for _, o := range removed {
		announced := func(k sinks.Settings) string { return sinks.Announces(k, f.name) }
		o.removed.Store(!slices.ContainsFunc(list, func(k sinks.Settings) bool {
			return announced(k) == announced(o.settings)
		}))
		o.Close()
		if f.started {
			o.cancel() // the sink has two more seconds
		}
	}
}

// target returns the target of a sink: the value of the setting that turns the sink on.
func target(k sinks.Settings) string {
	f, _ := setting.TableOf("", k).Find(sinks.KindOf(k).Name)
	return f.String()
}

// mayRead returns an error if a request may not name the source of c. mayRead checks the form of the source and,
// where only public addresses are allowed, the present addresses of the host.
func (a *Adapter) mayRead(c Config) error {
	public := a.sinkOrigin(true).public
	err := sources.Check("source", c.Source)
	if err == nil {
		err = c.settings().Validate(c.Source, public)
	}
	if err == nil && public {
		err = publicHost(a.ctx, "source", c.Source)
	}
	return err
}

// maySend returns an error if a request may not name the sinks of c, apart from the sinks in before.
func (a *Adapter) maySend(before []sinks.Settings, c Config) error {
	if !a.sinkOrigin(true).public {
		return nil
	}
	for _, k := range c.Sinks {
		kind := sinks.KindOf(k)
		to := target(k)
		if !kind.Remote || slices.ContainsFunc(before, func(o sinks.Settings) bool {
			return sameType(o, k) && target(o) == to
		}) {
			continue
		}
		if err := publicHost(a.ctx, "sinks."+kind.Name, to); err != nil {
			return err
		}
	}
	return nil
}

// mayWrite returns an error if a stream of a request may not write its file. The server may have stored the stream
// earlier under other settings, or a person may have edited streams_file.
func (a *Adapter) mayWrite(c Config) error {
	for _, k := range c.Sinks {
		if f, ok := setting.Filled(k).(*sinks.File); ok {
			return a.opts.Files.Check(f)
		}
	}
	return nil
}

// makeFile makes the file of a sink that a request names, unless the file is open already. undo removes the new file.
func (a *Adapter) makeFile(open []openSink, c Config, client *stream.Account) (undo func(), err error) {
	for _, k := range c.Sinks {
		f, ok := setting.Filled(k).(*sinks.File)
		if !ok {
			continue
		}
		has := false
		if i := slices.IndexFunc(open, func(o openSink) bool {
			return sameType(o.settings, k) && target(o.settings) == f.Path
		}); i >= 0 {
			switch {
			case reflect.DeepEqual(open[i].settings, k):
				return func() {}, nil
			case !open[i].origin.request:
				return nil, stream.Errorf(stream.PermissionDenied, "sinks.max_size",
					"is that of a file that the configuration names, and only the configuration can change it")
			}
			has = true
		}
		return a.opts.Files.Make(f, client, has)
	}
	return func() {}, nil
}
