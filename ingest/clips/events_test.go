package clips

import (
	"fmt"
	"slices"
	"testing"
)

// of returns the sorted ids of the clips with an event.
func (s *Store) of(event string) (ids []string) {
	list, _ := s.List(Query{Event: event, Limit: 9, Keep: all})
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

// A clip is found by its events while the clip grows, when it is ready, and after a restart, and no longer when it is
// removed. Streams may have events with the same id.
func TestClipsOfEvent(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{"cross"}, Before: seconds(1), After: seconds(1)})
	found := func(event string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := r.store.of(event); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", event, got, want)
		}
	}
	r.play(1, 0, 15)
	r.event("cross", 12)
	r.event("cross", 13)
	r.play(1, 15, 16)
	r.recorded(16)
	list, _ := r.store.List(Query{Limit: 1, Keep: all})
	first := list[0]
	found("e12", first.ID)
	found("e13", first.ID)
	r.play(1, 16, 40)
	r.writes.Wait()
	found("e13", first.ID)
	found("e1")
	r.play(1, 40, 60)
	r.event("cross", 55)
	r.Events("m", []Incident{{Text: []byte(`{"type":"cross","id":"e12"}`), ID: "e12", Type: "cross",
		At: r.list[57].PTS}}, nil)
	r.Close()
	r.writes.Wait()
	<-r.made
	second := (<-r.made).ID
	found("e12", second, first.ID)
	r.store.Close()
	var err error
	if r.store, err = Open(quiet(r.folder)); err != nil {
		t.Fatal(err)
	}
	found("e12", second, first.ID)
	found("e55", second)
	if list, _ := r.store.List(Query{Event: "e12", Stream: "gate", Limit: 9, Keep: all}); len(list) != 0 {
		t.Errorf("of another stream: %v", list)
	}
	if err := r.store.Delete(first.ID); err != nil {
		t.Fatal(err)
	}
	found("e12", second)
	found("e13")
	if err := r.store.Delete(second); err != nil {
		t.Fatal(err)
	}
	if n := len(r.store.events); n != 0 {
		t.Errorf("%d events of removed clips", n)
	}
}

// BenchmarkListOfEvent finds the clip of an event among 100,000 clips of 4 events.
func BenchmarkListOfEvent(b *testing.B) {
	s := &Store{clips: map[string]*Clip{}, events: map[string][]string{}}
	for i := range maxClips {
		c := &Clip{ID: fmt.Sprintf("20261130-%06d-A", i)}
		for k := range 4 {
			id := fmt.Sprintf("K7QWZ2M5TB4XA-%d", 4*i+k)
			c.Events = append(c.Events, Event{ID: id, Event: fmt.Appendf(nil, `{"type":"cross","id":%q}`, id)})
		}
		s.add(c)
	}
	b.ReportAllocs()
	for b.Loop() {
		if list, _ := s.List(Query{Event: "K7QWZ2M5TB4XA-7", Limit: 9, Keep: all}); len(list) != 1 {
			b.Fatal(list)
		}
	}
}
