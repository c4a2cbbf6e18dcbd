package rules

import "strings"

// EventType is the type of an event.
type EventType string

// The types of events. All but CrossEvent and WhenEvent belong to zones.
const (
	CrossEvent  EventType = "cross"  // an object has crossed a line
	EnterEvent  EventType = "enter"  // an object is in the zone; Start is its first frame there
	LeaveEvent  EventType = "leave"  // an object has left the zone, or vanished in the zone; Start to End is its stay
	DwellEvent  EventType = "dwell"  // an object has been in the zone for the time of the rule, once for each stay
	CountEvent  EventType = "count"  // more objects than the rule's number have been in the zone for the rule's time
	AppearEvent EventType = "appear" // the first box of an object was in the zone
	VanishEvent EventType = "vanish" // the last box of an object was in the zone
	WhenEvent   EventType = "when"   // the conditions of several rules held for their time, once until they fail
	SpeedEvent  EventType = "speed"  // an object in the zone was faster than the rule's speed, once for each stay
)

// EventTypes lists all types.
var EventTypes = []EventType{CrossEvent, EnterEvent, LeaveEvent, DwellEvent, CountEvent, AppearEvent, VanishEvent,
	SpeedEvent, WhenEvent}

// TypesText lists the types for help texts and messages.
func TypesText() string {
	names := make([]string, len(EventTypes))
	for i, t := range EventTypes {
		names[i] = string(t)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// Directions of a CrossEvent.
const (
	In  = "in"  // from the left of the line to its right
	Out = "out" // from the right of the line to its left
)

// Output is the name of the output with the events of a frame: one JSON object for each Event.
const Output = "events"

// Event is a fact about the objects of a stream.
type Event struct {
	ID        string    `json:"id"` // different for each event of all engines
	Stream    string    `json:"stream,omitempty"`
	Type      EventType `json:"type"`
	Rule      string    `json:"rule"`
	Direction string    `json:"direction,omitempty"`
	Class     string    `json:"class,omitempty"` // label or number; of several objects, if all have the same
	Tracks    []int64   `json:"tracks"`
	Speed     float64   `json:"speed,omitempty"` // of a SpeedEvent, in metres a second, from Start to End
	Start     int64     `json:"start"`           // microseconds of the frames' times
	End       int64     `json:"end"`
}
