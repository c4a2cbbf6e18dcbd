package batching

import (
	"slices"
	"sync/atomic"
	"time"

	"millrace/stream"
)

// Intake holds the waiting tokens of a group's streams and forms batches. Tokens enter its inboxes without a lock;
// each inbox has pending batches, one for each class of shapes. Frames are bound only when a worker gathers a batch.
//
// Push, Reserve, Unreserve, PlacesUsed, NoteArrival and Arrivals are safe for concurrent use. The other methods are
// for the gathering worker: one at a time, under its group's lock.
type Intake struct {
	model      *stream.Model
	batcher    Batcher
	needs      Needs
	times      Times
	pool       *Pool
	common     *Inbox
	limit      int64
	placesUsed atomic.Int64
	arrivals   atomic.Uint64
	tokens     uint64         // how many entered pending batches so far
	now        stream.Instant // of the current call of Gather
	predict    func(n int) time.Duration
	ready      []*Batch // bound and to be run even if not full: the worker has left, or no batch was free
	exhausted  bool     // a batch could not be formed since all were in use
	heavy      heavyQueue
	drained    bool           // Drain was called
	free       int            // workers that run no batch: see SetFree
	workers    int            // see SetFree
	urgent     stream.Instant // when a frame of a higher priority than low was bound last
	explored   stream.Instant // when a row of low priority joined a batch although the batch would become longer
	dynamic    bool           // frames of different shapes, or of calls, need different batches
}

// NewIntake returns the intake of a group with places for limit streams.
func NewIntake(model *stream.Model, batcher Batcher, pool *Pool, limit int) *Intake {
	in := &Intake{model: model, batcher: batcher, needs: batcher.Needs(), pool: pool, limit: int64(limit)}
	in.predict = func(n int) time.Duration {
		took, _ := in.times.Predict(in.now, n)
		return took
	}
	in.dynamic = model.TakesCalls()
	for _, t := range model.Inputs {
		in.dynamic = in.dynamic || (!model.Ragged || model.JoinRagged) && stream.Elements(t.Shape) < 0
	}
	in.common = in.NewInbox()
	return in
}

// NewInbox returns an inbox for the tokens of one worker with affinity.
func (in *Intake) NewInbox() *Inbox { return newInbox(int(in.limit)) }

// NeedsArrivals reports whether the batcher must decide again for each arriving frame: see NoteArrival.
func (in *Intake) NeedsArrivals() bool { return in.needs.Arrivals }

// MayWait reports whether the batcher may let frames wait while a worker is idle.
func (in *Intake) MayWait() bool { return in.needs != Needs{} }

// Reserve takes a place for one stream, and fails when the queue is full. A stream with a place can always queue its
// only token.
func (in *Intake) Reserve() error {
	if in.placesUsed.Add(1) > in.limit {
		in.placesUsed.Add(-1)
		return stream.Errorf(stream.Overloaded, "max_flows",
			"model %s serves %d streams and callers already: try later, or raise max_flows", in.model.Name, in.limit)
	}
	return nil
}

// Unreserve frees a place.
func (in *Intake) Unreserve() { in.placesUsed.Add(-1) }

// PlacesUsed returns the number of taken places. A stream for a caller's one-shot requests takes a place, too.
func (in *Intake) PlacesUsed() int { return int(in.placesUsed.Load()) }

// Push queues a stream's token. own is the worker's inbox, or nil for the common inbox.
func (in *Intake) Push(s *stream.Stream, own *Inbox) {
	if own == nil {
		own = in.common
	}
	if !own.ring(s.TokenPriority()).Push(s) {
		panic("batching: a token without a reserved place")
	}
	in.arrivals.Add(1)
}

// keepFor is how long workers are kept free after a frame of a higher priority than low.
const keepFor = time.Second

// SetFree says how many workers run no batch, of all workers, before a call of Gather. While frames of higher
// priorities come, half of the workers, rounded down, stay free of batches with frames of low priority only.
func (in *Intake) SetFree(free, workers int) { in.free, in.workers = free, workers }

