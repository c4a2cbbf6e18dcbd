package events

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/rules"
)

func mustParse(t testing.TB, text string) *rules.Rules {
	t.Helper()
	r, err := rules.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counted returns the counts of an engine.
func counted(e *Engine) rules.Counts { return e.tally.Counts(e.rules, e.wall) }

// box returns an object of 20 x 40 pixels with its bottom centre at x, y.
func box(track int64, x, y float32) Object {
	return Object{Track: track, Class: 1, Score: 0.9, X1: x - 10, Y1: y - 40, X2: x + 10, Y2: y}
}

// film runs frames at 10 frames a second through an engine. Each frame has the objects of a function.
type film struct {
	t      testing.TB
	engine *Engine
	at     time.Duration
	said   []string
}

func newFilm(t testing.TB, text string) *film {
	return &film{t: t, engine: New(mustParse(t, text), "", new(rules.Tally))}
}

func (f *film) frame(objects ...Object) {
	f.t.Helper()
	f.at += 100 * time.Millisecond
	found, err := f.engine.Update(&Frame{Time: f.at, Width: 640, Height: 480, Objects: objects})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range found {
		f.said = append(f.said, describe(&found[i]))
	}
}

// move moves an object from one place to another in equal steps, the first place left out.
func (f *film) move(track int64, x1, y1, x2, y2 float32, steps int) {
	f.t.Helper()
	for i := range steps {
		share := float32(i+1) / float32(steps)
		f.frame(box(track, x1+share*(x2-x1), y1+share*(y2-y1)))
	}
}

func (f *film) empty(frames int) {
	for range frames {
		f.frame()
	}
}

// serial returns the number in the id of an event.
func serial(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

func describe(v *Event) string {
	text := fmt.Sprintf("%s %s", v.Type, v.Rule)
	if v.Direction != "" {
		text += " " + v.Direction
	}
	return fmt.Sprintf("%s %v %d-%d", text, v.Tracks, v.Start/1000, v.End/1000)
}

func (f *film) want(want ...string) {
	f.t.Helper()
	if !slices.Equal(f.said, want) {
		f.t.Errorf("events:\n%s\nwant:\n%s", strings.Join(f.said, "\n"), strings.Join(want, "\n"))
	}
	f.said = nil
}

const (
	door  = `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}`
	fence = `{"lines":[{"name":"fence","from":[0.25,0.5],"to":[0.75,0.5]}]}`
	yard  = `{"zones":[{"name":"yard","polygon":[[0.25,0.25],[0.75,0.25],[0.75,1],[0.25,1]]}]}`
)

func TestInIsFromTheLeftOfALineToItsRight(t *testing.T) {
	f := newFilm(t, door)
	f.move(1, 480, 240, 160, 240, 16) // from the picture's right half into its left half
	f.want("cross door in [1] 900-900")
	f.move(1, 160, 240, 480, 240, 16)
	f.want("cross door out [1] 2400-2500")
	counts := counted(f.engine).Lines[0].Classes
	if got := counts["1"]; got.In != 1 || got.Out != 1 || len(counts) != 1 {
		t.Errorf("counts: %+v", counts)
	}
}

func TestMovesBesideALinesEndsDoNotCross(t *testing.T) {
	f := newFilm(t, fence)
	f.move(1, 100, 100, 100, 400, 10)
	f.move(1, 100, 400, 320, 400, 10)
	f.want()
	f.move(1, 320, 400, 320, 100, 10) // up: from the right of the line to its left
	f.want("cross fence out [1] 2600-2600")
}

func TestABoxOnALineDoesNotCountTwice(t *testing.T) {
	f := newFilm(t, door)
	f.move(1, 400, 240, 324, 240, 10)
	for i := range 300 { // the margin is 4 pixels
		f.frame(box(1, 320+3*float32(math.Sin(float64(i)/7)), 240))
	}
	f.want()
	f.move(1, 320, 240, 250, 240, 10)
	if len(f.said) != 1 || !strings.HasPrefix(f.said[0], "cross door in") {
		t.Errorf("after the line: %q", f.said)
	}
	f.said = nil
	f.move(1, 250, 240, 318, 240, 10)
	for i := range 300 {
		f.frame(box(1, 320+3*float32(math.Sin(float64(i)/7)), 240))
	}
	f.move(1, 318, 240, 250, 240, 10) // and back without having crossed
	f.want()
}

func TestALineAtTheEdgeOfThePictureCounts(t *testing.T) {
	f := newFilm(t, `{"lines":[{"name":"edge","from":[0.015625,1],"to":[0.015625,0]}]}`) // 10 pixels from the left
	large := func(x float32) Object {                                                    // a margin of 40 pixels
		return Object{Track: 1, X1: x - 100, Y1: 0, X2: x + 100, Y2: 400}
	}
	f.frame(large(3))
	f.frame(large(100))
	f.want("cross edge in [1] 200-200")
	f.frame(large(4))
	f.want("cross edge out [1] 300-300")
	f.frame(large(30)) // less than the margin on the other side, which has the room
	f.frame(large(8))
	f.empty(12)
	f.want()
}

func TestAFlickeringObjectStaysInItsZone(t *testing.T) {
	f := newFilm(t, yard)
	f.move(1, 320, 50, 320, 300, 5)
	f.want("enter yard [1] 200-200")
	for range 10 {
		f.empty(9)
		f.frame(box(1, 320, 300))
	}
	f.want()
	f.empty(10)
	f.want()
	f.frame()
	f.want("leave yard [1] 200-10500")
	f.frame(box(1, 320, 300)) // a new stay
	f.want("enter yard [1] 11700-11700")
}

func TestALineIsCrossedWhileHidden(t *testing.T) {
	f := newFilm(t, door)
	f.move(1, 480, 240, 400, 240, 4)
	f.empty(5)
	f.frame(box(1, 240, 240))
	f.want("cross door in [1] 1000-1000")
}

// A tracker keeps ids for longer than the inertia.
func TestAnObjectGoesOnWhileItsIDDoes(t *testing.T) {
	f := newFilm(t, door)
	f.engine.Begin(2 * time.Second)
	f.move(1, 480, 240, 400, 240, 4)
	f.empty(19)
	f.move(1, 240, 240, 240, 240, 1)
	f.want("cross door in [1] 2400-2400")
	f.empty(21)
	f.move(1, 480, 240, 480, 240, 1) // another object
	f.want()
}

func TestABoxOnTheEdgeOfAZoneEntersOnce(t *testing.T) {
	f := newFilm(t, yard)
	f.move(1, 60, 300, 159, 300, 10)
	for i := range 300 { // less than the margin, and never for 2 s
		f.frame(box(1, 160+3*float32(math.Sin(float64(i)/3)), 300))
	}
	f.want()
	f.move(1, 161, 300, 161, 300, 30)
	if len(f.said) != 1 || !strings.HasPrefix(f.said[0], "enter yard [1] 311") {
		t.Errorf("after two seconds: %q", f.said)
	}
}

func TestEdgesOfThePictureAreInside(t *testing.T) {
	f := newFilm(t, `{"settle":"0s","margin":0,"zones":[{"name":"all","polygon":[[0,0],[1,0],[1,1],[0,1]]}]}`)
	f.frame(box(1, 0, 0), box(2, 640, 480), box(3, 700, 500), box(4, -5, 480))
	f.want("enter all [1] 100-100", "enter all [2] 100-100", "enter all [3] 100-100", "enter all [4] 100-100")
}

func TestDwellComesOnceForEachStay(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"yard","dwell":"1s","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`)
	f.move(1, 100, 300, 100, 300, 25)
	f.want("enter yard [1] 100-100", "dwell yard [1] 100-1100")
	f.move(1, 500, 300, 500, 300, 1)
	f.move(1, 100, 300, 100, 300, 11)
	f.want("leave yard [1] 100-2600", "enter yard [1] 2700-2700", "dwell yard [1] 2700-3700")
}

func TestCountNeedsMoreObjectsForTheWholeTime(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"gate","count":{"over":1,"for":"500ms"},"polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`)
	for range 2 {
		for range 4 {
			f.frame(box(1, 100, 300), box(2, 200, 300))
		}
		f.frame(box(1, 100, 300), box(2, 500, 300))
	}
	f.said = nil
	for range 20 {
		f.frame(box(1, 100, 300), box(2, 200, 300))
	}
	f.want("enter gate [2] 1100-1100", "count gate [1 2] 1100-1600")
	f.frame(box(1, 100, 300))
	for range 6 { // fewer objects begin the count again
		f.frame(box(1, 100, 300), box(2, 500, 300))
	}
	for range 6 {
		f.frame(box(1, 100, 300), box(2, 200, 300))
	}
	f.want("leave gate [2] 1100-3200", "enter gate [2] 3800-3800", "count gate [1 2] 3800-4300")
}

func TestAppearAndVanish(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"sky","age":"200ms","appear":true,"vanish":true,"polygon":[[0,0],[1,0],[1,0.5],[0,0.5]]}]}`)
	f.move(1, 100, 100, 100, 100, 5)
	f.move(2, 100, 400, 100, 400, 5)
	f.empty(12)
	f.want("appear sky [1] 100-300", "enter sky [1] 100-300", "leave sky [1] 100-500", "vanish sky [1] 100-500")
}

func TestFiltersOfRules(t *testing.T) {
	r := mustParse(t, `{"lines":[{"name":"people","from":[0.5,0],"to":[0.5,1],"classes":["person"]},
		{"name":"seven","from":[0.5,0],"to":[0.5,1],"classes":["7"]},
		{"name":"sure","from":[0.5,0],"to":[0.5,1],"score":0.8},
		{"name":"top","from":[0,0.5],"to":[1,0.5],"anchor":"top_center"},
		{"name":"old","from":[0.5,0],"to":[0.5,1],"age":"300ms"}]}`)
	e := New(r, "gate", new(rules.Tally))
	e.Name(1, []byte("person"))
	e.Name(2, []byte("car"))
	e.Name(2, []byte("truck"))
	var said []string
	for i := range 6 {
		x := 500 - 80*float32(i)
		person, car, seven := box(1, x, 200), box(2, x, 300), box(3, x, 262)
		car.Class, car.Score, seven.Class, seven.Score = 2, 0.5, 7, 0.5
		if i == 2 { // a wrong class in one frame
			person.Class, car.Class = 2, 1
		}
		if i > 3 {
			seven.Y1, seven.Y2 = seven.Y1+30, seven.Y2+30
		}
		found, err := e.Update(&Frame{Time: time.Duration(i) * 100 * time.Millisecond, Width: 640, Height: 480,
			Objects: []Object{person, car, seven}})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			said = append(said, fmt.Sprint(serial(v.ID), " ", v.Rule, " ", v.Class, " ", v.Tracks[0]))
		}
	}
	want := []string{"1 people person 1", "2 sure person 1", "3 old person 1", "4 old car 2", "5 seven 7 3",
		"6 old 7 3", "7 top 7 3"}
	if !slices.Equal(said, want) {
		t.Errorf("events: %q", said)
	}
}

func TestAnObjectOfAnotherClassIsNoLongerInAZone(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"all","classes":["1"],"score":0.5,"polygon":[[0,0],[1,0],[1,1],[0,1]]}]}`)
	weak := box(1, 100, 300)
	weak.Score = 0.1
	f.frame(weak)
	f.frame(box(1, 100, 300))
	f.frame(weak) // the best score counts
	weak.Class = 2
	for range 10 {
		f.frame(weak)
	}
	f.want("enter all [1] 100-200", "leave all [1] 100-700")
}

