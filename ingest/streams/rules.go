package streams

import (
	"reflect"

	"millrace/stream"
	"millrace/stream/coded"
	"millrace/stream/rules"
)

// rules returns the rules of the stream. Later changes of c leave the rules unchanged.
func (c *Config) rules() *rules.Rules {
	r := c.Rules
	return &r
}

// checkRules returns an error for rules if models of the stream are loaded, and none has tracks, or none has a class
// of a rule.
func (a *Adapter) checkRules(c Config) error {
	if c.Rules.Empty() {
		return nil
	}
	loaded, missing := false, false
	var classes [][]string
	for _, m := range c.models() {
		model, _, err := a.backend.Models().Model(m.Model, m.Version)
		if err == nil && model.AppliesRules {
			classes = append(classes, model.Classes)
		}
		loaded, missing = loaded || err == nil, missing || err != nil
	}
	switch {
	case len(classes) > 0 && !missing:
		return coded.PrefixField("rules", c.Rules.CheckClasses(classes...))
	case len(classes) > 0 || !loaded:
		return nil
	}
	return stream.Errorf(stream.InvalidArgument, "rules",
		"need objects with ids, and %s has none: set output.track of a model, or leave the rules out", c.modelNames())
}

// applyRules makes the rules of next the rules of all models. A model that was opened without rules, and has no
// tracks, is opened again, which names the error. f.mu is held.
func (f *runner) applyRules(before, next Config) {
	if reflect.DeepEqual(before.Rules, next.Rules) {
		return
	}
	for _, c := range f.consumers {
		c.rules.Set(next.rules())
		if c.feed != nil && !next.Rules.Empty() && c.feed.stream.Rules() != nil &&
			!c.feed.stream.Model().AppliesRules {
			c.feed.cancel()
		}
	}
}
