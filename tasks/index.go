package tasks

import (
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// index holds all tasks in memory. It has no lock of its own.
type index struct {
	opts   Options
	tasks  map[string]*entry
	ids    []string // sorted, and so in the order of the submissions
	counts counts
	uses   map[string]*Use       // by owner; owners without tasks are absent
	bytes  int64                 // of the inputs and results of all tasks
	gone   map[string]struct{}   // tasks that this process has deleted, until the bucket reports the deletion
	ready  map[string]*entryHeap // queued tasks that may begin, by model: the next task first
	due    entryHeap             // all tasks with a time at which something happens: the earliest first
	hooks  entryHeap             // ended tasks with a message to post to the webhook: the earliest next attempt first
	hooked chan struct{}         // gets a value when the earliest time of hooks has changed
	more   chan struct{}         // closed when a task becomes ready; nil = nobody waits
	sooner chan struct{}         // gets a value when the earliest time of due has changed
}

// entry is a task in the index.
type entry struct {
	Task
	revision uint64
	// when something happens without a change: NotBefore, Expires, the end of a lease or of the retention
	at      time.Time
	place   [3]int // in ready, due and hooks; -1 = not there
	watched chan struct{}
	logged  chan struct{} // closed when the log grows; nil = nobody waits
	told    time.Time     // when watchers were last told of progress
	telling bool          // watchers will be told after progressPause
	live    bool          // Progress is newer than the progress in the record
}

// The heaps of an entry.
const (
	inReady = 0
	inDue   = 1
	inHooks = 2
)

func newIndex(o Options) index {
	return index{
		opts: o, tasks: map[string]*entry{}, counts: newCounts(), uses: map[string]*Use{}, gone: map[string]struct{}{},
		ready: map[string]*entryHeap{}, due: entryHeap{which: inDue}, hooks: entryHeap{which: inHooks},
		hooked: make(chan struct{}, 1), sooner: make(chan struct{}, 1),
	}
}

// put replaces a task by a newer revision; nil = the task is deleted. An older revision changes nothing.
func (x *index) put(id string, t *Task, revision uint64, now time.Time) {
	e := x.tasks[id]
	if e != nil && revision <= e.revision {
		return
	}
	var old *Task
	switch {
	case e == nil && t == nil:
		delete(x.gone, id)
		return
	case e == nil && x.deleted(id):
		return // an earlier revision, which the bucket reports late
	case e == nil:
		e = &entry{place: [3]int{-1, -1, -1}}
		x.tasks[id] = e
		i, _ := slices.BinarySearch(x.ids, id)
		x.ids = slices.Insert(x.ids, i, id)
	default:
		x.use(&e.Task, -1)
		x.unready(e)
		x.unhook(e) // before its time changes
		old = &e.Task
	}
	x.counts.change(old, t)
	e.tell()
	if t == nil {
		x.remove(id, e)
		return
	}
	progress := t.Progress
	if e.live = e.live && t.State == Running && t.Attempt == e.Attempt; e.live {
		progress = e.Progress
	}
	e.Task, e.revision = *t, revision
	e.Progress = progress
	x.use(t, 1)
	x.place(e, now)
	x.hook(e)
}

// hook puts an ended task whose webhook waits into hooks.
func (x *index) hook(e *entry) {
	if !e.hooked() || e.place[inHooks] >= 0 {
		return
	}
	heap.Push(&x.hooks, e)
	if x.hooks.entries[0] == e {
		select {
		case x.hooked <- struct{}{}:
		default:
		}
	}
}

// hooked reports whether the ended task is still to be posted to the webhook.
func (e *entry) hooked() bool {
	return e.State.Ended() && e.Webhook != nil && e.Webhook.State == Waiting
}

// hookAt returns the time of the next post to the webhook of an ended task.
func (e *entry) hookAt() time.Time { return latest(e.Ended, e.Webhook.Next) }

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// unhook takes a task from hooks.
func (x *index) unhook(e *entry) {
	if e.place[inHooks] >= 0 {
		heap.Remove(&x.hooks, e.place[inHooks])
	}
}

// use adds a task to the use of its owner, or with sign = -1 subtracts the task.
func (x *index) use(t *Task, sign int) {
	u := x.uses[t.Owner]
	if u == nil {
		u = &Use{}
		x.uses[t.Owner] = u
	}
	u.Bytes += int64(sign) * t.bytes()
	x.bytes += int64(sign) * (t.bytes() - recordBytes)
	if !t.State.Ended() {
		u.Waiting += sign
	}
	if *u == (Use{}) {
		delete(x.uses, t.Owner)
	}
}

// delete deletes a task that this process has deleted from the bucket.
func (x *index) delete(id string, now time.Time) {
	if e := x.tasks[id]; e != nil {
		x.put(id, nil, e.revision+1, now)
		x.gone[id] = struct{}{}
	}
}

func (x *index) deleted(id string) bool {
	_, gone := x.gone[id]
	return gone
}

// remove forgets a deleted task.
func (x *index) remove(id string, e *entry) {
	delete(x.tasks, id)
	if i, ok := slices.BinarySearch(x.ids, id); ok {
		x.ids = slices.Delete(x.ids, i, i+1)
	}
	if e.place[inDue] >= 0 {
		heap.Remove(&x.due, e.place[inDue])
	}
}

// place puts a task into the heaps. seen is when its revision became known: leases are measured from then.
func (x *index) place(e *entry, seen time.Time) {
	e.at = time.Time{}
	switch {
	case e.State == Queued && e.NotBefore.After(seen):
		e.at = e.NotBefore
	case e.State == Queued:
		e.at = e.Expires
		x.makeReady(e)
	case e.State == Running:
		e.at = seen.Add(x.opts.Lease)
	default:
		e.at = e.Ended.Add(x.retention(e))
		if e.hooked() {
			e.at = latest(e.at, e.Ended.Add(webhookTime))
		}
	}
	switch {
	case e.at.IsZero() && e.place[inDue] >= 0:
		heap.Remove(&x.due, e.place[inDue])
	case e.at.IsZero():
	case e.place[inDue] >= 0:
		heap.Fix(&x.due, e.place[inDue])
	default:
		heap.Push(&x.due, e)
	}
	if x.due.Len() > 0 && x.due.entries[0] == e {
		select {
		case x.sooner <- struct{}{}:
		default:
		}
	}
}

// retention returns how long a task stays after its end.
func (x *index) retention(e *entry) time.Duration {
	if e.Retention > 0 {
		return e.Retention.Duration()
	}
	return x.opts.Retention
}

// makeReady offers a queued task to consumers.
func (x *index) makeReady(e *entry) {
	h := x.ready[e.Model]
	if h == nil {
		h = &entryHeap{which: inReady}
		x.ready[e.Model] = h
	}
	heap.Push(h, e)
	x.wake()
}

// wake lets the waiting consumers look for a task.
func (x *index) wake() {
	if x.more != nil {
		close(x.more)
		x.more = nil
	}
}

// unready takes a task from the queue of its model.
func (x *index) unready(e *entry) {
	if e.place[inReady] < 0 {
		return
	}
	h := x.ready[e.Model]
	heap.Remove(h, e.place[inReady])
	if h.Len() == 0 {
		delete(x.ready, e.Model)
	}
}

// next takes the next ready task of the models for which serves is true; nil = none. The task stays in the index, and
// is ready again only by put or by makeReady.
func (x *index) next(serves func(model string) bool) *entry {
	var best *entry
	for model, h := range x.ready {
		if e := h.entries[0]; serves(model) && (best == nil || earlier(e, best)) {
			best = e
		}
	}
	if best != nil {
		x.unready(best)
	}
	return best
}

// earlier reports whether a begins before b: by priority, then by the time of the submission.
func earlier(a, b *entry) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.ID < b.ID
}