// An object that walks into a zone does not appear there, also if the object counts only later.
func TestAWalkIntoAZoneIsNoAppearance(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"left","appear":true,"polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`)
	f.move(1, 400, 240, 240, 240, 2)
	f.want("enter left [1] 200-200")
}

// A long wrong class changes the class of an object after as many boxes as maxVotes.
func TestTheClassOfALongSeenObjectCanChange(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"all","polygon":[[0,0],[1,0],[1,1],[0,1]]}]}`)
	b := box(1, 320, 240)
	for range 2 * maxVotes {
		f.frame(b)
	}
	b.Class = 2
	for range maxVotes + 1 {
		f.frame(b)
	}
	if class := f.engine.byTrack[1].class; class != 2 {
		t.Errorf("after %d boxes of another class: %d", maxVotes+1, class)
	}
	f.empty(12)
	f.want("enter all [1] 100-100", fmt.Sprintf("leave all [1] 100-%d00", 3*maxVotes+1))
	// leaves count for the class of the enter, so that the numbers of each class agree
	if got := counted(f.engine).Zones[0].Classes; len(got) != 1 ||
		got["1"].Visits != (rules.Visits{Enter: 1, Leave: 1}) {
		t.Errorf("%+v", got)
	}
}

// A rule with classes does not count the crossing of an object of another class that vanishes behind the line.
func TestVanishedObjectsOfOtherClassesDoNotCross(t *testing.T) {
	f := newFilm(t, `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1],"classes":["2"]}]}`)
	f.move(1, 330, 240, 318, 240, 4)
	f.empty(12)
	f.want()
}

func TestCountsOfManyClasses(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"all","classes":["2"],"polygon":[[0,0],[1,0],[1,1],[0,1]]},
		{"name":"each","polygon":[[0,0],[1,0],[1,1],[0,1]]}]}`)
	for class := range int32(maxKnown + 100) {
		b := box(int64(class+1), 320, 240)
		b.Class = class
		f.frame(b)
	}
	f.empty(12)
	if n := len(f.engine.zones[0].known); n != maxKnown {
		t.Errorf("%d classes are remembered", n)
	}
	late := box(1<<20, 320, 240)
	late.Class = 1 << 20
	f.frame(late)
	const more = maxKnown + 100 - rules.MaxCounted
	got := counted(f.engine).Zones[1].Classes
	other := got[rules.Other]
	if want := (rules.Visits{Enter: more + 1, Leave: more}); len(got) != rules.MaxCounted+1 || other.Visits != want ||
		other.Now != 1 {
		t.Errorf("%d classes, others %+v, want %+v", len(got), other, want)
	}
}

