package streams

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/clips"
	"millrace/ingest/history"
	"millrace/stream"
	"millrace/stream/rules"
)

// EventKind is a kind of events for counters.
type EventKind struct{ Rule, Type, Class string }

// maxEventKinds bounds the kinds of a stream's events. Events of further kinds have the class rules.Other, and beyond
// twice the number no rule either.
const maxEventKinds = 256

// eventCounts count the events of a stream by kind. A count never falls.
type eventCounts map[EventKind]uint64

func (n eventCounts) add(v *rules.Event) {
	kind := EventKind{v.Rule, string(v.Type), v.Class}
	if _, known := n[kind]; !known && len(n) >= maxEventKinds {
		kind.Class = rules.Other
		if _, known := n[kind]; !known && len(n) >= 2*maxEventKinds {
			kind.Rule = ""
		}
	}
	n[kind]++
}

// keepEvent counts an event, puts the event into the history, and writes the event to the sinks for events.
// f.writing is held.
func (f *runner) keepEvent(model string, v *rules.Event, text json.RawMessage, to []openSink) clips.Incident {
	f.countMu.Lock()
	if f.events == nil {
		f.events = eventCounts{}
	}
	f.events.add(v)
	f.countMu.Unlock()
	f.a.opts.History.Add(model, v, text)
	for _, s := range to {
		if _, fed := s.Sink.(*eventSink); s.events && !fed { // otherwise the events come from the history
			s.Write(text)
		}
	}
	return clips.IncidentOf(v, text)
}

// endObjects ends the objects of a model at the end of a video, after all results were written. No result has the
// events: each event is a line of its own for the watchers and the sinks for results.
func (f *runner) endObjects(o *modelFeed) {
	f.writing.Lock()
	defer f.writing.Unlock()
	to, model := f.openSinks(), o.c.Model
	var list []clips.Incident
	for _, v := range o.stream.Rules().End() {
		text, err := json.Marshal(&v)
		if err != nil {
			f.a.opts.Log.Error("an event cannot be written", "stream", f.name, "model", model, "error", err)
			continue
		}
		list = append(list, f.keepEvent(model, &v, text, to))
		f.results.send(text, model)
		for _, s := range to {
			if !s.events {
				s.Write(text)
			}
		}
	}
	if len(list) > 0 && f.clips != nil && f.clips.Enabled() {
		f.clips.Events(model, list, nil)
	}
}

// keptRules are the rules for a model. The counts are kept in the history.
type keptRules struct {
	*rules.Handle

	mu       sync.Mutex // held while the state is read from the history, or copied into the history
	restored bool       // the state in the history is part of the counts
	kept     uint64     // changes of the counts that are in the history
	begun    uint64     // databases of the history, up to the database that has the counts
	ended    bool       // the last state is in the history
}

// newRules returns the rules for a model, with the counts that the history has.
func (f *runner) newRules(model string) *keptRules {
	k := &keptRules{Handle: rules.NewHandle(f.now.rules()), restored: f.now.Rules.Empty()}
	k.KeepHeat()
	if !k.restored {
		if err := k.restore(f, model); err != nil {
			f.a.opts.Log.Warn("the earlier counts of a stream cannot be read yet", "stream", f.name, "model", model,
				"error", err)
		}
	}
	return k
}

// restore adds the state in the history to the counts, once. k.mu is held, or k is not shared yet. While the history
// cannot be read, the state in the history is neither lost nor replaced.
func (k *keptRules) restore(f *runner, model string) error {
	if k.restored {
		return nil
	}
	state, err := f.a.opts.History.State(f.name, model)
	if err != nil {
		return err
	}
	k.restored = true
	if state != nil {
		err = k.Restore(state)
	}
	if err != nil {
		f.a.opts.Log.Error("the counts of a stream begin anew", "stream", f.name, "model", model, "error", err)
	}
	return nil
}

// keepTime is the time between two copies of counts into the history.
const keepTime = 5 * time.Second

// keepCounts copies changed counts into the history until ctx ends.
func (a *Adapter) keepCounts(ctx context.Context) {
	if a.opts.History == nil {
		return
	}
	tick := time.NewTicker(keepTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, f := range a.list() {
			f.keepCounts(false)
		}
	}
}

// keepCounts copies the stream's changed counts into the history; with last, all counts, for the last time.
func (f *runner) keepCounts(last bool) {
	if f.a.opts.History == nil {
		return
	}
	for _, c := range f.list() {
		c.rules.keep(f, c.Model, last)
	}
}

