package history

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"millrace/stream/rules"
)

// read reads and acknowledges all events of a cursor but the last keep.
func read(t *testing.T, k *Cursor, limit, keep int) string {
	t.Helper()
	var all []Item
	for {
		list, err := k.Next(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		all = append(all, list...)
	}
	var ids []string
	for i, v := range all {
		id, _, _ := strings.Cut(strings.TrimPrefix(string(v.Text), `{"id":"`), `"`)
		if ids = append(ids, id); i < len(all)-keep {
			k.Done(v)
		}
	}
	return strings.Join(ids, " ")
}

func (k *Cursor) want(t *testing.T, waiting, unread int, lost uint64) {
	t.Helper()
	w, u, l := k.Stats()
	if w != waiting || u != unread || l != lost {
		t.Errorf("%d wait, %d unread, %d lost; want %d, %d, %d", w, u, l, waiting, unread, lost)
	}
}

// A receiver gets each event of its stream from its beginning on, in order, and after a restart each event without an
// acknowledgement again, before the newer ones.
func TestACursorGoesOn(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	h := open(t, o)
	put(t, h, "early gate cross door person")
	h.writeAll()
	k, other := h.Follow("gate", "mqtt"), h.Follow("gate", "kafka")
	for i := range 7 {
		put(t, h, fmt.Sprintf("g%d gate cross door person", i))
		put(t, h, fmt.Sprintf("b%d back cross door person", i))
	}
	k.want(t, 7, 7, 0)
	h.writeAll()
	if got := read(t, k, 2, 3); got != "g0 g1 g2 g3 g4 g5 g6" {
		t.Error(got)
	}
	k.want(t, 3, 0, 0)
	other.want(t, 7, 7, 0)
	put(t, h, "g7 gate cross door person")
	put(t, h, "g7 gate cross door person") // repeated
	h.writeAll()
	h.writeAll()
	k.want(t, 4, 1, 0)
	h.end()

	h = open(t, o)
	k, other = h.Follow("gate", "mqtt"), h.Follow("gate", "kafka")
	put(t, h, "g8 gate cross door person")
	h.writeAll()
	k.want(t, 5, 5, 0)
	if got := read(t, k, 100, 0); got != "g4 g5 g6 g7 g8" {
		t.Error(got)
	}
	if got := read(t, other, 3, 0); got != "g0 g1 g2 g3 g4 g5 g6 g7 g8" {
		t.Error(got)
	}
	k.want(t, 0, 0, 0)
	h.Unfollow("gate", "mqtt")
	put(t, h, "g9 gate cross door person")
	h.writeAll()
	h.end()

	h = open(t, o)
	k, other = h.Follow("gate", "mqtt"), h.Follow("gate", "kafka")
	h.writeAll()
	k.want(t, 0, 0, 0)
	other.want(t, 1, 1, 0)
	h.Forget("gate")
	h.writeAll()
	other = h.Follow("gate", "kafka")
	h.writeAll()
	other.want(t, 0, 0, 0)
}

// The events of a receiver are acknowledged, lost or waiting, whatever happens to the database.
func TestLossesOfACursor(t *testing.T) {
	o := Options{Folder: t.TempDir(), Retention: time.Hour}
	h := open(t, o)
	k := h.Follow("gate", "mqtt")
	h.writeAll()
	for i := range 10 {
		put(t, h, fmt.Sprintf("g%d gate cross door person", i))
	}
	h.writeAll()
	list, err := k.Next(t.Context(), 4)
	if err != nil || len(list) != 4 {
		t.Fatal(list, err)
	}
	k.Done(list[0])

	h.remove(begun.Add(time.Hour + 6*time.Second)) // the first 6, of these 4 are with the receiver
	h.writeAll()
	k.want(t, 3+4, 4, 2)
	h.end()

	h = open(t, o) // with 6 removed events without an acknowledgement: 3 after a kill, and 3 while the server was away
	h.remove(begun.Add(time.Hour + 9*time.Second))
	k = h.Follow("gate", "mqtt")
	h.writeAll()
	k.want(t, 1, 1, 6)

	put(t, h, "h0 gate cross door person")
	h.writeAll()
	if err := os.Remove(h.db.path); err != nil {
		t.Fatal(err)
	}
	put(t, h, "h1 gate cross door person")
	h.writeAll() // fails
	k.want(t, 3, 3, 6)
	h.Open() // a new database, without the 2 events of the old database
	h.writeAll()
	k.want(t, 1, 1, 8)
	if got := read(t, k, 9, 0); got != "h1" {
		t.Error(got)
	}
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	put(t, h, "h2 gate cross door person")
	k.want(t, 0, 0, 9)
}

// While the database does not work, a receiver gets the events that wait, and once the database has the events, only
// the others.
func TestACursorReadsAhead(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	h := open(t, o)
	k, away := h.Follow("gate", "mqtt"), h.Follow("gate", "kafka")
	put(t, h, "g0 gate cross door person")
	h.writeAll()
	if got := read(t, k, 9, 0); got != "g0" {
		t.Error(got)
	}
	h.failed(h.db, errors.New("the disk is full"))
	for i := 1; i < 6; i++ {
		put(t, h, fmt.Sprintf("g%d gate cross door person", i))
		put(t, h, fmt.Sprintf("b%d back cross door person", i))
	}
	if got := read(t, k, 2, 1); got != "g1 g2 g3 g4 g5" {
		t.Error(got)
	}
	k.want(t, 1, 0, 0)
	away.want(t, 6, 6, 0)
	if got := read(t, k, 2, 0); got != "" {
		t.Error("again: ", got)
	}
	h.Open()
	put(t, h, "g6 gate cross door person")
	k.want(t, 2, 1, 0)
	h.writeAll()
	k.want(t, 2, 6, 0) // 5 of them were read before
	if got := read(t, k, 2, 0); got != "g6" {
		t.Error(got)
	}
	k.want(t, 1, 0, 0)
	k.Done(Item{id: "g5"})
	k.want(t, 0, 0, 0)
	if len(k.ahead) != 0 {
		t.Errorf("%v is left", k.ahead)
	}
	if got := read(t, away, 2, 0); got != "g0 g1 g2 g3 g4 g5 g6" {
		t.Error(got)
	}
	h.failed(h.db, errors.New("the disk is full"))
	put(t, h, "g7 gate cross door person")
	if got := read(t, k, 2, 1); got != "g7" {
		t.Error(got)
	}
	k = h.Follow("gate", "mqtt") // of new settings, when the receiver before had not acknowledged
	if got := read(t, k, 2, 0); got != "g7" {
		t.Error(got)
	}
	h.Open()
	h.writeAll()
	if got := read(t, k, 2, 0); got != "" {
		t.Error("again: ", got)
	}
	k.want(t, 0, 0, 0)
	h.writeAll()
	h.end()

	h = open(t, o)
	k = h.Follow("gate", "mqtt")
	h.writeAll()
	k.want(t, 0, 0, 0)
}

// outage makes a database fail after it has the events g0 of the stream gate and b0 of back, which were read.
func outage(t *testing.T, o Options) (*History, *Cursor) {
	t.Helper()
	h := open(t, o)
	k := h.Follow("gate", "mqtt")
	put(t, h, "b0 back cross door person")
	put(t, h, "g0 gate cross door person")
	h.writeAll()
	if got := read(t, k, 9, 0); got != "g0" {
		t.Fatal(got)
	}
	h.failed(h.db, errors.New("the disk is full"))
	return h, k
}

// again wants that nothing comes to the receiver after a restart.
func again(t *testing.T, h *History, o Options) {
	t.Helper()
	h.Close()
	h.writeAll()
	h.end()
	h = open(t, o)
	k := h.Follow("gate", "mqtt")
	h.writeAll()
	if got := read(t, k, 9, 0); got != "" {
		t.Errorf("after a restart, again: %s", got)
	}
}

// An event that comes again with the id of an earlier event hides no later event.
func TestReadAheadOfRepeatedEvents(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	h, k := outage(t, o)
	put(t, h, "g0 gate cross door person")
	put(t, h, "b0 back cross door person") // another stream's
	read(t, k, 9, 0)
	h.Open()
	h.writeAll()
	h.writeAll()
	put(t, h, "g1 gate cross door person")
	h.writeAll()
	if got := read(t, k, 9, 0); got != "g1" {
		t.Errorf("after the repeated event: %q", got)
	}
	k.want(t, 0, 0, 0)
	if len(k.ahead) != 0 {
		t.Errorf("%v is left", k.ahead)
	}
	h.failed(h.db, errors.New("the disk is full"))
	put(t, h, "b0 back cross door person")
	put(t, h, "g2 gate cross door person")
	read(t, k, 9, 0)
	h.Open()
	h.writeAll()
	again(t, h, o)
}

// Events that are acknowledged only when the database works again do not come again.
func TestReadAheadAcknowledgedLater(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	h, k := outage(t, o)
	for _, id := range []string{"g1", "g2", "g3"} {
		put(t, h, id+" gate cross door person")
	}
	list, err := k.Next(t.Context(), 9)
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	h.Open()
	h.writeAll()
	if got := read(t, k, 9, 0); got != "" {
		t.Error("again: ", got)
	}
	for _, v := range list {
		k.Done(v)
	}
	k.want(t, 0, 0, 0)
	again(t, h, o)
}

// A sink with new settings gets what the sink before had not acknowledged, and the numbers stay right. Delivered events
// that vanish with a database are not lost.
func TestReadAheadOfAnotherSink(t *testing.T) {
	h, k := outage(t, Options{Folder: t.TempDir()})
	for _, id := range []string{"g1", "g2", "g3", "g4"} {
		put(t, h, id+" gate cross door person")
	}
	read(t, k, 9, 1) // g4 is not acknowledged
	h.Open()
	h.writeAll()
	k = h.Follow("gate", "mqtt")
	h.writeAll()
	if got := read(t, k, 9, 0); got != "g4" {
		t.Error(got)
	}
	k.want(t, 0, 0, 0)

	h.failed(h.db, errors.New("the disk is full"))
	put(t, h, "g5 gate cross door person")
	put(t, h, "g6 gate cross door person")
	read(t, k, 9, 1)
	h.Open()
	h.writeAll()
	if err := os.Remove(h.db.path); err != nil {
		t.Fatal(err)
	}
	put(t, h, "g7 gate cross door person")
	h.writeAll() // fails
	h.Open()
	h.writeAll()
	k.Done(Item{id: "g6"})
	read(t, k, 9, 0)
	k.want(t, 0, 0, 0)
}

// BenchmarkCursor adds events, and reads and acknowledges the events, with all writes to disk.
func BenchmarkCursor(b *testing.B) {
	h := New(Options{Folder: b.TempDir()})
	h.Open()
	ended := make(chan struct{})
	go func() { defer close(ended); h.Run() }()
	k := h.Follow("gate", "mqtt")
	line := []byte(`{"id":"K7QWZ2M5TB4XA-7","x":"` + strings.Repeat("x", 150) + `"}`)
	done, added := 0, 0
	for b.Loop() {
		v := rules.Event{ID: fmt.Sprint(added), Stream: "gate", Type: rules.CrossEvent}
		h.Add("people", &v, line)
		for added++; added-done > 5000; {
			list, err := k.Next(b.Context(), 100)
			if err != nil {
				b.Fatal(err)
			}
			for _, i := range list {
				k.Done(i)
			}
			if done += len(list); len(list) == 0 {
				<-k.Wake()
			}
		}
	}
	h.Close()
	<-ended
}
