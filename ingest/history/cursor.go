package history

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Cursor reads the events of a stream in the order of their addition, for one receiver. The database keeps the place
// after the acknowledged events, so that a receiver goes on after a restart. Each event that the history gets after
// Follow, and each earlier event without an acknowledgement, is acknowledged, lost or waiting. While the database does
// not work, the receiver gets the events that wait for the database, also before events in the database. All methods
// are safe for concurrent use.
type Cursor struct {
	h            *History
	stream, name string
	wake         chan struct{}

	reading sync.Mutex // held while events are read or counted in the database; taken before h.mu

	// Under h.mu.
	in      *database // the database in which the unread events were counted; nil = to be counted
	loaded  bool      // the places are known
	afresh  bool      // a place in the database is of an earlier receiver
	acked   int64     // number of the newest acknowledged event
	read    int64     // number of the newest read event
	changed bool      // the place has to be written
	queued  int       // events that wait for the database
	unread  int       // events in the database
	flight  int       // events that were read from the database, and not acknowledged
	lost    uint64
	ahead   map[string]early // events read from the queue, by id, that are not yet read from the database
	scanned uint64           // events that the history had written before, and that were in the front of the queue
	early   int              // events read from the queue, and not acknowledged
	doubled int              // events of ahead that are stored, and not taken
}

// early is the state of an event that was read from the queue.
type early struct {
	acknowledged bool
	stored       bool // the database has the event
	taken        bool // read from the database, too
}

// Item is an event read by a Cursor.
type Item struct {
	Text []byte // the event as JSON
	seq  int64
	in   *database // nil = of the queue
	id   string
}

// place is a row of a cursor.
type place struct {
	stream, name string
	seq          int64
	waiting      int // events after seq
}

// placeKey names a place.
type placeKey struct{ stream, name string }

// Follow returns the cursor of the named receiver of a stream. A new receiver gets the events added from now on.
func (h *History) Follow(stream, name string) *Cursor {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := &Cursor{h: h, stream: stream, name: name, wake: make(chan struct{}, 1)}
	list := h.cursors[stream]
	if i := slices.IndexFunc(list, func(o *Cursor) bool { return o.name == name }); i >= 0 { // of an ended receiver
		o := list[i]
		k.loaded, k.afresh, k.changed = o.loaded, o.afresh, true
		k.acked, k.read, k.unread = o.acked, o.acked, o.unread+o.flight
		k.ahead = o.ahead
		maps.DeleteFunc(k.ahead, func(_ string, e early) bool { return !e.acknowledged })
		for _, e := range k.ahead {
			if e.stored {
				k.doubled++
			}
		}
		list[i] = k
	} else {
		_, removed := h.unfollowed[placeKey{stream, name}]
		_, forgotten := h.states[stateKey{stream: stream}]
		k.afresh = removed || forgotten
		h.cursors[stream] = append(list, k)
	}
	for i := range h.queue {
		if _, given := k.ahead[h.queue[i].event.ID]; !given && h.queue[i].event.Stream == stream {
			k.queued++
		}
	}
	h.signal()
	return k
}

// Unfollow removes the named receiver of a stream, with the place in the history.
func (h *History) Unfollow(stream, name string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unfollowed[placeKey{stream, name}] = struct{}{}
	h.cursors[stream] = slices.DeleteFunc(h.cursors[stream], func(k *Cursor) bool { return k.name == name })
	if len(h.cursors[stream]) == 0 {
		delete(h.cursors, stream)
	}
}

// Wake returns a channel that receives after events can be read.
func (k *Cursor) Wake() <-chan struct{} { return k.wake }

func (k *Cursor) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// wakeCursors lets the receivers read the queue. h.mu is held.
func (h *History) wakeCursors() {
	for _, list := range h.cursors {
		for _, k := range list {
			k.signal()
		}
	}
}