func TestAtFewFramesASecondObjectsStay(t *testing.T) {
	f := newFilm(t, yard)
	for range 5 {
		f.at += 5 * time.Second
		f.frame(box(1, 320, 300))
	}
	f.want("enter yard [1] 5100-5100")
}

func TestClocksThatStandStillOrJump(t *testing.T) {
	r := mustParse(t, `{"zones":[{"name":"all","dwell":"1s","polygon":[[0,0],[1,0],[1,1],[0,1]]}]}`)
	for name, clock := range map[string]func(i int) time.Duration{
		"stands still": func(int) time.Duration { return 5 * time.Second },
		"goes back":    func(i int) time.Duration { return time.Hour - time.Duration(i)*time.Second },
		"is zero":      func(int) time.Duration { return 0 },
		"is negative":  func(i int) time.Duration { return -time.Hour + time.Duration(i)*time.Second/30 },
	} {
		e, dwells := New(r, "", new(rules.Tally)), 0
		for i := range 60 {
			found, err := e.Update(&Frame{Time: clock(i), Width: 640, Height: 480, Objects: []Object{box(1, 9, 9)}})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range found {
				if v.Type == rules.DwellEvent {
					dwells++
					if i < 28 || i > 31 {
						t.Errorf("the clock %s: dwell in frame %d", name, i)
					}
				}
			}
		}
		if dwells != 1 {
			t.Errorf("the clock %s: %d dwells", name, dwells)
		}
	}
	e := New(r, "", new(rules.Tally))
	for _, at := range []time.Duration{math.MinInt64, math.MaxInt64, 0, math.MaxInt64, math.MinInt64} {
		if _, err := e.Update(&Frame{Time: at, Width: 640, Height: 480, Objects: []Object{box(1, 9, 9)}}); err != nil ||
			e.now.clock < 0 {
			t.Errorf("%v: %v, the clock is %v", at, err, e.now.clock)
		}
	}
}

