package rules

import (
	"maps"
	"time"
)

// MaxCounted is the largest number of classes that a rule counts by class. Further classes count as Other.
const MaxCounted = 256

// Other is the name of the classes beyond MaxCounted.
const Other = "other"

// Counts are the numbers of the rules of a stream, in the order of the rules.
type Counts struct {
	Since time.Time    `json:"since"` // of the first frame, or of the last reset
	Lines []LineCounts `json:"lines"`
	Zones []ZoneCounts `json:"zones"`
}

// LineCounts are the crossings of a line: of all objects, and by class.
type LineCounts struct {
	Name string `json:"name"`
	Crossings
	Classes map[string]Crossings `json:"classes"`
}

// Crossings are numbers of crossings since the reset, and in the present minute, hour and day.
type Crossings struct {
	Directions
	Minute Directions `json:"minute"`
	Hour   Directions `json:"hour"`
	Day    Directions `json:"day"`
}

// Directions are the crossings of a line by direction.
type Directions struct {
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
}

// ZoneCounts are the numbers of a zone: of all objects, and by class.
type ZoneCounts struct {
	Name string `json:"name"`
	Stays
	Classes map[string]Stays `json:"classes"`
}

// Stays are the objects in a zone now, and the enters and leaves since the reset, and in the present minute, hour and
// day.
type Stays struct {
	Now int `json:"now"`
	Visits
	Minute Visits `json:"minute"`
	Hour   Visits `json:"hour"`
	Day    Visits `json:"day"`
}

// Visits are the objects that have entered and left a zone.
type Visits struct {
	Enter uint64 `json:"enter"`
	Leave uint64 `json:"leave"`
}

// Tally counts events by rule and class, for one goroutine at a time. The zero value is empty. The JSON form keeps a
// Tally.
type Tally struct {
	Since time.Time             `json:"since"`
	Rules map[string]*ruleTally `json:"rules"` // by name

	changes uint64
	reset   bool // earlier numbers no longer count
}

// ruleTally has the numbers of a rule: in and out of a line, enters and leaves of a zone.
type ruleTally struct {
	Zone    bool                   `json:"zone"`
	Begins  [periods]int64         `json:"begins"` // of the newest minute, hour and day with an event, in Unix seconds
	Classes map[string]*classTally `json:"classes"`
	Other   classTally             `json:"other"`
}

type classTally struct {
	All     [2]uint64          `json:"all"`
	Periods [periods][2]uint64 `json:"periods"` // of Begins
	Now     int                `json:"now"`
}

const periods = 3 // minute, hour, day

// beginsOf returns the begins of the minute, hour and day of a time, in Unix seconds. Days are of the time's location.
func beginsOf(t time.Time) (out [periods]int64) {
	y, m, d := t.Date()
	hour, minute, _ := t.Clock()
	for i, begin := range [periods]time.Time{time.Date(y, m, d, hour, minute, 0, 0, t.Location()),
		time.Date(y, m, d, hour, 0, 0, 0, t.Location()), time.Date(y, m, d, 0, 0, 0, 0, t.Location())} {
		out[i] = begin.Unix()
	}
	return out
}

// Begin notes the time of a frame.
func (t *Tally) Begin(at time.Time) {
	if t.Since.IsZero() {
		t.Since = at
		t.changes++
	}
}

// Add counts an event at the time by the server's clock. Events that are not counted change nothing.
func (t *Tally) Add(v *Event, at time.Time) {
	column, inside := 0, 0
	switch {
	case v.Type == EnterEvent:
		inside = 1
	case v.Type == LeaveEvent:
		column, inside = 1, -1
	case v.Type != CrossEvent:
		return
	case v.Direction == Out:
		column = 1
	}
	r := t.Rules[v.Rule]
	if zone := v.Type != CrossEvent; r == nil || r.Zone != zone {
		r = &ruleTally{Zone: zone, Classes: map[string]*classTally{}}
		if t.Rules == nil {
			t.Rules = map[string]*ruleTally{}
		}
		t.Rules[v.Rule] = r
	}
	t.changes++
	begins := beginsOf(at)
	for i := range begins {
		if begins[i] == r.Begins[i] {
			continue
		}
		r.Begins[i] = begins[i]
		r.each(func(_ string, n *classTally) { n.Periods[i] = [2]uint64{} })
	}
	n := r.class(v.Class, inside < 0)
	n.All[column]++
	for i := range n.Periods {
		n.Periods[i][column]++
	}
	n.Now = max(n.Now+inside, 0)
}

// class returns the numbers of a class. The entry of a leaving object was counted with the class, or as Other.
func (r *ruleTally) class(class string, leaves bool) *classTally {
	n := r.Classes[class]
	switch {
	case class == Other: // a class of this name, too
		n = &r.Other
	case n != nil && (!leaves || n.Now > 0 || r.Other.Now == 0):
	case n == nil && len(r.Classes) < MaxCounted && (!leaves || r.Other.Now == 0):
		n = &classTally{}
		r.Classes[class] = n
	default:
		n = &r.Other
	}
	return n
}

// each calls f with the numbers of each class, and of Other if there are any.
func (r *ruleTally) each(f func(class string, n *classTally)) {
	for class, n := range r.Classes {
		f(class, n)
	}
	if r.Other.All != [2]uint64{} || r.Other.Now != 0 {
		f(Other, &r.Other)
	}
}

