package events

import (
	"slices"
	"sort"
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
	zone, past int // index of the zone whose objects count, or of the events; -1 = the other
}

// past has the latest events of a kind.
type past struct {
	of   rules.Term // without the comparison
	list []pastEvent
}

type pastEvent struct {
	clock time.Duration
	track int64 // 0 = of another tracker
}

// maxWhenTracks bounds the tracks of an event.
const maxWhenTracks = 64

// newWhens returns the conditions of valid rules, and the events to count. A condition that has not changed goes on.
func (e *Engine) newWhens(r *rules.Rules) (whens []when, pasts []past) {
	for i := range r.When {
		w := when{of: r.When[i]}
		if at := slices.IndexFunc(e.whens, func(old when) bool { return old.of == w.of }); at >= 0 {
			w = e.whens[at]
		}
		list, _ := w.of.Terms() // without an error in valid rules
		w.terms = nil
		for _, t := range list {
			own := term{t, -1, -1}
			if t.Type == "" {
				own.zone = slices.IndexFunc(r.Zones, func(z rules.Zone) bool { return z.Name == t.Rule })
			} else {
				pasts, own.past = e.count(pasts, t)
			}
			w.terms = append(w.terms, own)
		}
		whens = append(whens, w)
	}
	return whens, pasts
}

// count returns the index of the events that a comparison counts. Events counted before go on.
func (e *Engine) count(pasts []past, t rules.Term) ([]past, int) {
	same := func(p past) bool {
		return p.of.Type == t.Type && p.of.Rule == t.Rule && p.of.Direction == t.Direction
	}
	if at := slices.IndexFunc(pasts, same); at >= 0 {
		return pasts, at
	}
	p := past{of: t}
	if at := slices.IndexFunc(e.pasts, same); at >= 0 {
		p.list = e.pasts[at].list
	}
	return append(pasts, p), len(pasts)
}

// note keeps an event for the conditions.
func (e *Engine) note(v *Event) {
	for i := range e.pasts {
		p := &e.pasts[i]
		if p.of.Type != v.Type || p.of.Rule != v.Rule || p.of.Direction != v.Direction {
			continue
		}
		if len(p.list) >= 2*rules.MaxWithin {
			p.list = append(p.list[:0], p.list[len(p.list)-rules.MaxWithin:]...)
		}
		p.list = append(p.list, pastEvent{e.now.clock, v.Tracks[0]})
	}
}

// within returns the events since a time.
func (p *past) within(since time.Duration) []pastEvent {
	list := p.list[max(len(p.list)-rules.MaxWithin, 0):]
	return list[sort.Search(len(list), func(i int) bool { return list[i].clock >= since }):]
}

// forgetTracks makes the tracks unknown: the ids of a new tracker are other objects.
func (p *past) forgetTracks() {
	for i := range p.list {
		p.list[i].track = 0
	}
}

// compare looks at the conditions after the other rules of the frame.
func (e *Engine) compare(w *when) {
	for i := range w.terms {
		t := &w.terms[i]
		n := 0
		if t.zone >= 0 {
			n = e.zones[t.zone].now
		} else {
			n = len(e.pasts[t.past].within(e.now.clock - w.of.Within))
		}
		if !t.Holds(n) {
			w.holds = false
			return
		}
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

// tracksOf returns the objects in the zones and of the events of a condition, the newest of many.
func (e *Engine) tracksOf(w *when) []int64 {
	tracks := []int64{}
	for i := range w.terms {
		t := &w.terms[i]
		if t.zone < 0 {
			for _, v := range e.pasts[t.past].within(e.now.clock - w.of.Within) {
				if v.track != 0 {
					tracks = append(tracks, v.track)
				}
			}
			continue
		}
		for _, k := range e.objects {
			if k.zones[t.zone].inside {
				tracks = append(tracks, k.track)
			}
		}
	}
	slices.Sort(tracks)
	tracks = slices.Compact(tracks)
	return slices.Clone(tracks[max(len(tracks)-maxWhenTracks, 0):])
}