// Next reads up to limit of the next events. Without an event to read, Next returns none.
func (k *Cursor) Next(ctx context.Context, limit int) ([]Item, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	for {
		k.h.mu.Lock()
		db, read := k.in, k.read
		if k.h.db == nil && k.h.err != errNotOpen {
			defer k.h.mu.Unlock()
			return k.fromQueue(limit), nil
		}
		if db == nil || db != k.h.db || k.unread == 0 {
			k.h.mu.Unlock()
			return nil, nil
		}
		db.readers.Add(1)
		k.h.mu.Unlock()
		list, read, err := db.after(ctx, k.stream, read, limit)
		db.readers.Done()
		if isDamage(err) {
			k.h.failed(db, err)
		}
		if err != nil {
			return nil, err
		}
		if list = k.took(list, read); len(list) > 0 {
			return list, nil
		}
	}
}

// took counts events read from the database, and returns those that were not read from the queue before.
func (k *Cursor) took(list []Item, read int64) []Item {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	k.read = read
	k.unread -= len(list)
	if len(list) == 0 { // the database has fewer events than were counted
		k.in = nil
		k.h.signal()
	}
	list = slices.DeleteFunc(list, func(v Item) bool {
		e, given := k.ahead[v.id]
		switch {
		case e.stored:
			delete(k.ahead, v.id)
			k.doubled--
		case given:
			e.taken = true
			k.ahead[v.id] = e
		}
		return given
	})
	k.flight += len(list)
	if k.flight+k.early == 0 {
		k.acked, k.changed = read, true
	}
	return list
}

// fromQueue reads events of the queue. h.mu is held.
func (k *Cursor) fromQueue(limit int) (list []Item) {
	h := k.h
	for i := max(k.scanned, h.stats.Written) - h.stats.Written; i < uint64(len(h.queue)) && len(list) < limit; i++ {
		w := &h.queue[i]
		k.scanned = h.stats.Written + i + 1
		if _, given := k.ahead[w.event.ID]; given || w.event.Stream != k.stream {
			continue
		}
		if k.ahead == nil {
			k.ahead = map[string]early{}
		}
		k.ahead[w.event.ID] = early{}
		k.queued--
		k.early++
		list = append(list, Item{Text: w.text, id: w.event.ID})
	}
	return list
}

// Done acknowledges an event of Next. Events are acknowledged in order.
func (k *Cursor) Done(v Item) {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	if v.in == nil {
		k.early--
		if e, waits := k.ahead[v.id]; waits {
			e.acknowledged = true
			k.ahead[v.id] = e
		}
		if k.in != nil && k.in == k.h.db && k.flight+k.early == 0 {
			k.acked, k.changed = k.read, true
		}
		return
	}
	k.flight--
	if v.in == k.in {
		k.acked, k.changed = v.seq, true
	}
}

// Stats returns the number of events that wait for an acknowledgement, of these the number not returned by Next, and
// the number of lost events: removed before Next, or not taken by the history.
func (k *Cursor) Stats() (waiting, unread int, lost uint64) {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	// While a batch is committed, its events may be read before they count as unread.
	unread = k.queued + max(k.unread, 0)
	return max(k.queued+k.unread-k.doubled+k.flight+k.early, 0), unread, k.lost
}

// recount makes all cursors count the unread events again, after a removal of events. h.mu is held.
func (h *History) recount() {
	for _, list := range h.cursors {
		for _, k := range list {
			k.in = nil
		}
	}
}

// uncounted returns a cursor that has to be counted, or nil. h.mu is held.
func (h *History) uncounted() *Cursor {
	for _, list := range h.cursors {
		for _, k := range list {
			if k.in == nil || k.in != h.db {
				return k
			}
		}
	}
	return nil
}

