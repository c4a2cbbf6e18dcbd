package events

import (
	"slices"
	"strings"
	"testing"

	"millrace/stream/rules"
)

// gate has a door in the middle, a yard on the left and a desk on the right.
func gate(when string) string {
	return `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}],"zones":[` +
		`{"name":"yard","polygon":[[0,0],[0.4,0],[0.4,1],[0,1]]},{"name":"desk","polygon":[[0.6,0],[1,0],[1,1],[0.6,1]]}` +
		`],"when":[` + when + `]}`
}

// whens leaves the other events out.
func (f *film) whens() {
	f.said = slices.DeleteFunc(f.said, func(text string) bool { return !strings.HasPrefix(text, "when") })
}

func TestWhenNeedsAllConditionsForTheTime(t *testing.T) {
	f := newFilm(t, gate(`{"name":"unattended","if":"now(yard) > 0 and now(desk) == 0","for":"1s"}`))
	yard, desk := box(1, 100, 240), box(2, 600, 240)
	for range 20 {
		f.frame(yard, desk)
	}
	f.whens()
	f.want()
	for range 30 {
		f.frame(yard)
	}
	f.whens()
	f.want("when unattended [1] 3100-4100") // the object at the desk has vanished after 1 s
	for range 30 {
		f.frame(yard, desk)
	}
	for range 30 {
		f.frame(yard)
	}
	f.whens()
	f.want("when unattended [1] 9100-10100") // once until the conditions fail
}

func TestWhenCountsEventsOfATime(t *testing.T) {
	f := newFilm(t, gate(`{"name":"tailgating","if":"in(door) >= 2","within":"3s"}`))
	f.move(1, 400, 240, 240, 240, 10)
	f.empty(40)
	f.move(2, 400, 240, 240, 240, 10) // more than 3 s later
	f.move(3, 240, 200, 400, 200, 10) // out
	f.whens()
	f.want()
	f.move(4, 400, 240, 240, 240, 10)
	f.whens()
	if len(f.said) != 1 || !strings.HasPrefix(f.said[0], "when tailgating [2 4] ") {
		t.Errorf("two objects within 3 s: %q", f.said)
	}
	f.said = nil
	f.empty(40)
	f.move(5, 400, 240, 240, 240, 10)
	f.move(6, 400, 240, 240, 240, 10)
	f.whens()
	if len(f.said) != 1 || !strings.HasPrefix(f.said[0], "when tailgating [5 6] ") {
		t.Errorf("two more objects: %q", f.said)
	}
}

func TestWhenGoesOnWithOtherRules(t *testing.T) {
	const twice = `{"name":"twice","if":"out(door) == 2","within":"1h"}`
	f := newFilm(t, gate(twice))
	f.move(1, 240, 240, 400, 240, 10)
	f.engine.Change(mustParse(t, gate(twice+`,{"name":"b","if":"now(desk) > 9"}`)))
	f.move(1, 400, 240, 240, 240, 10)
	f.move(1, 240, 240, 400, 240, 10)
	f.whens()
	if len(f.said) != 1 || !strings.HasPrefix(f.said[0], "when twice [1] ") {
		t.Errorf("after a change of another condition: %q", f.said)
	}
	f.said = nil
	f.engine.Change(mustParse(t, gate(`{"name":"twice","if":"out(door) == 1","within":"1h"}`)))
	f.empty(2)
	f.whens()
	f.want() // another condition begins anew
	if text := f.engine.whens[0].of.If; text != "out(door) == 1" {
		t.Error(text)
	}
}

func TestWhenKeepsABoundedNumberOfEvents(t *testing.T) {
	f := newFilm(t, gate(`{"name":"many","if":"in(door) > 500","within":"1h"}`))
	for range 600 {
		f.frame(box(1, 400, 240))
		f.frame(box(1, 240, 240))
	}
	f.whens()
	if n := len(f.engine.pasts[0].list); n < rules.MaxWithin || n > 2*rules.MaxWithin || len(f.said) != 1 {
		t.Errorf("%d events are kept, %d are told", n, len(f.said))
	}
	tracks := f.engine.tracksOf(&f.engine.whens[0])
	if len(tracks) != 1 {
		t.Errorf("tracks %v of one object", tracks)
	}
}

func TestWhenHasABoundedNumberOfTracks(t *testing.T) {
	f := newFilm(t, gate(`{"name":"crowd","if":"in(door) >= 100","within":"1h"}`))
	var before, after []Object
	for track := range int64(100) {
		before, after = append(before, box(track+1, 400, 240)), append(after, box(track+1, 240, 240))
	}
	f.frame(before...)
	f.frame(after...)
	last := f.engine.events[len(f.engine.events)-1]
	if last.Type != rules.WhenEvent || len(last.Tracks) != maxWhenTracks || last.Tracks[0] != 37 {
		t.Errorf("the last event: %+v", last)
	}
}

func TestWhenLeavesOutTracksOfAnotherTracker(t *testing.T) {
	f := newFilm(t, gate(`{"name":"tailgating","if":"in(door) >= 2","within":"1m"}`))
	f.move(1, 400, 240, 240, 240, 10)
	f.engine.Begin(0)
	f.move(1, 400, 240, 240, 240, 10)
	f.whens()
	if len(f.said) != 1 || !strings.HasPrefix(f.said[0], "when tailgating [1] ") {
		t.Errorf("two objects, one of each tracker: %q", f.said)
	}
	if first := f.engine.pasts[0].list[0]; first.track != 0 {
		t.Errorf("an event of another tracker has the track %d", first.track)
	}
}

func TestPendingEventsAreNotCounted(t *testing.T) {
	f := newFilm(t, gate(`{"name":"left","if":"leave(yard) >= 2","within":"1h"}`))
	for range 5 {
		f.frame(box(1, 100, 240))
		f.engine.Pending()
	}
	if n := len(f.engine.pasts[0].list); n != 0 {
		t.Errorf("%d events that are only pending are counted", n)
	}
}