// NoteArrival records one more waiting frame in a stream with a queued token.
func (in *Intake) NoteArrival() { in.arrivals.Add(1) }

// Arrivals returns a number that changes whenever Gather might find more frames.
func (in *Intake) Arrivals() uint64 { return in.arrivals.Load() }

// Observe records how long a batch took, prepare and run together.
func (in *Intake) Observe(now stream.Instant, rows int, took time.Duration) {
	in.times.Observe(now, rows, took)
}

// Gather forms the next batch for one of idle idle workers, and binds the frames. Gather serves the worker's own
// inbox first, but every third time the common inbox, so that busy streams in the own inbox do not starve other
// streams. Without a batch, wait is the time until the next call of Gather even if no frame arrives (0: never).
func (in *Intake) Gather(now stream.Instant, idle int, own *Inbox) (b *Batch, wait time.Duration, err error) {
	if n := len(in.ready); n > 0 {
		b, in.ready = in.ready[n-1], in.ready[:n-1]
		return b, 0, nil
	}
	in.now = now
	both := in.visit(own)
	inboxes := both[:]
	if own == nil {
		inboxes = both[1:]
		if !in.MayWait() && !in.common.collects() {
			if b, err := in.gatherSingle(idle); b != nil || err != nil {
				return b, 0, err
			}
		}
	}
	for more := true; more; {
		more, wait = false, 0
		v := View{Predict: in.predict}
		for _, x := range inboxes {
			in.fill(x)
			if in.needs.Pending {
				v.Pending += x.formable()
			}
		}
		for _, x := range inboxes {
			if v.Idle = idle; x == own {
				v.Idle = 1 // no other worker serves the own inbox
			}
			b, w, err := in.formAny(x, &v)
			if b != nil || err != nil {
				return b, 0, err
			}
			if w > 0 && (wait == 0 || w < wait) {
				wait = w
			}
			more = more || x.queued() > 0 // tokens without frames were removed, and more tokens follow
		}
	}
	return nil, wait, nil
}

// visit returns the inboxes in the order of this visit; the first inbox is nil when own is nil.
func (in *Intake) visit(own *Inbox) [2]*Inbox {
	in.common.visits++
	if own == nil {
		return [...]*Inbox{nil, in.common}
	}
	if own.visits++; own.visits%3 == 0 {
		return [...]*Inbox{in.common, own}
	}
	return [...]*Inbox{own, in.common}
}

// GatherFull forms the next batch only if the batch is full, regardless of the batcher, for a worker that is still
// running another batch. Without common, GatherFull uses the worker's own inbox alone, since other workers are idle.
func (in *Intake) GatherFull(now stream.Instant, own *Inbox, common bool) (*Batch, error) {
	in.now = now
	for _, x := range in.visit(own) {
		if x == nil || x == in.common && !common {
			continue
		}
		in.fill(x)
		if len(x.pending) > 1 {
			x.sort(x.order())
		}
		for _, p := range x.pending {
			bound := 0
			if p.batch != nil {
				bound = p.batch.Rows
			} else if in.pool.Free() == 0 {
				continue
			}
			if bound+in.countRows(p, in.model.MaxBatch-bound, in.needs.Full || !in.live()) < in.model.MaxBatch {
				continue
			}
			b, err := in.take(p, in.model.MaxBatch, Full, x)
			if b != nil || err != nil {
				return b, err
			}
		}
	}
	return nil, nil
}

// formAny tries the inbox's pending batches, first the batch with the oldest token of the highest priority, so that
// no class starves. v holds the values common to all pending batches.
func (in *Intake) formAny(x *Inbox, v *View) (b *Batch, wait time.Duration, err error) {
	if len(x.pending) > 1 {
		x.sort(x.order())
	}
	for i := 0; i < len(x.pending); {
		p := x.pending[i]
		b, w, err := in.form(x, p, v)
		if b != nil || err != nil {
			return b, 0, err
		}
		if w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
		if p.empty() && p.batch == nil && x.remove(p) {
			continue
		}
		i++
	}
	return nil, wait, nil
}

