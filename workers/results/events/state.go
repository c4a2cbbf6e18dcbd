package events

import (
	"encoding/json"
	"fmt"
	"slices"
)

// stateVersion changes with the form of saved states.
const stateVersion = 1

// state is a saved engine, without objects: the tracks of another tracker are other objects.
type state struct {
	Version int               `json:"version"`
	Lines   map[string]counts `json:"lines"`
	Zones   map[string]counts `json:"zones"`
	Events  []Event           `json:"events"` // of the objects, which vanish
}

// Save returns the counts, for Restore in an engine of the same stream. The objects have
// vanished for the restored engine, so that no zone keeps an object for ever.
func (e *Engine) Save() []byte {
	c := *e
	c.lines, c.zones = slices.Clone(e.lines), slices.Clone(e.zones)
	s := state{Version: stateVersion, Lines: map[string]counts{}, Zones: map[string]counts{}}
	for i := range c.lines {
		c.lines[i].counts = c.lines[i].counts.clone()
	}
	for i := range c.zones {
		c.zones[i].counts = c.zones[i].counts.clone()
	}
	c.events = slices.Clone(e.queued)
	for _, k := range e.objects {
		c.end(k)
	}
	for i := range c.lines {
		s.Lines[c.lines[i].name] = c.lines[i].counts
	}
	for i := range c.zones {
		s.Zones[c.zones[i].name] = c.zones[i].counts
	}
	s.Events = c.events
	text, err := json.Marshal(&s)
	if err != nil {
		panic(err) // the state has only numbers and texts
	}
	return text
}

// Restore continues from a saved state. Call Restore before the first Update. The next frame has the events of the
// objects that have vanished. Counts of rules that no longer exist are dropped.
func (e *Engine) Restore(saved []byte) error {
	var s state
	if err := json.Unmarshal(saved, &s); err != nil {
		return fmt.Errorf("the saved state of the rules: %w", err)
	}
	if s.Version != stateVersion {
		return fmt.Errorf("the saved state of the rules has the version %d: want %d", s.Version, stateVersion)
	}
	e.queued = s.Events
	for i := range e.lines {
		e.lines[i].counts = s.Lines[e.lines[i].name]
	}
	for i := range e.zones {
		e.zones[i].counts = s.Zones[e.zones[i].name]
	}
	return nil
}