// The clock of the rules equals the clock of receipt when the clock of a source goes back.
func TestClocksThatGoBackAndForth(t *testing.T) {
	const frame = time.Second / 30
	for name, clock := range map[string]func(i int) time.Duration{
		"alternates": func(i int) time.Duration {
			return time.Hour + time.Duration(i)*frame - time.Duration(i%2)*2*time.Second
		},
		"is of two frames in the wrong order": func(i int) time.Duration { return time.Hour + time.Duration(i^1)*frame },
		"of three frames stands still":        func(i int) time.Duration { return time.Duration(i/3*3) * frame },
		"begins again":                        func(i int) time.Duration { return time.Duration(i%60) * frame },
		"goes back by an hour": func(i int) time.Duration {
			return time.Hour - time.Duration(i/150)*time.Hour
		},
	} {
		e := New(mustParse(t, door), "", new(rules.Tally))
		for i := range 300 {
			received := 7*time.Hour + time.Duration(i)*frame
			if _, err := e.Update(&Frame{Time: clock(i), Received: received, Width: 640, Height: 480}); err != nil {
				t.Fatal(err)
			}
			want := time.Duration(i+1) * frame
			if got := e.now.clock; got < want-2*frame || got > want+2*frame {
				t.Fatalf("the clock %s: %v after frame %d, want %v", name, got, i, want)
			}
		}
	}
}

