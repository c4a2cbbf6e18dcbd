package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"millrace/stream"
	"millrace/stream/rules"
)

// Options configure a History. Zero fields take their defaults.
type Options struct {
	Folder    string        // of the database; created when missing
	Retention time.Duration // events older than this are removed; default 30 days
	MaxBytes  int64         // the oldest events are removed beyond this size of the database; default 1 GiB
	Log       *slog.Logger
}

// Bounds of the events that wait for the database.
const (
	maxWaiting      = 100_000
	maxWaitingBytes = 32 << 20
)

const (
	batchSize  = 1000                  // events of a transaction
	batchTime  = time.Second           // longest time that an event waits for others
	retryTime  = 5 * time.Second       // between attempts to open the database
	removeTime = time.Minute           // between removals of old events
	soonTime   = 20 * time.Millisecond // longest time that an event with a receiver waits for others
)

// Entry is an event in the history.
type Entry struct {
	Time  time.Time // by the server's clock
	Model string
	rules.Event
}

// waiting is an event that is not in the database.
type waiting struct {
	at    int64 // Unix microseconds
	model string
	event rules.Event
	text  []byte // of event, as JSON
}

// stateKey names the saved state of the rules of a model's stream.
type stateKey struct{ stream, model string }

// History is a database of events. A nil History keeps nothing. All methods are safe for concurrent use.
type History struct {
	o     Options
	wake  chan struct{} // one slot: a batch is full, more is to be removed, or Close was called
	reads chan struct{} // has the reads of now

	mu     sync.Mutex
	queue  []waiting
	bytes  int                 // of the texts in queue
	states map[stateKey][]byte // to be written; nil = to be removed
	taken  map[stateKey][]byte // of states, being written now
	stats  Stats
	db     *database // nil = not open
	err    error     // why db is nil
	closed bool

	cursors    map[string][]*Cursor  // of the streams
	unfollowed map[placeKey]struct{} // places to be removed

	last    time.Time // of the newest event
	damaged bool      // the database has to be renamed
	begun   uint64    // empty databases
	now     func() time.Time

	stateTime time.Duration // bounds the wait of State, whose caller may hold up a stream and can ask again
}

// Stats are the counters of a History.
type Stats struct {
	Written uint64 // events in the database, repeated events included
	Lost    uint64 // events that did not reach the database
	Waiting int
	Bytes   int64 // of the database
	Err     error // why the database cannot be written now
}

// New returns a History. Open opens the database.
func New(o Options) *History {
	o.Retention = cmp.Or(o.Retention, 30*24*time.Hour)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &History{o: o, wake: make(chan struct{}, 1), reads: make(chan struct{}, maxReads),
		states: map[stateKey][]byte{}, cursors: map[string][]*Cursor{}, unfollowed: map[placeKey]struct{}{},
		err: errNotOpen, now: time.Now, stateTime: time.Second}
}

var errNotOpen = stream.Errorf(stream.Unavailable, "", "the history of events is not open yet")

// Open opens the database. Without success, Run tries again.
func (h *History) Open() {
	if h == nil {
		return
	}
	h.mu.Lock()
	damaged := h.damaged
	h.mu.Unlock()
	db, err := openDatabase(h.o, &damaged)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.damaged = damaged
	if db != nil && db.fresh {
		h.begun++
	}
	if err != nil {
		err = stream.Errorf(stream.Unavailable, "data", "the history of events in %s cannot be used: %w", h.o.Folder,
			err)
	}
	h.db = db
	if err != nil || h.err == errNotOpen || len(h.queue)+len(h.states) == 0 {
		h.setError(err)
	}
	if err != nil {
		h.wakeCursors()
	}
	// Otherwise the next write tells whether the history works again.
}

// setError keeps and logs an error, nil for none. h.mu is held.
func (h *History) setError(err error) {
	switch {
	case err != nil && (h.err == nil || h.err.Error() != err.Error()):
		h.o.Log.Error("the history of events does not work: events wait, and may be lost", "error", err)
	case err == nil && h.err != nil && h.err != errNotOpen:
		h.o.Log.Info("the history of events works again", "lost", h.stats.Lost)
	}
	h.err = err
}

// maxStep is the largest step back of the clock that the times of events do not follow, so that events added later come
// later.
const maxStep = time.Minute

