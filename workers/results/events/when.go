package events

import (
	"slices"
	"time"

	"millrace/stream/rules"
)

// when is a rule for conditions over lines and zones.
type when struct {
	of    rules.When
	terms []term

	holds bool
	since moment // of holds
	told  bool   // holds has become an event
}

// term is a comparison of a when.
type term struct {
	rules.Term
	zone int           // index of the zone of objects, -1 = events
	past []pastOfEvent // the events within the time, oldest first
}

type pastOfEvent struct {
	clock time.Duration
	track int64
}

// newWhens returns the conditions of valid rules. A condition that has not changed goes on.
func (e *Engine) newWhens(r *rules.Rules) []when {
	out := make([]when, 0, len(r.When))
	for i := range r.When {
		w := when{of: r.When[i]}
		list, err := w.of.Terms()
		if err != nil {
			continue // not in valid rules
		}
		if at := slices.IndexFunc(e.whens, func(old when) bool { return old.of == w.of }); at >= 0 {
			w = e.whens[at]
		}
		w.terms = append(w.terms, make([]term, len(list)-len(w.terms))...)
		for j, t := range list {
			w.terms[j].Term = t
			w.terms[j].zone = -1
			if t.Type == "" {
				w.terms[j].zone = slices.IndexFunc(r.Zones, func(z rules.Zone) bool { return z.Name == t.Rule })
			}
		}
		out = append(out, w)
	}
	return out
}

// count takes an event into the comparisons that count such events.
func (e *Engine) count(v *Event) {
	for i := range e.whens {
		for j := range e.whens[i].terms {
			t := &e.whens[i].terms[j]
			if t.zone >= 0 || t.Type != v.Type || t.Rule != v.Rule || t.Direction != v.Direction {
				continue
			}
			if len(t.past) >= rules.MaxWithin {
				t.past = slices.Delete(t.past, 0, 1)
			}
			t.past = append(t.past, pastOfEvent{e.now.clock, v.Tracks[0]})
		}
	}
}

// compare looks at the conditions after the other rules of the frame.
func (e *Engine) compare(w *when) {
	holds := true
	for i := range w.terms {
		t := &w.terms[i]
		n := 0
		if t.zone >= 0 {
			n = e.zones[t.zone].now
		} else {
			old := 0
			for old < len(t.past) && e.now.clock-t.past[old].clock > w.of.Within {
				old++
			}
			t.past = slices.Delete(t.past, 0, old)
			n = len(t.past)
		}
		holds = holds && t.Holds(n)
	}
	if !holds {
		w.holds = false
		return
	}
	if !w.holds {
		w.holds, w.since, w.told = true, e.now, false
	}
	if w.told || e.now.clock-w.since.clock < w.of.For {
		return
	}
	w.told = true
	e.add(Event{Type: rules.WhenEvent, Rule: w.of.Name, Tracks: e.tracksOf(w)}, w.since, e.now)
}

// tracksOf returns the objects in the zones and of the events of a condition.
func (e *Engine) tracksOf(w *when) []int64 {
	tracks := []int64{}
	for i := range w.terms {
		t := &w.terms[i]
		for _, past := range t.past {
			tracks = append(tracks, past.track)
		}
		if t.zone < 0 {
			continue
		}
		for _, k := range e.objects {
			if k.zones[t.zone].inside {
				tracks = append(tracks, k.track)
			}
		}
	}
	slices.Sort(tracks)
	return slices.Compact(tracks)
}