// A file that is read faster than it plays, and begins again, keeps its own clock.
func TestAFileThatBeginsAgainKeepsItsClock(t *testing.T) {
	e, before := New(mustParse(t, door), "", new(rules.Tally)), time.Duration(0)
	for i := range 300 {
		at := time.Duration(i%100) * 100 * time.Millisecond
		if _, err := e.Update(&Frame{Time: at, Width: 640, Height: 480}); err != nil {
			t.Fatal(err)
		}
		if step := e.now.clock - before; i%100 > 11 && step != 100*time.Millisecond {
			t.Fatalf("frame %d: the clock advanced by %v", i, step)
		}
		before = e.now.clock
	}
}

// The events of a result that did not arrive come again, with their ids and before later events.
func TestEventsComeAgain(t *testing.T) {
	e := New(mustParse(t, yard), "", new(rules.Tally))
	update := func(objects ...Object) (ids []string) {
		found, err := e.Update(&Frame{Time: e.now.at + time.Second, Width: 640, Height: 480, Objects: objects})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			ids = append(ids, v.ID)
		}
		return ids
	}
	first := update(box(1, 320, 300))
	e.Vanish()
	e.Repeat()
	second := update(box(1, 320, 300))
	if len(first) != 1 || len(second) != 3 || second[0] != first[0] || serial(second[1]) != "2" {
		t.Errorf("events %q, then %q", first, second)
	}
	e.Repeat()
	if third := update(box(1, 320, 300)); !slices.Equal(third, second) {
		t.Errorf("events %q, then %q", second, third)
	}
	if fourth := update(box(1, 320, 300)); len(fourth) != 0 {
		t.Errorf("events %q came again", fourth)
	}
	e.queued = make([]Event, maxRepeated+5)
	e.Repeat()
	if len(e.queued) != maxRepeated {
		t.Errorf("%d events wait", len(e.queued))
	}
}