// Add adds an event of a model's stream without waiting for the disk. text is the event as JSON. The event is lost, and
// counted, when too many events wait.
func (h *History) Add(model string, v *rules.Event, text []byte) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.queue) >= maxWaiting || h.bytes+len(text) > maxWaitingBytes {
		h.stats.Lost++
		for _, k := range h.cursors[v.Stream] {
			k.lost++
		}
		return
	}
	if now := h.now(); now.After(h.last) || h.last.Sub(now) > maxStep {
		h.last = now
	}
	h.queue = append(h.queue, waiting{h.last.UnixMicro(), model, *v, text})
	h.queue[len(h.queue)-1].event.Tracks = nil // are in the text
	h.bytes += len(text)
	for _, k := range h.cursors[v.Stream] {
		if k.queued++; h.db == nil {
			k.signal()
		}
	}
	if len(h.queue) >= batchSize || len(h.cursors[v.Stream]) > 0 {
		h.signal()
	}
}

// SetState keeps the state of the rules of a model's stream for the next start; nil removes the state.
func (h *History) SetState(name, model string, state []byte) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states[stateKey{name, model}] = state
}

// Forget removes the states and the receivers of a stream.
func (h *History) Forget(name string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.states, func(k stateKey, _ []byte) bool { return k.stream == name })
	h.states[stateKey{stream: name}] = nil
	delete(h.cursors, name)
}

// State returns the state that SetState has kept, or nil. After an error the state may still be there.
func (h *History) State(name, model string) ([]byte, error) {
	if h == nil {
		return nil, nil
	}
	h.mu.Lock()
	for _, waiting := range []map[stateKey][]byte{h.states, h.taken} {
		text, newer := waiting[stateKey{name, model}]
		_, forgotten := waiting[stateKey{stream: name}]
		if newer || forgotten {
			h.mu.Unlock()
			return text, nil
		}
	}
	db, err := h.reading()
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.stateTime)
	defer cancel()
	text, err := db.state(ctx, name, model)
	db.readers.Done()
	if isDamage(err) {
		h.failed(db, err)
	}
	return text, err
}

// reading returns the database for a read, with the read counted in readers. h.mu is held.
func (h *History) reading() (*database, error) {
	if h.db == nil {
		return nil, h.err
	}
	h.db.readers.Add(1)
	return h.db, nil
}

// Begun counts the empty databases, which have no states: SetState has to keep all states again.
func (h *History) Begun() uint64 {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun
}

// signal wakes Run.
func (h *History) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Close makes Run write what waits, and return.
func (h *History) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.signal()
}

// Run writes events and states until Close.
func (h *History) Run() {
	if h == nil {
		return
	}
	tick := time.NewTicker(batchTime)
	defer tick.Stop()
	var removed, tried time.Time
	for {
		select {
		case <-h.wake:
		case <-tick.C:
		}
		if h.soon() {
			time.Sleep(soonTime)
		}
		h.mu.Lock()
		open, closed := h.db != nil, h.closed
		h.mu.Unlock()
		now := time.Now()
		if !open && (closed || now.Sub(tried) >= retryTime) {
			tried = now
			h.Open()
			h.remove(now) // makes room before the events that wait
		}
		for h.write() {
		}
		if !closed && now.Sub(removed) >= removeTime && !h.remove(now) {
			removed = now
		}
		if closed {
			h.end()
			return
		}
	}
}

// soon reports whether a batch may become larger before it is written.
func (h *History) soon() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && len(h.queue) < batchSize
}

// write writes a batch, and reports whether more events wait.
func (h *History) write() bool {
	h.mu.Lock()
	db := h.db
	for k := h.uncounted(); db != nil && k != nil; k = h.uncounted() {
		h.mu.Unlock()
		if err := k.count(db); err != nil {
			h.failed(db, err)
			return false
		}
		h.mu.Lock()
	}
	batch, states, unfollowed := h.queue[:min(len(h.queue), batchSize)], h.states, h.unfollowed
	if db == nil {
		h.mu.Unlock()
		return false
	}
	places := h.places(batch)
	if len(batch)+len(states)+len(places)+len(unfollowed) == 0 {
		h.mu.Unlock()
		return false
	}
	h.states, h.taken, h.unfollowed = map[stateKey][]byte{}, states, map[placeKey]struct{}{}
	h.mu.Unlock()
	before, newest, repeated, err := db.write(batch, states, places, unfollowed)
	if err == nil {
		err = db.present(h.o.Folder)
	}
	h.mu.Lock()
	h.taken = nil
	if err != nil {
		defer h.failed(db, err)
		for k, text := range states { // unless a newer state or a removal of the stream has come
			_, newer := h.states[k]
			if _, forgotten := h.states[stateKey{stream: k.stream}]; !newer && !forgotten {
				h.states[k] = text
			}
		}
		h.unplaced(places)
		maps.Copy(h.unfollowed, unfollowed)
		h.mu.Unlock()
		return false
	}
	defer h.mu.Unlock()
	h.setError(nil)
	for i := range batch {
		h.bytes -= len(batch[i].text)
	}
	h.stats.Written += uint64(len(batch))
	moved := h.stored(db, batch, before, newest, repeated)
	h.queue = h.queue[len(batch):]
	if len(h.queue) == 0 {
		h.queue = nil
	}
	return len(h.queue) >= batchSize || h.closed && (len(h.queue) > 0 || moved || h.uncounted() != nil)
}

