package events

import (
	"maps"
	"strconv"
)

// maxClasses bounds the classes that a rule counts by class.
const maxClasses = 256

// Other is the class of counts beyond maxClasses.
const Other = "other"

// counts has two numbers for each class: in and out of a line, enters and leaves of a zone.
type counts struct {
	Classes map[int32][2]uint64 `json:"classes,omitempty"`
	Other   [2]uint64           `json:"other"` // of further classes
}

func (c *counts) add(class int32, column int) {
	n, known := c.Classes[class]
	switch {
	case !known && len(c.Classes) >= maxClasses:
		c.Other[column]++
		return
	case c.Classes == nil:
		c.Classes = map[int32][2]uint64{}
	}
	n[column]++
	c.Classes[class] = n
}

func (c *counts) clone() counts { return counts{maps.Clone(c.Classes), c.Other} }

// number returns a class as text.
func number(class int32) string { return strconv.Itoa(int(class)) }

// Counts are the numbers of all rules, in the order of the rules.
type Counts struct {
	Lines []LineCounts `json:"lines"`
	Zones []ZoneCounts `json:"zones"`
}

// LineCounts are the numbers of a line, by class.
type LineCounts struct {
	Name    string                `json:"name"`
	Classes map[string]Directions `json:"classes"`
}

// Directions are the crossings of a line.
type Directions struct {
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
}

// ZoneCounts are the numbers of a zone, by class.
type ZoneCounts struct {
	Name    string            `json:"name"`
	Classes map[string]Visits `json:"classes"`
}

// Visits are the enters and leaves of a zone, and the objects inside now.
type Visits struct {
	Enter uint64 `json:"enter"`
	Leave uint64 `json:"leave"`
	Now   int    `json:"now"`
}

// Counts returns the numbers since the beginning or the last Reset.
func (e *Engine) Counts() Counts {
	all := Counts{Lines: make([]LineCounts, len(e.lines)), Zones: make([]ZoneCounts, len(e.zones))}
	for i := range e.lines {
		l := &e.lines[i]
		by := map[string]Directions{}
		l.counts.each(e.label, func(class string, n [2]uint64) {
			by[class] = Directions{by[class].In + n[0], by[class].Out + n[1]}
		})
		all.Lines[i] = LineCounts{l.name, by}
	}
	for i := range e.zones {
		z := &e.zones[i]
		by := map[string]Visits{}
		z.counts.each(e.label, func(class string, n [2]uint64) {
			by[class] = Visits{Enter: by[class].Enter + n[0], Leave: by[class].Leave + n[1]}
		})
		for _, k := range e.objects {
			if st := &k.zones[i]; st.inside {
				class := e.label(st.class)
				if _, counted := by[class]; !counted && len(by) >= maxClasses {
					class = Other
				}
				v := by[class]
				v.Now++
				by[class] = v
			}
		}
		all.Zones[i] = ZoneCounts{z.name, by}
	}
	return all
}

// each calls f with the numbers of each class; a name may come twice.
func (c *counts) each(label func(int32) string, f func(class string, n [2]uint64)) {
	for class, n := range c.Classes {
		f(label(class), n)
	}
	if c.Other != [2]uint64{} {
		f(Other, c.Other)
	}
}

// Reset makes all counts zero. Objects stay in their zones.
func (e *Engine) Reset() {
	for i := range e.lines {
		e.lines[i].counts = counts{}
	}
	for i := range e.zones {
		e.zones[i].counts = counts{}
	}
}
