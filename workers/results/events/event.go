package events

import (
	"slices"
	"strconv"
	"time"

	"millrace/stream/rules"
)

// Event is a fact about the objects of a stream.
type Event = rules.Event

// moment is the time of a frame.
type moment struct {
	clock time.Duration // of the engine; always advances
	at    time.Duration // of the frames; may go back
}

// emit adds an event of one object.
func (e *Engine) emit(kind rules.EventType, rule, direction string, class int32, track int64, start, end moment) {
	e.add(Event{Type: kind, Rule: rule, Direction: direction, Class: e.label(class), Tracks: []int64{track}}, start,
		end)
}

// add adds and counts an event, with an id made of the engine's random text and the number of the event. Names and
// times cannot make an id: the times of a source begin again with the source.
func (e *Engine) add(v Event, start, end moment) {
	e.seq++
	v.Stream, v.Start, v.End = e.stream, start.at.Microseconds(), end.at.Microseconds()
	v.ID = e.run + "-" + strconv.FormatUint(e.seq, 10)
	e.tally.Add(&v, e.wall)
	e.note(&v)
	e.events = append(e.events, v)
}

// Pending implements rules.Engine. Events of vanished objects have ids of their own: this engine may go on, and give
// the next numbers to other events.
func (e *Engine) Pending() (next, ending []Event) {
	c := *e
	c.lines, c.zones = slices.Clone(e.lines), slices.Clone(e.zones)
	c.pasts = nil // vanished objects change no counts of conditions
	c.run, c.seq, c.tally, c.events = e.run+"-"+strconv.FormatUint(e.seq, 10), 0, new(rules.Tally), nil
	for _, k := range e.objects {
		c.end(k)
	}
	return slices.Clone(e.queued), c.events
}