// failed closes the database after an error, when its readers have ended: Run opens the database again.
func (h *History) failed(db *database, err error) {
	h.mu.Lock()
	h.setError(stream.Errorf(stream.Unavailable, "data", "the history of events in %s does not work: %w", h.o.Folder,
		err))
	own := h.db == db
	if own {
		h.damaged = h.damaged || isDamage(err)
		h.db = nil
		h.wakeCursors()
	}
	h.mu.Unlock()
	if own {
		db.close()
	}
}

// remove removes some old events, and reports whether more are left. The rest waits for the next round of Run, so that
// neither writes nor Close wait for the removal of many events.
func (h *History) remove(now time.Time) (more bool) {
	h.mu.Lock()
	db := h.db
	h.mu.Unlock()
	if db == nil {
		return false
	}
	size, removed, more, err := db.remove(now.Add(-h.o.Retention), h.o.MaxBytes)
	if err != nil {
		h.failed(db, err)
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Bytes = size
	if removed > 0 {
		h.recount()
	}
	if more {
		h.signal()
	}
	return more
}

// end closes the database, and counts what is left as lost.
func (h *History) end() {
	h.mu.Lock()
	if n := len(h.queue); n > 0 {
		h.stats.Lost += uint64(n)
		h.o.Log.Error("events are not in the history", "events", n, "error", h.err)
	}
	h.queue, h.bytes = nil, 0
	db := h.db
	h.db, h.err = nil, errNotOpen
	h.mu.Unlock()
	if db != nil {
		db.close()
	}
}

// Stats reads the counters.
func (h *History) Stats() Stats {
	if h == nil {
		return Stats{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.Waiting = len(h.queue)
	if s.Err = h.err; s.Err == errNotOpen {
		s.Err = nil
	}
	return s
}

// Query selects events. Empty fields select all.
type Query struct {
	Stream, Type, Rule, Class string
	From, To                  time.Time // of the receipt: From <= time < To
	Oldest                    bool      // in the order of their addition; otherwise the newest first
	After                     string    // Next of the page before
	Limit                     int
}

// MaxLimit is the largest page.
const MaxLimit = 1000

// maxReads is the largest number of pages that are read at once.
const maxReads = 4

var errBusy = stream.Errorf(stream.Unavailable, "", "%d searches of events run already: try again in a moment, and "+
	"name a camera or a short time in searches, so that they end soon", maxReads)

// queryTime bounds the search for a page.
const queryTime = 10 * time.Second

// Events returns a page of events, and the place of the next page, "" at the end. With q.Oldest, next is also set at
// the end when there are events: later events come after it.
func (h *History) Events(ctx context.Context, q Query) (events []Entry, next string, err error) {
	if h == nil {
		return nil, "", stream.Errorf(stream.Unsupported, "data",
			"is not set, so the server keeps no events: start the server with --data FOLDER (events.folder with "+
				"nats). Events are also in the results of the streams")
	}
	select {
	case h.reads <- struct{}{}:
		defer func() { <-h.reads }()
	default:
		return nil, "", errBusy
	}
	h.mu.Lock()
	db, err := h.reading()
	h.mu.Unlock()
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTime, errSlow)
	defer cancel()
	events, next, err = db.events(ctx, q)
	db.readers.Done()
	if isDamage(err) {
		h.failed(db, err)
	}
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		err = errSlow
	}
	if named := (*stream.Error)(nil); err != nil && !errors.As(err, &named) {
		err = stream.Errorf(stream.Unavailable, "data", "the history of events cannot be read: %w", err)
	}
	return events, next, err
}

var errSlow = stream.Errorf(stream.Timeout, "from",
	"the search takes longer than %s: name a camera, or a shorter time by from and to", queryTime)

// decode reads the row of an event.
func decode(rows *sql.Rows) (e Entry, seq int64, err error) {
	var at int64
	var text []byte
	if err = rows.Scan(&seq, &at, &e.Model, &text); err == nil {
		err = json.Unmarshal(text, &e.Event)
	}
	e.Time = time.UnixMicro(at).UTC()
	return e, seq, err
}
