package events

import (
	"millrace/internal/plane"
	"millrace/stream/rules"
)

// line is a rule for objects that cross a line.
type line struct {
	name     string
	from, to plane.Point
	filter
	left, right float64 // room beside the line, in pixels
}

// lineState is what a line knows of an object.
type lineState struct {
	net   int8 // crossings not yet certain: 1 from left to right, -1 from right to left
	since moment
}

func newLine(r *rules.Rules, l *rules.Line) line {
	return line{name: l.Name, from: plane.Fixed(r.Share(l.From)), to: plane.Fixed(r.Share(l.To)),
		filter: newFilter(&l.Filter)}
}

// same reports whether a line is in the same place.
func (l *line) same(other *line) bool {
	return l.from == other.from && l.to == other.to && l.anchor == other.anchor
}

func (l *line) see(e *Engine, k *object, st *lineState) {
	at := k.at[l.anchor]
	switch c := int8(plane.Crossing(l.from, l.to, k.before[l.anchor], at)); {
	case c == 0:
	case st.net == c: // around the end of the line, so close that the crossing before is not certain
	default:
		st.net += c
		st.since = e.now
	}
	if st.net == 0 || !l.allows(e, k) {
		return
	}
	room := l.right
	if st.net < 0 {
		room = l.left
	}
	if e.scale.Distance(l.from, l.to, at) >= min(e.margin*k.size, room/2) {
		l.cross(e, k, st, e.now)
		st.net = 0
	}
}

func (l *line) end(e *Engine, k *object, st *lineState) {
	if st.net != 0 && l.allows(e, k) {
		l.cross(e, k, st, k.seen)
	}
}

func (l *line) cross(e *Engine, k *object, st *lineState, end moment) {
	direction := rules.In
	if st.net < 0 {
		direction = rules.Out
	}
	e.emit(rules.CrossEvent, l.name, direction, k.class, k.track, st.since, end)
}
