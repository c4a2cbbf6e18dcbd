package tasks

import (
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"millrace/stream"
)

// index holds all tasks in memory. It has no lock of its own.
type index struct {
	opts           Options
	tasks          map[string]*entry
	ids            []string // sorted, and so in the order of the submissions
	counts         counts
	uploads        int                   // unfinished, which count as tasks that wait
	usage          map[string]*Usage     // by owner; owners without tasks are absent
	bytes          int64                 // of the inputs and results of all tasks, and of unfinished uploads
	followed       bool                  // the bucket reports all changes, or is being read
	tombstones     map[string]struct{}   // tasks that this process has deleted, until the bucket reports the deletion
	ready          map[string]*entryHeap // queued tasks that may begin, by model: the next task first
	times          entryHeap             // queued tasks that wait for a time of day: the earliest first
	waits          entryHeap             // tasks to which something happens after a wait: the earliest end first
	webhooks       entryHeap             // ended tasks whose webhook waits for a post: the earliest next post first
	webhookSignal  chan struct{}         // gets a value when the earliest time of webhooks has changed
	readySignal    chan struct{}         // closed when a task becomes ready; nil = nobody waits
	deadlineSignal chan struct{}         // gets a value when the earliest time of times or waits has changed
}

// entry is a task in the index.
type entry struct {
	Task
	revision      uint64
	begun         bool           // the record says queued, and the file of begun attempts has the attempt
	beginning     bool           // the file is getting the attempt
	changing      int            // changes of the record in progress
	claim         *StoreClaim    // of the running attempt, when it renews itself; nil = none
	at            time.Time      // in times: NotBefore or Expires
	due           stream.Instant // in waits: the end of a lease, a wait after a failure, or a retention
	heapIndex     [4]int         // in ready, times, waits and webhooks; -1 = not there
	changeSignal  chan struct{}
	endSignal     chan struct{} // closed when the task ends or is deleted; nil = nobody waits
	logSignal     chan struct{} // closed when the log grows; nil = nobody waits
	notifiedAt    time.Time     // when watchers were last notified of progress
	notifyPending bool          // watchers will be notified after progressPause
	progressDirty bool          // Progress is newer than the progress in the record
}

// The heaps of an entry.
const (
	inReady    = 0
	inTimes    = 1
	inWaits    = 2
	inWebhooks = 3
)

func newIndex(o Options) index {
	return index{
		opts: o, followed: true, tasks: map[string]*entry{}, counts: newCounts(), usage: map[string]*Usage{},
		tombstones: map[string]struct{}{}, ready: map[string]*entryHeap{}, times: entryHeap{heap: inTimes},
		waits: entryHeap{heap: inWaits}, webhooks: entryHeap{heap: inWebhooks},
		webhookSignal: make(chan struct{}, 1), deadlineSignal: make(chan struct{}, 1),
	}
}

// put replaces a task by a newer revision; nil = the task is deleted. An older revision changes nothing.
func (x *index) put(id string, t *Task, revision uint64, now moment) {
	e := x.tasks[id]
	if e != nil && revision <= e.revision {
		return
	}
	switch {
	case e == nil && t == nil:
		delete(x.tombstones, id)
		return
	case e == nil && x.isTombstone(id):
		return // an earlier revision, which the bucket reports late
	case e == nil:
		e = &entry{heapIndex: [4]int{-1, -1, -1, -1}}
		id = t.ID // the other string is a part of the bucket's message
		x.tasks[id] = e
		i, _ := slices.BinarySearch(x.ids, id)
		x.ids = slices.Insert(x.ids, i, id)
		x.counts.change(nil, t)
	default:
		x.leave(e, t)
	}
	e.tellClaim(t)
	e.notifyWatchers()
	if t == nil || t.State.Ended() {
		e.notifyEnd()
	}
	if t == nil {
		x.drop(id, e)
		return
	}
	x.enter(e, t, revision, now)
}

// begin replaces a queued task by the running task, without a further revision.
func (x *index) begin(e *entry, t *Task, now moment) {
	x.leave(e, t)
	e.notifyWatchers()
	x.enter(e, t, e.revision, now)
	e.begun = true
}

// leave takes a task out of what depends on its state, before the task is replaced by t; nil = is deleted.
func (x *index) leave(e *entry, t *Task) {
	x.addUsage(&e.Task, -1)
	x.dequeue(e)
	x.removeWebhook(e) // before its time changes
	x.counts.change(&e.Task, t)
}

