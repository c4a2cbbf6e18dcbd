package history

import (
	"context"
	"slices"
	"sync"
)

// Cursor reads the events of a stream in the order of their addition, for one receiver. The database keeps the place
// after the acknowledged events, so that a receiver goes on after a restart. Each event that the history gets after
// Follow, and each earlier event without an acknowledgement, is acknowledged, lost or waiting. All methods are safe for
// concurrent use.
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
	flight  int       // events that were read, and not acknowledged
	lost    uint64
}

// Item is an event read by a Cursor.
type Item struct {
	Text []byte // the event as JSON
	seq  int64
	in   *database
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
		k.acked, k.read, k.queued, k.unread = o.acked, o.acked, o.queued, o.unread+o.flight
		list[i] = k
	} else {
		_, removed := h.unfollowed[placeKey{stream, name}]
		_, forgotten := h.states[stateKey{stream: stream}]
		k.afresh = removed || forgotten
		for i := range h.queue {
			if h.queue[i].event.Stream == stream {
				k.queued++
			}
		}
		h.cursors[stream] = append(list, k)
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

// Next reads up to limit of the next events. Without an event to read, Next returns none.
func (k *Cursor) Next(ctx context.Context, limit int) ([]Item, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	k.h.mu.Lock()
	db, read := k.in, k.read
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
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	k.read = read
	k.unread -= len(list)
	k.flight += len(list)
	return list, nil
}

// Done acknowledges an event of Next. Events are acknowledged in order.
func (k *Cursor) Done(v Item) {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
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
	return max(k.queued+k.unread+k.flight, 0), unread, k.lost
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
	read := k.read
	k.h.mu.Unlock()
	n, err := db.count(k.stream, read)
	if err != nil {
		return err
	}
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	if n < expected {
		k.lost += uint64(expected - n)
	}
	k.unread, k.in = n, db
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

// stored counts a written batch. before is the number of the newest event before the batch, repeated the events of the
// batch that were in the database before. h.mu is held.
func (h *History) stored(db *database, batch []waiting, before int64, repeated map[int]bool) {
	if len(h.cursors) == 0 {
		return
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
			k.queued--
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
}