// Idle reports whether nothing waits in the common inbox.
func (in *Intake) Idle() bool {
	for _, p := range in.common.pending {
		if !p.empty() {
			return false
		}
	}
	return len(in.ready) == 0 && in.common.queued() == 0
}

// fill moves the tokens from the rings to the pending batches.
func (in *Intake) fill(x *Inbox) {
	// The number of tokens moved at once is limited: a stream that queues its token again at once must not keep the
	// worker in this loop.
	budget := 2 * max(in.model.MaxBatch, 16)
	for _, priority := range x.order() {
		for ; budget > 0; budget-- {
			s, ok := x.pop(priority)
			if !ok {
				break
			}
			in.add(x, s, priority)
		}
	}
}

// add puts a token into the pending batch of its next frame's class.
func (in *Intake) add(x *Inbox, s *stream.Stream, priority stream.Priority) {
	in.tokens++
	t := token{stream: s, number: in.tokens, received: in.now}
	var class uint64
	if in.dynamic || in.needs.Oldest || in.needs.Deadline {
		if head, ok := s.Head(); ok {
			t.received, t.deadline = head.Received, head.Deadline
			if in.dynamic {
				class = head.Class
			}
		}
	}
	x.pendingOf(class).tokens[priority].push(t)
}

// setWaiting sets the fields of v about the frames waiting in p.
func (in *Intake) setWaiting(x *Inbox, p *pendingBatch, v *View) {
	bound := 0
	if p.batch != nil {
		bound = p.batch.Rows
	}
	most, low := in.model.MaxBatch*v.Idle-bound, in.needs.Full || x.lowFirst() || !in.live()
	if v.Rows = bound + in.countRows(p, most, low); v.Rows == 0 && !low {
		low = true
		v.Rows = in.countRows(p, most, low)
	}
	v.Oldest, v.Deadline = 0, NoDeadline
	if v.Rows == 0 || v.Rows >= in.model.MaxBatch {
		return
	}
	if in.needs.Oldest {
		v.Oldest = in.now.Sub(p.oldest(in.now, low))
	}
	if in.needs.Deadline {
		if nearest := p.nearestDeadline(low); nearest != 0 {
			v.Deadline = nearest.Sub(in.now)
		}
	}
}

// form lets the batcher decide and binds the frames of the batch.
func (in *Intake) form(x *Inbox, p *pendingBatch, v *View) (*Batch, time.Duration, error) {
	in.setWaiting(x, p, v)
	if v.Rows == 0 {
		return nil, 0, nil
	}
	if wait := in.held(x, p); wait > 0 {
		return nil, wait, nil
	}
	take, wait := in.batcher.Decide(*v)
	if in.drained { // nothing will arrive any more
		take = min(v.Rows, in.model.MaxBatch)
	}
	if take == 0 {
		return nil, wait, nil
	}
	b, err := in.take(p, take, in.cause(*v, take), x)
	return b, 0, err
}

// take binds up to the given number of rows of p to a batch. take returns nil if no frame is left, if the batch must
// be full but is not, or if no batch is free.
func (in *Intake) take(p *pendingBatch, rows int, why Cause, x *Inbox) (b *Batch, err error) {
	if b = p.batch; b == nil {
		if b, err = in.pool.Take(); err != nil {
			return nil, err
		}
		if b == nil {
			b = x.takeOldest()
			in.exhausted = in.exhausted || b == nil
			return b, nil
		}
	}
	p.batch, b.Gathered, b.Cause = nil, in.now, why
	full := in.bind(x, p, b, rows)
	switch {
	case b.Rows == 0:
		in.pool.Put(b)
		return nil, nil
	case in.needs.Full && !full && !in.drained:
		p.batch = b
		return nil, nil
	}
	return b, nil
}

// live reports whether a frame of high or normal priority was bound within keepFor.
func (in *Intake) live() bool { return in.urgent != 0 && in.now.Sub(in.urgent) < keepFor }

