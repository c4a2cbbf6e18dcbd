package rules

import (
	"math"
	"slices"
	"strings"

	"millrace/internal/condition"
)

// Bounds of a condition.
const (
	MaxTerms  = 8   // comparisons
	MaxWithin = 512 // events that a comparison can count
)

// Term is a comparison of a When.
type Term struct {
	Rule      string    // name of the line or zone
	Type      EventType // of the events that count; "" = the objects in the zone now
	Direction string    // of a CrossEvent
	is        condition.Condition
}

// Holds compares a number of objects or events.
func (t *Term) Holds(n int) bool { return t.is.Holds(float64(n)) }

var terms = map[string]Term{
	"now":   {},
	"in":    {Type: CrossEvent, Direction: In},
	"out":   {Type: CrossEvent, Direction: Out},
	"enter": {Type: EnterEvent},
	"leave": {Type: LeaveEvent},
}

// Terms returns the comparisons of a condition. The errors name the fields within the condition.
func (w *When) Terms() (out []Term, err error) {
	text := strings.Join(strings.Fields(w.If), " ") // also for a text of several lines
	if text == "" {
		return nil, bad("if", "is missing: want a comparison, such as now(yard) > 2")
	}
	parts := strings.Split(text, " and ")
	if len(parts) > MaxTerms {
		return nil, bad("if", "has %d comparisons: want at most %d", len(parts), MaxTerms)
	}
	for _, part := range parts {
		c, ok := condition.Parse(part, "now", "in", "out", "enter", "leave")
		if !ok {
			return nil, bad("if", "%.80q is not a comparison: want now, in, out, enter or leave of a line or zone, "+
				"compared with a number by > >= < <= == or !=, such as now(yard) > 2", part)
		}
		t := terms[c.Func]
		t.Rule, t.is = c.Of, c
		if t.Type != "" && w.Within == 0 {
			return nil, bad("within", "is missing: want the time for which %s(%s) counts", c.Func, c.Of)
		}
		if c.Value != math.Trunc(c.Value) || c.Value < 0 || c.Value >= MaxWithin {
			return nil, bad("if", "%s compares with %v: want a whole number from 0 to %d", part, c.Value, MaxWithin-1)
		}
		out = append(out, t)
	}
	if w.Within != 0 && !slices.ContainsFunc(out, func(t Term) bool { return t.Type != "" }) {
		return nil, bad("within", "is for in, out, enter and leave, which if does not have: leave it out")
	}
	return out, nil
}

func (r *Rules) checkWhen(w *When) error {
	list, err := w.Terms()
	if err != nil {
		return err
	}
	for i := range list {
		t := &list[i]
		if t.Type == CrossEvent {
			if !slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Name == t.Rule }) {
				return bad("if", "%s(%.40s): there is no line with this name", t.is.Func, t.Rule)
			}
		} else if !slices.ContainsFunc(r.Zones, func(z Zone) bool { return z.Name == t.Rule }) {
			return bad("if", "%s(%.40s): there is no zone with this name", t.is.Func, t.Rule)
		}
	}
	return nil
}
