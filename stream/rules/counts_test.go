package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

var gate = &Rules{Lines: []Line{{Name: "door"}}, Zones: []Zone{{Name: "yard"}}}

// add counts events as "type rule class", with the direction of a line after a further space.
func add(t *Tally, at time.Time, texts ...string) {
	for _, text := range texts {
		f := append(strings.Fields(text), "")
		t.Add(&Event{Type: EventType(f[0]), Rule: f[1], Class: f[2], Direction: f[3]}, at)
	}
}

func TestCountsByClassAndPeriod(t *testing.T) {
	zone := time.FixedZone("", 5*3600+1800) // hours begin at half hours of UTC
	at := time.Date(2026, 12, 1, 23, 59, 58, 0, zone)
	var n Tally
	n.Begin(at)
	n.Begin(at.Add(time.Hour))
	add(&n, at, "cross door person in", "cross door car out", "enter yard person", "dwell yard person",
		"count yard person")
	add(&n, at.Add(time.Second), "cross door person in")
	c := n.Counts(gate, at.Add(time.Second))
	two, all := Directions{In: 2}, Directions{In: 2, Out: 1}
	if d := c.Lines[0]; !c.Since.Equal(at) || d.Crossings != (Crossings{all, all, all, all}) ||
		d.Classes["person"] != (Crossings{two, two, two, two}) || len(d.Classes) != 2 {
		t.Errorf("%+v", c)
	}
	if z := c.Zones[0]; z.Now != 1 || z.Visits != (Visits{Enter: 1}) || z.Classes["person"] != z.Stays {
		t.Errorf("%+v", z)
	}
	next := at.Add(2 * time.Second) // the next minute, hour and day, read without an event
	if d := n.Counts(gate, next).Lines[0]; d.Crossings != (Crossings{Directions: all}) {
		t.Errorf("%+v", d)
	}
	add(&n, next, "cross door car in")
	if d := n.Counts(gate, next.Add(time.Hour)).Lines[0]; d.Directions != (Directions{3, 1}) ||
		d.Classes["person"].Day != (Directions{}) || d.Day != (Directions{In: 1}) || d.Hour != (Directions{}) {
		t.Errorf("%+v", d)
	}
}

func TestAResetKeepsObjectsInZones(t *testing.T) {
	var n Tally
	at := time.Unix(1e9, 0)
	for i := range MaxCounted + 2 {
		add(&n, at, fmt.Sprint("enter yard c", i))
	}
	add(&n, at, "enter yard c0", "leave yard c0", "cross door person in")
	n.Reset(at)
	c := n.Counts(gate, at)
	if z := c.Zones[0]; !c.Since.Equal(at) || z.Now != MaxCounted+2 || z.Visits != (Visits{}) ||
		z.Classes[Other].Now != 2 || len(c.Lines[0].Classes) != 0 {
		t.Errorf("%+v", c)
	}
	add(&n, at, "leave yard c0", fmt.Sprint("leave yard c", MaxCounted), fmt.Sprint("leave yard c", MaxCounted+1))
	if z := n.Counts(gate, at).Zones[0]; z.Now != MaxCounted-1 || z.Classes[Other] != (Stays{Visits: Visits{Leave: 2},
		Minute: Visits{Leave: 2}, Hour: Visits{Leave: 2}, Day: Visits{Leave: 2}}) {
		t.Errorf("%d, others %+v", z.Now, z.Classes[Other])
	}
}

func TestAClassCalledOther(t *testing.T) {
	var n Tally
	at := time.Unix(1e9, 0)
	add(&n, at, "cross door other in", "cross door other in", "cross door other in")
	for i := range MaxCounted + 1 {
		add(&n, at, fmt.Sprint("cross door c", i, " in"))
	}
	if d := n.Counts(gate, at).Lines[0]; d.Classes[Other].In != 4 || d.In != MaxCounted+4 {
		t.Errorf("%+v of %+v", d.Classes[Other], d.Directions)
	}
}

func TestRulesOfTheOtherKindBeginAgain(t *testing.T) {
	var n Tally
	at := time.Unix(1e9, 0)
	add(&n, at, "cross door person in", "enter yard person")
	n.Keep(&Rules{Lines: []Line{{Name: "yard"}, {Name: "door"}}})
	if len(n.Rules) != 1 || n.Rules["door"] == nil {
		t.Errorf("%+v", n.Rules)
	}
}

func TestRestoredStates(t *testing.T) {
	var h Handle
	h.Set(gate)
	at := time.Unix(1e9, 0).UTC()
	h.Use(func(live *Live) {
		live.Tally.Begin(at)
		add(&live.Tally, at, "cross door person in", "enter yard person")
		live.Events = []Event{{ID: "7-5", Type: LeaveEvent, Rule: "yard", Tracks: []int64{1}}}
	})
	other := NewHandle(gate)
	if err := other.Restore(h.Save(at)); err != nil {
		t.Fatal(err)
	}
	want := h.Counts(at)
	want.Zones[0].Now, want.Zones[0].Leave = 0, 1
	want.Zones[0].Classes["person"] = want.Zones[0].Stays
	text, _ := json.Marshal(other.Counts(at))
	var got Counts
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got.Lines, want.Lines) ||
		got.Zones[0].Leave != 1 || got.Zones[0].Now != 0 || !got.Since.Equal(at) {
		t.Errorf("%s, want %+v (%v)", text, want, err)
	}
	other.Use(func(live *Live) {
		if len(live.Events) != 1 || live.Events[0].ID != "7-5" {
			t.Errorf("%+v", live.Events)
		}
	})
	for _, wrong := range []string{"", "{}", `{"version":2}`, "[1]", `{"version":1,"tally":{"rules":{"a":null}}}`,
		`{"version":1,"tally":{"rules":{"a":{"classes":{"b":null}}}}}`} {
		if other.Restore([]byte(wrong)) == nil {
			t.Errorf("%q was restored", wrong)
		}
	}
}

// A state that is read late adds its numbers, unless the counts were reset meanwhile.
func TestAStateReadLate(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 59, 0, 0, time.UTC)
	before := NewHandle(gate)
	before.live.Tally.Begin(at)
	add(&before.live.Tally, at, "cross door person in", "cross door car out", "enter yard person")
	before.live.Events = []Event{{ID: "saved"}}
	state := before.Save(at)

	later := at.Add(time.Minute) // the next hour
	h := NewHandle(gate)
	h.live.Tally.Begin(later)
	add(&h.live.Tally, later, "cross door person in", "enter yard person")
	h.live.Events = []Event{{ID: "new"}}
	changes := h.Changes()
	if err := h.Restore(state); err != nil || h.Changes() == changes {
		t.Error(err)
	}
	c := h.Counts(later)
	if d := c.Lines[0]; !c.Since.Equal(at) || d.Directions != (Directions{In: 2, Out: 1}) ||
		d.Hour != (Directions{In: 1}) || d.Day != d.Directions || d.Classes["person"].In != 2 {
		t.Errorf("%+v", c)
	}
	if z := c.Zones[0]; z.Now != 1 || z.Visits != (Visits{Enter: 2, Leave: 1}) {
		t.Errorf("%+v", z)
	}
	if v := h.live.Events; len(v) != 2 || v[0].ID != "saved" {
		t.Errorf("%+v", v)
	}
	h = NewHandle(gate)
	h.Reset(later)
	if err := h.Restore(state); err != nil {
		t.Error(err)
	}
	if c := h.Counts(later); !c.Since.Equal(later) || c.Lines[0].Crossings != (Crossings{}) {
		t.Errorf("after a reset: %+v", c)
	}
}