// held returns how long p waits because workers are kept free, if nothing else happens: see SetFree.
func (in *Intake) held(x *Inbox, p *pendingBatch) time.Duration {
	if x != in.common || in.workers < 2 || in.free > in.workers/2 || !in.live() || in.drained || in.needs.Full ||
		x.lowFirst() {
		return 0
	}
	if _, priority := p.first(x.order()); priority != stream.Low {
		return 0
	}
	return in.urgent.Add(keepFor).Sub(in.now)
}

// exploreAfter is the time after which a row of low priority joins a batch whatever was measured: a single slow run
// would otherwise keep low priority out of batches for ever.
const exploreAfter = 10 * time.Second

// room returns how many rows of low priority may join a batch of n rows. Soon after other frames, the batch must not
// become more than a tenth longer, except for a measurement: by one row, when tries.
func (in *Intake) room(n int, tries bool) (rows int) {
	most := in.model.MaxBatch - n
	if n == 0 || in.needs.Full || !in.live() {
		return most
	}
	took, _ := in.times.Predict(in.now, n)
	for rows < most {
		if with, _ := in.times.Predict(in.now, n+rows+1); with > took+took/10 {
			break
		}
		rows++
	}
	if rows == 0 && most > 0 && tries && (!in.times.measured(n+1) || in.now.Sub(in.explored) > exploreAfter) {
		in.explored = in.now
		return 1
	}
	return rows
}

// countRows returns the number of rows waiting in the streams of p's tokens, counting at least up to most, and
// removes the tokens of streams without waiting rows. Without low, frames of low priority do not count.
func (in *Intake) countRows(p *pendingBatch, most int, low bool) int {
	n := 0
	for i := range p.tokens {
		if !low && i == int(stream.Low) {
			continue
		}
		p.tokens[i].filter(func(t *token) (keep, more bool) {
			if n >= most {
				return true, false
			}
			if t.request != nil {
				if keep = in.keepsDecoded(t.request); keep {
					n += t.request.Rows
				}
				return keep, true
			}
			s := t.stream
			frames, rows := s.WaitingFrames(), s.WaitingRows()
			switch {
			case frames == 0 && s.ReleaseToken():
				return false, true
			case frames == 0: // a frame arrived after the count
				rows = 1
			case in.model.Stateful: // one frame of a stream at a time
				rows = (rows + frames - 1) / frames
			}
			n += rows
			return true, true
		})
	}
	return n
}

// bind binds frames until b has take rows, and reports whether b is full: b has take rows, or the next frame does not
// fit and starts the next batch. Frames of low priority may join beyond take: see room. When the table of times is
// out of date, bind skips the deadline check for one frame: see probeAfter.
func (in *Intake) bind(x *Inbox, p *pendingBatch, b *Batch, take int) (full bool) {
	took, probe := in.times.Predict(in.now, take)
	order, urgent := x.order(), false
	joined := false // a frame of low priority has joined other frames
	in.heavy.batch = b
	for b.Rows < take || urgent && b.Rows < in.model.MaxBatch {
		q, priority := p.first(order)
		if q == nil {
			in.fill(x)
			if q, priority = p.first(order); q == nil {
				return b.Rows >= take
			}
		}
		room := in.model.MaxBatch - b.Rows
		if low := priority == stream.Low; low && (urgent || !x.lowFirst()) {
			room = in.room(b.Rows, !joined)
		} else if !low && b.Rows >= take {
			return true
		}
		predicted := took
		if probe && (b.Rows == 0 || in.needs.Full) {
			predicted = 0
		}
		t := q.peek()
		var r *stream.Request
		var kept, separate bool
		switch {
		case room == 0:
			kept = true
		case t.request != nil:
			if kept = room < t.request.Rows; !kept {
				r = in.takeDecoded(t.request, predicted)
			}
		default:
			r, kept, separate = t.stream.TakeFiltered(in.now, room, &p.class, predicted, in.heavy.isSeparate)
		}
		if kept && priority == stream.Low && !in.needs.Full {
			order = order.withoutLow()
			continue
		}
		if kept {
			return true
		}
		if separate {
			in.heavy.add(t.stream, x, t.stream.TokenPriority())
		}
		decoded := t.request != nil
		q.pop()
		if r == nil {
			continue
		}
		if !decoded {
			in.heavy.note(r.Account, in.now)
		}
		b.bind(r)
		switch priority {
		case stream.Low:
			x.low, joined = x.visits, len(b.Requests) > 1
		case stream.High, stream.Normal:
			urgent, in.urgent = !in.needs.Full, in.now
		}
	}
	return true
}