// count finds the place and the unread events of a cursor in the database. Fewer events than expected are lost: the
// bounds of the history have removed events, or a damaged database was replaced. Only Run calls count, between writes.
func (k *Cursor) count(db *database) error {
	k.reading.Lock()
	defer k.reading.Unlock()
	row, found, err := db.place(k.stream, k.name)
	if err != nil {
		return err
	}
	newest, err := db.newest()
	if err != nil {
		return err
	}
	k.h.mu.Lock()
	expected := k.unread
	switch {
	case k.loaded:
	case found && !k.afresh:
		k.acked, k.read, expected = row.seq, row.seq, row.waiting
	default:
		k.acked, k.read, k.afresh = newest, newest, false
	}
	k.loaded, k.changed = true, true
	k.acked, k.read = min(k.acked, newest), min(k.read, newest)
	read, ahead := k.read, slices.Collect(maps.Keys(k.ahead))
	k.h.mu.Unlock()
	n, there, err := db.unread(k.stream, read, ahead)
	if err != nil {
		return err
	}
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	doubled := 0
	maps.DeleteFunc(k.ahead, func(id string, e early) bool {
		if e.stored && there[id] {
			doubled++
		}
		return e.stored && !there[id] // was read before, or removed
	})
	expected -= max(k.doubled-doubled, 0) // were delivered
	if k.doubled = doubled; n < expected {
		k.lost += uint64(expected - n)
	}
	k.unread, k.in = n, db
	k.pass(newest)
	k.signal()
	return nil
}

// places returns the changed places with the events in the database, to be written with a batch. h.mu is held.
func (h *History) places(batch []waiting) (list []place) {
	for _, cursors := range h.cursors {
		for _, k := range cursors {
			own := slices.ContainsFunc(batch, func(w waiting) bool { return w.event.Stream == k.stream })
			if k.changed || own {
				list = append(list, place{k.stream, k.name, k.acked, k.unread + k.flight})
				k.changed = false
			}
		}
	}
	return list
}

// unplaced makes places be written again, after an error. h.mu is held.
func (h *History) unplaced(list []place) {
	for _, p := range list {
		for _, k := range h.cursors[p.stream] {
			k.changed = k.changed || k.name == p.name
		}
	}
}

// stored counts a written batch. before and newest are the numbers of the newest event before and after the batch,
// repeated the events of the batch that were in the database before. moved says that places have to be written again.
// h.mu is held.
func (h *History) stored(db *database, batch []waiting, before, newest int64, repeated map[int]bool) (moved bool) {
	if len(h.cursors) == 0 {
		return false
	}
	for _, list := range h.cursors {
		for _, k := range list {
			if k.in == db && k.unread == 0 {
				k.read = max(k.read, before) // so that Next does not read the events of other streams again
			}
		}
	}
	for i := range batch {
		for _, k := range h.cursors[batch[i].event.Stream] {
			switch e, given := k.ahead[batch[i].event.ID]; {
			case !given:
				k.queued--
			case e.taken:
				delete(k.ahead, batch[i].event.ID)
			default:
				e.stored = true
				if k.ahead[batch[i].event.ID] = e; !repeated[i] { // otherwise counted again
					k.doubled++
				}
			}
			switch {
			case repeated[i]: // by another event of this id, or by a write whose success was not known
				k.in = nil
				h.signal()
			case k.in == db:
				k.unread++
				k.signal()
			}
		}
	}
	for _, list := range h.cursors {
		for _, k := range list {
			moved = k.pass(newest) || moved
		}
	}
	return moved
}

// pass acknowledges all events of the database, up to the newest, if all unread events were read from the queue and
// acknowledged. h.mu is held.
func (k *Cursor) pass(newest int64) bool {
	if k.in == nil || k.unread <= 0 || k.unread != k.doubled || k.flight+k.early > 0 {
		return false
	}
	maps.DeleteFunc(k.ahead, func(_ string, e early) bool { return e.stored })
	k.acked, k.read, k.changed = newest, newest, true
	k.unread, k.doubled = 0, 0
	return true
}