// Keep removes the numbers of rules that r does not have.
func (t *Tally) Keep(r *Rules) {
	zones := map[string]bool{}
	for i := range r.Lines {
		zones[r.Lines[i].Name] = false
	}
	for i := range r.Zones {
		zones[r.Zones[i].Name] = true
	}
	maps.DeleteFunc(t.Rules, func(name string, n *ruleTally) bool {
		zone, has := zones[name]
		return !has || zone != n.Zone
	})
}

// Reset makes all numbers 0. Objects stay in their zones.
func (t *Tally) Reset(at time.Time) {
	t.Since, t.reset = at, true
	t.changes++
	for _, r := range t.Rules {
		maps.DeleteFunc(r.Classes, func(_ string, n *classTally) bool {
			*n = classTally{Now: n.Now}
			return n.Now == 0
		})
		r.Other = classTally{Now: r.Other.Now}
	}
}

// join adds earlier numbers of the same stream, without objects in zones.
func (t *Tally) join(o *Tally) {
	t.changes++
	if t.reset {
		return
	}
	if !o.Since.IsZero() && (t.Since.IsZero() || o.Since.Before(t.Since)) {
		t.Since = o.Since
	}
	for name, from := range o.Rules {
		to := t.Rules[name]
		switch {
		case to == nil && t.Rules == nil:
			t.Rules = o.Rules
			return
		case to == nil:
			t.Rules[name] = from
		case to.Zone == from.Zone:
			to.join(from)
		}
	}
}

func (r *ruleTally) join(o *ruleTally) {
	for i := range r.Begins { // only numbers of the newest periods count
		if o.Begins[i] == r.Begins[i] {
			continue
		}
		older := r
		if o.Begins[i] < r.Begins[i] {
			older = o
		}
		older.each(func(_ string, n *classTally) { n.Periods[i] = [2]uint64{} })
		r.Begins[i] = max(r.Begins[i], o.Begins[i])
	}
	o.each(func(class string, from *classTally) {
		to := &r.Other
		if from != &o.Other {
			to = r.class(class, false)
		}
		for column := range from.All {
			to.All[column] += from.All[column]
			for i := range from.Periods {
				to.Periods[i][column] += from.Periods[i][column]
			}
		}
	})
}

// empty makes all objects leave their zones.
func (t *Tally) empty() {
	for _, r := range t.Rules {
		r.each(func(_ string, n *classTally) {
			n.All[1] += uint64(n.Now)
			n.Now = 0
		})
	}
}

// clone returns a deep copy.
func (t *Tally) clone() Tally {
	out := Tally{Since: t.Since, Rules: make(map[string]*ruleTally, len(t.Rules))}
	for name, r := range t.Rules {
		own := *r
		own.Classes = make(map[string]*classTally, len(r.Classes))
		for class, n := range r.Classes {
			of := *n
			own.Classes[class] = &of
		}
		out.Rules[name] = &own
	}
	return out
}

// Counts returns the numbers of rules at a time.
func (t *Tally) Counts(r *Rules, at time.Time) Counts {
	out := Counts{Since: t.Since, Lines: []LineCounts{}, Zones: []ZoneCounts{}}
	if r == nil {
		return out
	}
	begins := beginsOf(at)
	for i := range r.Lines {
		l := LineCounts{Name: r.Lines[i].Name, Classes: map[string]Crossings{}}
		t.sum(l.Name, false, begins, func(class string, n classTally) {
			own := Crossings{directions(n.All), directions(n.Periods[0]), directions(n.Periods[1]),
				directions(n.Periods[2])}
			if class == "" {
				l.Crossings = own
			} else {
				l.Classes[class] = own
			}
		})
		out.Lines = append(out.Lines, l)
	}
	for i := range r.Zones {
		z := ZoneCounts{Name: r.Zones[i].Name, Classes: map[string]Stays{}}
		t.sum(z.Name, true, begins, func(class string, n classTally) {
			own := Stays{n.Now, visits(n.All), visits(n.Periods[0]), visits(n.Periods[1]), visits(n.Periods[2])}
			if class == "" {
				z.Stays = own
			} else {
				z.Classes[class] = own
			}
		})
		out.Zones = append(out.Zones, z)
	}
	return out
}

func directions(n [2]uint64) Directions { return Directions{n[0], n[1]} }

func visits(n [2]uint64) Visits { return Visits{n[0], n[1]} }

// sum calls f with the numbers of each class of a rule, and with the sum of all as class "".
func (t *Tally) sum(rule string, zone bool, begins [periods]int64, f func(class string, n classTally)) {
	r := t.Rules[rule]
	if r == nil || r.Zone != zone {
		return
	}
	var all classTally
	r.each(func(class string, n *classTally) {
		own := *n
		for i := range own.Periods {
			if begins[i] != r.Begins[i] {
				own.Periods[i] = [2]uint64{}
			}
		}
		for column := range own.All {
			all.All[column] += own.All[column]
			for i := range own.Periods {
				all.Periods[i][column] += own.Periods[i][column]
			}
		}
		all.Now += own.Now
		f(class, own)
	})
	f("", all)
}