// enter replaces a task by t.
func (x *index) enter(e *entry, t *Task, revision uint64, now moment) {
	progress := t.Progress
	if e.progressDirty = e.progressDirty && t.State == Running && t.Attempt == e.Attempt; e.progressDirty {
		progress = e.Progress
	}
	e.Task, e.revision, e.begun = *t, revision, false
	e.Progress = progress
	x.addUsage(t, 1)
	x.schedule(e, now, false)
	x.pushWebhook(e)
}

// pushWebhook puts an ended task whose webhook waits into webhooks.
func (x *index) pushWebhook(e *entry) {
	if !e.webhookPending() || e.heapIndex[inWebhooks] >= 0 {
		return
	}
	heap.Push(&x.webhooks, e)
	if x.webhooks.entries[0] == e {
		select {
		case x.webhookSignal <- struct{}{}:
		default:
		}
	}
}

// webhookPending reports whether the ended task is still to be posted to the webhook.
func (e *entry) webhookPending() bool {
	return e.State.Ended() && e.Webhook != nil && e.Webhook.State == Waiting
}

// nextPost returns the time of the next post to the webhook of an ended task.
func (e *entry) nextPost() time.Time { return latest(e.Ended, e.Webhook.Next) }

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// removeWebhook takes a task from webhooks.
func (x *index) removeWebhook(e *entry) {
	if e.heapIndex[inWebhooks] >= 0 {
		heap.Remove(&x.webhooks, e.heapIndex[inWebhooks])
	}
}

// addUsage adds a task to the usage of its owner, or with sign = -1 subtracts the task.
func (x *index) addUsage(t *Task, sign int) {
	waiting := sign
	if t.State.Ended() {
		waiting = 0
	}
	x.count(t.Owner, waiting, sign, int64(sign)*(t.bytes()-recordBytes))
}

// count adds to the usage of an owner: tasks that have not ended, records, and bytes of files.
func (x *index) count(owner string, waiting, records int, bytes int64) {
	u := x.usage[owner]
	if u == nil {
		u = &Usage{}
		x.usage[owner] = u
	}
	u.Waiting += waiting
	u.Bytes += int64(records)*recordBytes + bytes
	x.bytes += bytes
	if *u == (Usage{}) {
		delete(x.usage, owner)
	}
}

// delete deletes a task that this process has deleted from the bucket.
func (x *index) delete(id string, now moment) {
	if e := x.tasks[id]; e != nil {
		x.put(id, nil, e.revision+1, now)
		if x.followed {
			x.tombstones[id] = struct{}{}
		}
	}
}

func (x *index) isTombstone(id string) bool {
	_, gone := x.tombstones[id]
	return gone
}

// drop forgets a deleted task.
func (x *index) drop(id string, e *entry) {
	delete(x.tasks, id)
	if i, ok := slices.BinarySearch(x.ids, id); ok {
		x.ids = slices.Delete(x.ids, i, i+1)
	}
	x.unschedule(e)
}

// unschedule takes a task from times and waits.
func (x *index) unschedule(e *entry) {
	if i := e.heapIndex[inTimes]; i >= 0 {
		heap.Remove(&x.times, i)
	}
	if i := e.heapIndex[inWaits]; i >= 0 {
		heap.Remove(&x.waits, i)
	}
}

// schedule puts a task into the heaps. seen is when its revision became known: durations are measured from then by the
// clock that does not jump, also over a jump of the time of day. waited = NotBefore is over.
func (x *index) schedule(e *entry, seen moment, waited bool) {
	x.unschedule(e)
	early := e.State == Queued && !waited && e.NotBefore.After(seen.wall)
	switch {
	case early && e.Attempt > 0: // after a failed attempt
		x.wait(e, seen.mono.Add(min(e.NotBefore.Sub(seen.wall), maxRetryDelay)))
	case early:
		x.await(e, e.NotBefore)
	case e.State == Queued:
		if !e.Expires.IsZero() {
			x.await(e, e.Expires)
		}
		x.enqueue(e)
	case e.State == Running:
		x.wait(e, seen.mono.Add(x.opts.Lease))
	default:
		keep := x.retention(e)
		if e.webhookPending() {
			keep = max(keep, webhookDeadline)
		}
		x.wait(e, seen.mono.Add(min(e.Ended.Add(keep).Sub(seen.wall), keep)))
	}
}

// await puts a task into times, wait into waits.
func (x *index) await(e *entry, at time.Time) {
	e.at = at
	heap.Push(&x.times, e)
	x.signalDeadline(x.times.entries[0] == e)
}