// Drain empties the inboxes and returns the batches with bound frames that have not run. Drain discards the tokens:
// the streams have been closed or moved, and the caller must call Stream.ForgetToken for each. Requests decoded
// beside the workers stay, and requests still being decoded will follow: both are run unless RemoveDecoded takes
// them.
func (in *Intake) Drain(inboxes ...*Inbox) (bound []*Batch) {
	bound, in.ready = in.ready, nil
	inboxes = append(inboxes, in.common)
	decoded := in.removeDecoded(inboxes...)
	for _, x := range inboxes {
		for _, ok := x.popAny(); ok; _, ok = x.popAny() {
		}
		bound = append(bound, x.takePartial()...)
		x.pending = nil
	}
	in.heavy.waiting, in.drained = nil, true
	for p, rs := range decoded {
		for _, r := range rs {
			in.queueDecoded(in.common, r, stream.Priority(p))
		}
	}
	return bound
}

// AddReady makes Gather return the given batches, with frames already bound, before other batches.
func (in *Intake) AddReady(bs ...*Batch) {
	in.ready = append(in.ready, bs...)
	in.arrivals.Add(1)
}

// Sweep removes the tokens of finished streams from the inboxes, and frees their places with q, the intake's group.
func (in *Intake) Sweep(q stream.Queue, inboxes ...*Inbox) {
	left := func(s *stream.Stream) bool {
		select {
		case <-s.Finished(): // avoids holding the stream's lock for long
			s.ForgetToken(q)
			return true
		default:
			return false
		}
	}
	for _, x := range append(inboxes, in.common) {
		for i := range x.rings {
			r := x.rings[i].Load()
			if r == nil {
				continue
			}
			for range r.Len() { // once around, so that the other tokens keep their order
				s, ok := r.Pop()
				if !ok {
					break
				}
				if !left(s) && !r.Push(s) {
					panic("batching: a token without a reserved place")
				}
			}
		}
		for _, p := range x.pending {
			for i := range p.tokens {
				p.tokens[i].filter(func(t *token) (keep, more bool) {
					return t.request != nil || !left(t.stream), true
				})
			}
		}
	}
	in.heavy.waiting = slices.DeleteFunc(in.heavy.waiting, func(h heavyToken) bool { return left(h.stream) })
}

// HasReady reports whether a batch added by AddReady waits, or after Drain a request decoded beside the workers.
func (in *Intake) HasReady() bool { return len(in.ready) > 0 || in.drained && in.heavy.decoded > 0 }

// TakeExhausted reports whether Gather found all batches in use since the last call of
// TakeExhausted: another worker may then have to gather again, once a batch is free.
func (in *Intake) TakeExhausted() bool {
	was := in.exhausted
	in.exhausted = false
	return was
}

// Redistribute moves the tokens of a departed worker's inbox to the common inbox. Partial batches waiting to be full
// run without being full.
func (in *Intake) Redistribute(x *Inbox) {
	in.AddReady(x.takePartial()...)
	for _, p := range x.pending {
		for i := range p.tokens {
			p.tokens[i].filter(func(t *token) (keep, more bool) {
				if t.request != nil {
					in.heavy.decoded--
					in.queueDecoded(in.common, t.request, stream.Priority(i))
				} else {
					in.Push(t.stream, nil)
				}
				return false, true
			})
		}
	}
	x.pending = nil
	for s, ok := x.popAny(); ok; s, ok = x.popAny() {
		in.Push(s, nil)
	}
}

// Close records that the worker of an inbox has left or is being replaced: requests decoded for the worker go to the
// common inbox until Open.
func (in *Intake) Close(x *Inbox) { x.closed = true }

// Open records that the inbox has a worker again.
func (in *Intake) Open(x *Inbox) { x.closed = false }