// The end of a video gives the events of all objects once, and before them the events of a frame without an answer.
func TestEndOfVideo(t *testing.T) {
	for _, answered := range []bool{true, false} {
		h := rules.NewHandle(mustParse(t, yard))
		var entered []Event
		var r *stream.Request
		if !answered {
			r = &stream.Request{}
		}
		h.Use(func(live *rules.Live) {
			a := &applied{Engine: Continue(h.Rules(), "", live), last: r}
			live.Engine = a
			var err error
			if entered, err = a.Update(&Frame{Time: time.Second, Width: 640, Height: 480,
				Objects: []Object{box(1, 320, 300)}}); err != nil || len(entered) != 1 {
				t.Fatalf("%+v, %v", entered, err)
			}
		})
		id := entered[0].ID
		list := h.End()
		if !answered && (len(list) < 2 || list[0].ID != id) || answered && slices.ContainsFunc(list,
			func(v Event) bool { return v.ID == id }) || list[len(list)-1].Type != rules.LeaveEvent {
			t.Errorf("answered %v: %+v", answered, list)
		}
		if again := h.End(); len(again) != 0 {
			t.Errorf("the events come again: %+v", again)
		}
	}
}

func TestAnotherModelNamesClassesAgain(t *testing.T) {
	e := New(mustParse(t, `{"zones":[{"name":"all","classes":["car"],"polygon":[[0,0],[1,0],[1,1],[0,1]]}]}`), "",
		new(rules.Tally))
	for i, name := range []string{"person", "car"} {
		e.Begin(0)
		e.Name(1, []byte(name))
		found, err := e.Update(&Frame{Time: time.Second, Width: 640, Height: 480, Objects: []Object{box(1, 9, 9)}})
		if err != nil || len(found) != i || i == 1 && found[0].Class != "car" {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
}

// Frames without a capture time have the time of receipt by the wall clock, and a source may begin at 0.
func TestTimesOfSources(t *testing.T) {
	now := stream.Now()
	ahead := time.Now().Add(1000 * time.Hour) // the clock was set
	wallNow = func() time.Time { return ahead }
	defer func() { wallNow = time.Now }()
	for _, test := range []struct {
		frame stream.Frame
		want  time.Duration
	}{
		{stream.Frame{}, time.Duration(now.Wall().UnixNano())},
		{stream.Frame{CaptureUS: 33333}, 33333 * time.Microsecond},
		{stream.Frame{Captured: true}, 0},
	} {
		s, r := stage{}, stream.Request{Frame: test.frame, Timing: stream.Timing{Received: now}}
		e := New(mustParse(t, door), "", new(rules.Tally))
		if err := s.read(&r, nil, e); err != nil || s.frame.Time != test.want ||
			s.frame.Received != time.Duration(now) || s.frame.Wall.Before(ahead.Add(-time.Hour)) {
			t.Errorf("%+v: %v, want the time %v: %v", test.frame, s.frame, test.want, err)
		}
	}
}

// A server that has started again, with the same source, has other ids.
func TestIDsDoNotComeAgain(t *testing.T) {
	ids := map[string]bool{}
	for range 2 {
		f := newFilm(t, yard)
		for i := range 3 {
			found, err := f.engine.Update(&Frame{Time: time.Second, Width: 640, Height: 480,
				Objects: []Object{box(int64(i+1), 320, 300)}})
			if err != nil || len(found) != 1 || ids[found[0].ID] {
				t.Errorf("%+v, %v", found, err)
			}
			ids[found[0].ID] = true
		}
	}
}

func TestAChangeOfThePicturesSizeMovesNoObject(t *testing.T) {
	f := newFilm(t, `{"width":1280,"height":960,"lines":[{"name":"door","from":[640,0],"to":[640,960]}]}`)
	f.frame(box(1, 400, 240))
	big := box(1, 800, 480)
	found, err := f.engine.Update(&Frame{Time: time.Second, Width: 1280, Height: 960, Objects: []Object{big}})
	if err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := f.engine.Update(&Frame{Time: time.Second}); err == nil || !strings.Contains(err.Error(), "rules") {
		t.Errorf("a frame without a size: %v", err)
	}
}

func TestObjectsAreBounded(t *testing.T) {
	f := newFilm(t, door)
	var many []Object
	for i := range MaxObjects + 88 {
		many = append(many, box(int64(i+1), 400, 240))
	}
	f.frame(many...)
	if got := f.engine.Ignored(); got != 88 || len(f.engine.objects) != MaxObjects {
		t.Errorf("%d ignored, %d objects", got, len(f.engine.objects))
	}
	f.frame(many[1:MaxObjects]...)
	f.frame(many[1 : MaxObjects+1]...) // the first object makes room
	if got := f.engine.Ignored(); got != 88 || f.engine.byTrack[1] != nil || f.engine.byTrack[MaxObjects+1] == nil {
		t.Errorf("%d ignored, with an object that has no box", got)
	}
	f.empty(12)
	if len(f.engine.objects) != 0 || len(f.engine.byTrack) != 0 {
		t.Errorf("%d objects after their end", len(f.engine.objects))
	}
}

func TestBoxesThatAreNoBoxes(t *testing.T) {
	f := newFilm(t, door)
	nan := float32(math.NaN())
	f.move(1, 400, 240, 340, 240, 2)
	f.frame(Object{Track: 1, X1: nan, X2: 1, Y2: 1}, Object{Track: 1, X1: 9, X2: 1, Y2: 1},
		Object{Track: 1, X2: float32(math.Inf(1)), Y2: 1}, Object{Track: 0, X2: 1, Y2: 1})
	f.frame(box(1, 300, 240), box(1, 500, 240)) // the first box of a track counts
	f.want("cross door in [1] 400-400")
}

// The rules of a stream go on in another process, where its objects have vanished.
func TestARestoredEngineGoesOn(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 30, 0, 0, time.UTC)
	r := mustParse(t, `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}],"zones":[{"name":"left","vanish":true,
		"polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`)
	run := func(save int) (said []string, counts rules.Counts) {
		h, ids := rules.NewHandle(r), map[string]bool{}
		for i := range 30 {
			if i == save {
				saved := h.Save(at)
				if again := h.Save(at); string(again) != string(saved) {
					t.Errorf("%s, then %s", saved, again)
				}
				h = rules.NewHandle(r)
				if err := h.Restore(saved); err != nil {
					t.Fatal(err)
				}
				if again := h.Save(at); string(again) != string(saved) { // before a frame
					t.Errorf("%s, restored: %s", saved, again)
				}
			}
			f := Frame{Time: time.Duration(i) * 100 * time.Millisecond, Wall: at, Width: 640, Height: 480}
			if i < 10 {
				f.Objects = []Object{box(1, 500-40*float32(i), 240), box(2, 318, 240)}
			}
			h.Use(func(live *rules.Live) {
				e, _ := live.Engine.(*Engine)
				if e == nil {
					e = Continue(r, "gate", live)
				}
				found, err := e.Update(&f)
				if err != nil {
					t.Fatal(err)
				}
				for i := range found {
					said = append(said, describe(&found[i]))
					if ids[found[i].ID] {
						t.Errorf("the id %s comes again", found[i].ID)
					}
					ids[found[i].ID] = true
				}
			})
		}
		return said, h.Counts(at)
	}
	want, counts := run(-1)
	if len(want) != 7 {
		t.Errorf("%q", want)
	}
	got, restored := run(10) // both objects vanish by the restart
	if !slices.Equal(got, want) {
		t.Errorf("events:\n%q\nof an engine that was saved:\n%q", want, got)
	}
	if fmt.Sprint(restored) != fmt.Sprint(counts) || restored.Zones[0].Day != (rules.Visits{Enter: 2, Leave: 2}) {
		t.Errorf("counts %+v, of an engine that was saved %+v", counts, restored)
	}
}

func TestChangedRulesKeepCounts(t *testing.T) {
	f := newFilm(t, `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}],"zones":[
		{"name":"left","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]},{"name":"all","polygon":[[0,0],[1,0],[1,1],[0,1]]}]}`)
	f.move(1, 480, 240, 160, 240, 8)
	f.said = nil
	f.engine.Change(mustParse(t, `{"zones":[{"name":"left","polygon":[[0,0],[0.1,0],[0.1,1],[0,1]]},
		{"name":"new","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}],"lines":[{"name":"door","from":[0.2,0],"to":[0.2,1]}]}`))
	f.move(1, 160, 240, 100, 240, 2)
	f.want("leave all [1] 100-800", "leave left [1] 500-900", "enter new [1] 900-900", "cross door in [1] 1000-1000")
	counts := counted(f.engine)
	if counts.Lines[0].Classes["1"].In != 2 || counts.Zones[0].Visits != (rules.Visits{Enter: 1, Leave: 1}) ||
		counts.Zones[1].Visits != (rules.Visits{Enter: 1}) || counts.Zones[1].Now != 1 {
		t.Errorf("%+v", counts)
	}
	f.engine.tally.Reset(time.Time{})
	counts = counted(f.engine)
	if len(counts.Lines[0].Classes) != 0 || counts.Zones[1].Classes["1"] != (rules.Stays{Now: 1}) {
		t.Errorf("after a reset: %+v", counts)
	}
}

// A change of other rules does not end a crossing that is not yet certain.
func TestAChangeOfOtherRulesKeepsCrossings(t *testing.T) {
	const left = `{"zones":[{"name":"left","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}],"lines":[
		{"name":"door","from":[0.5,0],"to":[0.5,1]}%s]}`
	f := newFilm(t, fmt.Sprintf(left, ""))
	f.move(1, 330, 240, 318, 240, 4) // less than the margin behind the line
	f.move(1, 318, 240, 318, 240, 10)
	f.engine.Change(mustParse(t, fmt.Sprintf(left, `,{"name":"other","from":[0,0.1],"to":[1,0.1]}`)))
	f.move(1, 318, 240, 318, 240, 11)
	f.want("enter left [1] 400-2400") // after two seconds
	f.move(1, 310, 240, 310, 240, 1)
	f.want("cross door in [1] 400-2600")
}

func TestDwellEndsAtTheEdge(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"yard","dwell":"3s","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`)
	f.move(1, 300, 300, 300, 300, 20)
	f.move(1, 322, 300, 322, 300, 15) // outside, by less than the margin
	f.move(1, 400, 300, 400, 300, 5)
	f.want("enter yard [1] 100-100", "leave yard [1] 100-2100")
}

// A box at the edge of the picture does not wait for the distance from a zone's edge there.
func TestZonesEndAtTheEdgeOfThePicture(t *testing.T) {
	f := newFilm(t, `{"zones":[{"name":"yard","polygon":[[0,0.5],[1,0.5],[1,1],[0,1]]}]}`)
	f.frame(Object{Track: 1, X1: 40, Y1: 0, X2: 160, Y2: 230})
	f.frame(Object{Track: 1, X1: 40, Y1: 230, X2: 160, Y2: 480})
	f.want("enter yard [1] 200-200")
	f.frame(Object{Track: 1, X1: 40, Y1: 10, X2: 160, Y2: 235}) // 5 pixels from the upper edge
	f.want()
}

func TestAScoreThatIsNotANumberIsIgnored(t *testing.T) {
	f := newFilm(t, `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1],"score":0.5}]}`)
	for i, x := range []float32{480, 400, 330, 240, 330, 240} {
		b := box(1, x, 240)
		if i%2 == 0 {
			b.Score = float32(math.NaN())
		}
		f.frame(b)
	}
	f.want("cross door in [1] 400-400", "cross door out [1] 500-500", "cross door in [1] 600-600")
}

func TestAMovedZoneBeginsAgain(t *testing.T) {
	const before, after = `{"zones":[{"name":"left","polygon":[[0,0],[0.515,0],[0.515,1],[0,1]]}]}`,
		`{"zones":[{"name":"left","polygon":[[0,0],[0.516,0],[0.516,1],[0,1]]}]}`
	f := newFilm(t, before)
	f.move(1, 328, 240, 328, 240, 15) // less than the margin from the edge
	f.engine.Change(mustParse(t, after))
	f.move(1, 328, 240, 328, 240, 20)
	f.want()
	f.frame(box(1, 328, 240))
	f.want("enter left [1] 1600-3600")
}
