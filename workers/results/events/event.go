package events

import (
	"strconv"
	"time"
)

// Type is the type of an event.
type Type string

// The types. All but Cross belong to zones.
const (
	Cross  Type = "cross"  // an object has crossed a line
	Enter  Type = "enter"  // an object is in the zone; Start is its first frame there
	Leave  Type = "leave"  // an object has left the zone, or vanished in the zone; Start to End is its stay
	Dwell  Type = "dwell"  // an object has been in the zone for the time of the rule, once for each stay
	Count  Type = "count"  // more objects than the rule's number have been in the zone for the time of the rule
	Appear Type = "appear" // the first box of an object was in the zone
	Vanish Type = "vanish" // the last box of an object was in the zone
)

// Directions of a Cross.
const (
	In  = "in"  // from the left of the line to its right
	Out = "out" // from the right of the line to its left
)

// Event is a fact about the objects of a stream.
type Event struct {
	ID        string  `json:"id"` // different for each event of all engines
	Stream    string  `json:"stream,omitempty"`
	Type      Type    `json:"type"`
	Rule      string  `json:"rule"`
	Direction string  `json:"direction,omitempty"`
	Class     string  `json:"class,omitempty"` // label or number; of several objects, if all have the same
	Tracks    []int64 `json:"tracks"`
	Start     int64   `json:"start"` // microseconds of the frames' times: see Frame
	End       int64   `json:"end"`
}

// moment is the time of a frame.
type moment struct {
	clock time.Duration // of the engine; always advances
	at    time.Duration // of the frames; may go back
}

// emit adds an event of one object.
func (e *Engine) emit(kind Type, rule, direction string, class int32, track int64, start, end moment) {
	e.add(Event{Type: kind, Rule: rule, Direction: direction, Class: e.label(class), Tracks: []int64{track}}, start,
		end)
}

// add adds an event, with an id made of the engine's random text and the number of the event. Names and times cannot
// make an id: the times of a source begin again with the source.
func (e *Engine) add(v Event, start, end moment) {
	e.seq++
	v.Stream, v.Start, v.End = e.stream, start.at.Microseconds(), end.at.Microseconds()
	v.ID = e.run + "-" + strconv.FormatUint(e.seq, 10)
	e.events = append(e.events, v)
}
