package events

import (
	"math"
	"slices"
	"time"

	"millrace/internal/plane"
	"millrace/stream/rules"
)

// zone is a rule for objects in a polygon.
type zone struct {
	name    string
	polygon []plane.Point
	filter
	low, high      plane.Point // around the polygon
	dwell          time.Duration
	over           int // -1: no count
	forTime        time.Duration
	appear, vanish bool
	speed          speed
	breadth        float64 // see plane.Scale.Breadth

	now   int    // objects inside
	many  bool   // more than over
	since moment // of many
	told  bool   // many has become an event
}

// zoneState is what a zone knows of an object.
type zoneState struct {
	in      bool   // by the last box
	since   moment // of in
	inside  bool   // counted
	entered moment // begin of the stay, while inside
	class   int32  // counted by enter
	dwelt   bool   // dwell has become an event
	new     bool   // appear can become an event
	fast    bool   // speed has become an event
	trail   []sample
}

func newZone(r *rules.Rules, z *rules.Zone) zone {
	out := zone{name: z.Name, filter: newFilter(&z.Filter), dwell: z.Dwell, over: -1, appear: z.Appear,
		vanish: z.Vanish, speed: newSpeed(r, z), low: plane.Point{X: plane.Size, Y: plane.Size}}
	if z.Count != nil {
		out.over, out.forTime = *z.Count.Over, z.Count.For
	}
	for _, p := range z.Polygon {
		at := plane.Fixed(r.Share(p))
		out.polygon = append(out.polygon, at)
		out.low = plane.Point{X: min(out.low.X, at.X), Y: min(out.low.Y, at.Y)}
		out.high = plane.Point{X: max(out.high.X, at.X), Y: max(out.high.Y, at.Y)}
	}
	return out
}

// same reports whether a zone has the same edges.
func (z *zone) same(other *zone) bool {
	return slices.Equal(z.polygon, other.polygon) && z.anchor == other.anchor
}

func (z *zone) contains(p plane.Point) bool {
	return p.X >= z.low.X && p.X < z.high.X && p.Y >= z.low.Y && p.Y < z.high.Y && plane.Inside(z.polygon, p)
}

func (z *zone) see(e *Engine, k *object, st *zoneState) {
	at := k.at[z.anchor]
	first := k.first == k.seen
	if in := z.contains(at); in != st.in || first {
		st.in, st.since = in, e.now
		st.new = first && in && z.appear
	}
	allowed := z.allows(e, k)
	if st.new && allowed {
		st.new = false
		e.emit(rules.AppearEvent, z.name, "", k.class, k.track, k.first, e.now)
	}
	switch {
	case st.inside && !allowed:
		z.leave(e, k, st, e.now)
	case st.in == st.inside || !allowed:
	case !z.certain(e, k, st, at):
	case st.in:
		z.enter(e, k, st, e.now)
	default:
		z.leave(e, k, st, st.since)
	}
	if st.inside && st.in && z.dwell > 0 && !st.dwelt && e.now.clock-st.entered.clock >= z.dwell {
		st.dwelt = true
		e.emit(rules.DwellEvent, z.name, "", k.class, k.track, st.entered, e.now)
	}
	if z.speed.window > 0 {
		z.measure(e, k, st, at)
	}
}

// measure compares the speed of an object in the zone with the rule's speed.
func (z *zone) measure(e *Engine, k *object, st *zoneState, at plane.Point) {
	if !st.in {
		st.trail = st.trail[:0]
		return
	}
	trail, since, mean, found := z.speed.follow(st.trail, at, e.now)
	if st.trail = trail; !found || !st.inside || st.fast || mean <= z.speed.over {
		return
	}
	st.fast = true
	e.add(Event{Type: rules.SpeedEvent, Rule: z.name, Class: e.label(k.class), Tracks: []int64{k.track},
		Speed: math.Round(mean*100) / 100}, since, e.now)
}

// certain reports whether an object on the other side of the edge than counted has crossed the edge.
func (z *zone) certain(e *Engine, k *object, st *zoneState, at plane.Point) bool {
	if e.now.clock-st.since.clock >= e.settle {
		return true
	}
	margin := e.margin * k.size
	if st.in {
		margin = min(margin, z.breadth/4)
	}
	return e.scale.Boundary(z.polygon, at) >= margin
}

func (z *zone) enter(e *Engine, k *object, st *zoneState, end moment) {
	st.inside, st.entered, st.class, st.dwelt, st.fast = true, st.since, k.class, false, false
	z.now++
	e.emit(rules.EnterEvent, z.name, "", k.class, k.track, st.since, end)
}

func (z *zone) leave(e *Engine, k *object, st *zoneState, end moment) {
	st.inside = false
	z.now--
	e.emit(rules.LeaveEvent, z.name, "", st.class, k.track, st.entered, end)
}

func (z *zone) end(e *Engine, k *object, last *zoneState) {
	st := *last
	allowed := z.allows(e, k)
	if !st.inside && st.in && allowed {
		z.enter(e, k, &st, k.seen)
	}
	if st.inside && st.in {
		z.leave(e, k, &st, k.seen)
	} else if st.inside {
		z.leave(e, k, &st, st.since)
	}
	if z.vanish && last.in && allowed {
		e.emit(rules.VanishEvent, z.name, "", k.class, k.track, k.first, k.seen)
	}
}

// crowd compares the number of objects inside with the rule's number.
func (e *Engine) crowd(i int) {
	z := &e.zones[i]
	if z.over < 0 || z.now <= z.over {
		z.many = false
		return
	}
	if !z.many {
		z.many, z.since, z.told = true, e.now, false
	}
	if z.told || e.now.clock-z.since.clock < z.forTime {
		return
	}
	z.told = true
	v := Event{Type: rules.CountEvent, Rule: z.name}
	for _, k := range e.objects {
		st := &k.zones[i]
		if !st.inside {
			continue
		}
		v.Tracks = append(v.Tracks, k.track)
		if class := e.label(k.class); len(v.Tracks) == 1 {
			v.Class = class
		} else if v.Class != class {
			v.Class = ""
		}
	}
	e.add(v, z.since, e.now)
}