func (x *index) wait(e *entry, due stream.Instant) {
	e.due = due
	heap.Push(&x.waits, e)
	x.signalDeadline(x.waits.entries[0] == e)
}

func (x *index) signalDeadline(first bool) {
	if !first {
		return
	}
	select {
	case x.deadlineSignal <- struct{}{}:
	default:
	}
}

// retention returns how long a task stays after its end.
func (x *index) retention(e *entry) time.Duration {
	if e.Retention > 0 {
		return e.Retention.Duration()
	}
	return x.opts.Retention
}

// enqueue offers a queued task to consumers.
func (x *index) enqueue(e *entry) {
	h := x.ready[e.Model]
	if h == nil {
		h = &entryHeap{heap: inReady}
		x.ready[e.Model] = h
	}
	heap.Push(h, e)
	x.wakeConsumers()
}

// wakeConsumers lets the waiting consumers look for a task.
func (x *index) wakeConsumers() {
	if x.readySignal != nil {
		close(x.readySignal)
		x.readySignal = nil
	}
}

// dequeue takes a task from the queue of its model.
func (x *index) dequeue(e *entry) {
	if e.heapIndex[inReady] < 0 {
		return
	}
	h := x.ready[e.Model]
	heap.Remove(h, e.heapIndex[inReady])
	if h.Len() == 0 {
		delete(x.ready, e.Model)
	}
}

// next takes the next ready task of the models for which serves is true; nil = none. The task stays in the index, and
// is ready again only by put or by enqueue.
func (x *index) next(serves func(model string) bool) *entry {
	var best *entry
	for model, h := range x.ready {
		if e := h.entries[0]; serves(model) && (best == nil || runsBefore(e, best)) {
			best = e
		}
	}
	if best != nil {
		x.dequeue(best)
	}
	return best
}

// runsBefore reports whether a begins before b: by priority, then by the time of the submission.
func runsBefore(a, b *entry) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.ID < b.ID
}

// readyChan returns a channel that is closed when a task becomes ready.
func (x *index) readyChan() <-chan struct{} {
	if x.readySignal == nil {
		x.readySignal = make(chan struct{})
	}
	return x.readySignal
}

// notifyWatchers wakes those who wait for a change of the task.
func (e *entry) notifyWatchers() {
	if e.changeSignal != nil {
		close(e.changeSignal)
		e.changeSignal = nil
	}
}

// notifyEnd wakes those who wait for the end of the task.
func (e *entry) notifyEnd() {
	if e.endSignal != nil {
		close(e.endSignal)
		e.endSignal = nil
	}
}

// tellClaim tells the claim when the task is replaced by a task that another consumer, or none, runs; nil = is deleted.
func (e *entry) tellClaim(t *Task) {
	if e.claim != nil && (t == nil || t.State != Running || t.Attempt != e.claim.attempt) {
		e.claim.lose()
		e.claim = nil
	}
}

// changeChan returns a channel that is closed at the next revision or progress of the task.
func (e *entry) changeChan() <-chan struct{} {
	if e.changeSignal == nil {
		e.changeSignal = make(chan struct{})
	}
	return e.changeSignal
}

// entryHeap is a heap of entries that know their places.
type entryHeap struct {
	entries []*entry
	heap    int
}

func (h *entryHeap) Len() int { return len(h.entries) }

func (h *entryHeap) Less(i, j int) bool {
	switch h.heap {
	case inTimes:
		return h.entries[i].at.Before(h.entries[j].at)
	case inWaits:
		return h.entries[i].due < h.entries[j].due
	case inWebhooks:
		return h.entries[i].nextPost().Before(h.entries[j].nextPost())
	}
	return runsBefore(h.entries[i], h.entries[j])
}

func (h *entryHeap) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].heapIndex[h.heap], h.entries[j].heapIndex[h.heap] = i, j
}

// Push implements heap.Interface.
func (h *entryHeap) Push(x any) {
	e := x.(*entry)
	e.heapIndex[h.heap] = len(h.entries)
	h.entries = append(h.entries, e)
}

// Pop implements heap.Interface.
func (h *entryHeap) Pop() any {
	n := len(h.entries) - 1
	e := h.entries[n]
	h.entries[n] = nil
	h.entries = h.entries[:n]
	e.heapIndex[h.heap] = -1
	return e
}

// idempotencyKey returns the key of the bucket for an idempotency key, which may have any characters.
func idempotencyKey(owner, key string) string {
	h := sha256.Sum256([]byte(owner + "\x00" + key))
	return "k." + hex.EncodeToString(h[:])
}