// keep copies the counts into the history, and with last for the last time.
func (k *keptRules) keep(f *runner, model string, last bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended || k.Changes() == 0 && k.Rules() == nil {
		return
	}
	k.ended = last
	if err := k.restore(f, model); err != nil {
		if last {
			f.a.opts.Log.Error("the counts of a stream since its start are lost: the counts of before cannot be read",
				"stream", f.name, "model", model, "error", err)
		}
		return
	}
	n, begun := k.Changes(), f.a.opts.History.Begun()
	if n != k.kept || begun != k.begun || last { // objects have ending events without a change, too
		f.a.opts.History.SetState(f.name, model, k.Save(time.Now()))
		k.kept, k.begun = n, begun
	}
}

// Event is an event in the replies of GET /v2/events.
type Event struct {
	rules.Event
	Model string    `json:"model"`
	Time  time.Time `json:"time"` // by the server's clock
}

type eventPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next,omitempty"`
}

// defaultEvents is the length of a page unless a request gives another.
const defaultEvents = 100

// listEvents answers with a page of the history.
func (a *Adapter) listEvents(c *fiber.Ctx) error {
	q, err := eventQuery(c.Queries(), time.Now())
	if err != nil {
		return err
	}
	list, next, err := a.opts.History.Events(c.UserContext(), q)
	if err != nil {
		return err
	}
	page := eventPage{Events: make([]Event, len(list)), Next: next}
	for i := range list {
		page.Events[i] = Event{list[i].Event, list[i].Model, list[i].Time}
	}
	return c.JSON(page)
}

// eventQuery reads the options of a request.
func eventQuery(options map[string]string, now time.Time) (q history.Query, err error) {
	q.Limit = defaultEvents
	for name, value := range options {
		value = strings.Clone(value)
		switch name {
		case "camera", "stream":
			if q.Stream = value; options["camera"] != "" && options["stream"] != "" {
				err = stream.Errorf(stream.InvalidArgument, "camera", "is the same option as stream: give one")
			}
		case "type":
			q.Type = value
			if !knownType(value) {
				err = stream.Errorf(stream.InvalidArgument, name, "%.40q is no type of events: want one of %v", value,
					rules.EventTypes)
			}
		case "rule":
			q.Rule = value
		case "class":
			q.Class = value
		case "from":
			q.From, err = pastTime(name, value, now)
		case "to":
			q.To, err = pastTime(name, value, now)
		case "after":
			q.After = value
		case "order":
			q.Oldest = value == "oldest"
			if value != "oldest" && value != "newest" {
				err = stream.Errorf(stream.InvalidArgument, name, "%.40q is not oldest or newest", value)
			}
		case "limit":
			q.Limit, err = strconv.Atoi(value)
			if err != nil || q.Limit < 1 || q.Limit > history.MaxLimit {
				err = stream.Errorf(stream.InvalidArgument, name, "%.40q is not a number from 1 to %d", value,
					history.MaxLimit)
			}
		default:
			err = stream.Errorf(stream.InvalidArgument, "", "%.40q is not an option of events: want camera, type, "+
				"rule, class, from, to, order, limit or after", name)
		}
		if err != nil {
			return q, err
		}
	}
	return q, nil
}

func knownType(text string) bool {
	for _, t := range rules.EventTypes {
		if string(t) == text {
			return true
		}
	}
	return false
}

// pastTime reads a time, or a duration before now.
func pastTime(name, text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return now, stream.Errorf(stream.InvalidArgument, name, "%.60q is not a time, such as 2026-12-24T18:00:00Z, "+
			"or a duration before now, such as 1h30m", text)
	}
	return now.Add(-d), nil
}

// eventStats returns copies of the counts of events, and the objects in the zones now.
func (f *runner) eventStats(s *StreamStats) {
	f.countMu.Lock()
	s.Events = maps.Clone(f.events)
	f.countMu.Unlock()
	counting, _ := f.counting()
	for _, c := range counting {
		for _, z := range c.rules.Counts(time.Now()).Zones {
			s.Zones = append(s.Zones, ZoneStats{c.Model, z.Name, z.Now})
		}
	}
}

// ZoneStats are the objects in a zone.
type ZoneStats struct {
	Model, Rule string
	Now         int
}