// wait returns a channel that is closed when a task becomes ready.
func (x *index) wait() <-chan struct{} {
	if x.more == nil {
		x.more = make(chan struct{})
	}
	return x.more
}

// tell wakes those who wait for a change of the task.
func (e *entry) tell() {
	if e.watched != nil {
		close(e.watched)
		e.watched = nil
	}
}

// changed returns a channel that is closed at the next revision or progress of the task.
func (e *entry) changed() <-chan struct{} {
	if e.watched == nil {
		e.watched = make(chan struct{})
	}
	return e.watched
}

// entryHeap is a heap of entries that know their places.
type entryHeap struct {
	entries []*entry
	which   int
}

func (h *entryHeap) Len() int { return len(h.entries) }

func (h *entryHeap) Less(i, j int) bool {
	switch h.which {
	case inDue:
		return h.entries[i].at.Before(h.entries[j].at)
	case inHooks:
		return h.entries[i].hookAt().Before(h.entries[j].hookAt())
	}
	return earlier(h.entries[i], h.entries[j])
}

func (h *entryHeap) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].place[h.which], h.entries[j].place[h.which] = i, j
}

// Push implements heap.Interface.
func (h *entryHeap) Push(x any) {
	e := x.(*entry)
	e.place[h.which] = len(h.entries)
	h.entries = append(h.entries, e)
}

// Pop implements heap.Interface.
func (h *entryHeap) Pop() any {
	n := len(h.entries) - 1
	e := h.entries[n]
	h.entries[n] = nil
	h.entries = h.entries[:n]
	e.place[h.which] = -1
	return e
}

// idempotencyKey returns the key of the bucket for an idempotency key, which may have any characters.
func idempotencyKey(owner, key string) string {
	h := sha256.Sum256([]byte(owner + "\x00" + key))
	return "k." + hex.EncodeToString(h[:])
}
