package batching

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"millrace/stream"
)

// Intake is where the tokens of a group's streams wait and batches are opened:
// the rings that tokens enter by without a lock, and behind them the open
// batches, one for each class of shapes, whose tokens bind their frames only
// when a worker gathers them.
//
// Push, Reserve, Unreserve and Arrivals are safe for concurrent use. The other
// methods are the gatherer's: one worker at a time, under its group's lock.
type Intake struct {
	model    *stream.Model
	batcher  Batcher
	times    Times
	pool     *Pool
	common   *Lane
	limit    int64
	flows    atomic.Int64
	arrivals atomic.Uint64
	tickets  uint64
	loose    []*Batch // bound, and to go as they are: their worker or their time is over
	starved  bool     // a batch could not be opened for want of memory
	dynamic  bool     // frames of different shapes need different batches
	strict   bool     // full batches only
	timed    bool     // the batcher asks how long the oldest frame has waited
}

// Lane is a way in: the common one, or the inbox of a worker with affinity.
type Lane struct {
	rings [stream.Priorities]*Ring[*stream.Stream]
	open  []*open
	turn  uint
}

// NewIntake returns the intake of a group with places for limit flows.
func NewIntake(model *stream.Model, batcher Batcher, pool *Pool, limit int) *Intake {
	in := &Intake{model: model, batcher: batcher, pool: pool, limit: int64(limit)}
	_, in.strict = batcher.(*hard)
	_, in.timed = batcher.(*soft)
	for _, t := range model.Inputs {
		in.dynamic = in.dynamic || !model.Ragged && stream.Elements(t.Shape) < 0
	}
	in.common = in.NewLane()
	return in
}

// NewLane returns a lane for the tokens of one worker with affinity.
func (in *Intake) NewLane() *Lane {
	l := &Lane{}
	for i := range l.rings {
		l.rings[i] = NewRing[*stream.Stream](int(in.limit))
	}
	return l
}

// Reserve takes a place for one flow. It is the moment at which a full queue
// refuses: a flow that has a place can always queue its one token.
func (in *Intake) Reserve() error {
	if in.flows.Add(1) > in.limit {
		in.flows.Add(-1)
		return stream.Errorf(stream.Overloaded, "max_flows", "model %s serves %d streams and callers already: try later, or raise max_flows", in.model.Name, in.limit)
	}
	return nil
}

// Unreserve gives a place back.
func (in *Intake) Unreserve() { in.flows.Add(-1) }

// Flows returns how many places are taken.
func (in *Intake) Flows() int { return int(in.flows.Load()) }

// Push queues a stream's token. own is its worker's lane, or nil.
func (in *Intake) Push(s *stream.Stream, own *Lane) {
	if own == nil {
		own = in.common
	}
	if !own.rings[s.Policy().Priority].Push(s) {
		panic("batching: a token without a reserved place")
	}
	in.arrivals.Add(1)
}

// Nudge notes that more frames wait behind a token that is queued already.
func (in *Intake) Nudge() { in.arrivals.Add(1) }

// Arrivals changes whenever Gather might find more than it did before.
func (in *Intake) Arrivals() uint64 { return in.arrivals.Load() }

// Observe tells how long a batch took, prepare and run together.
func (in *Intake) Observe(now stream.Instant, rows int, took time.Duration) {
	in.times.Observe(now, rows, took)
	in.batcher.Observe(rows, took)
}

// Gather forms the next batch for one of idle idle workers: its frames are bound
// now. It looks at the worker's own lane first, but every third time at the
// common one, so that busy streams at home do not shut out those without one.
// Without a batch, wait says when to ask again even if nothing arrives (0: never).
func (in *Intake) Gather(now stream.Instant, idle int, own *Lane) (b *Batch, wait time.Duration, err error) {
	if n := len(in.loose); n > 0 {
		b, in.loose = in.loose[n-1], in.loose[:n-1]
		return b, 0, nil
	}
	lanes := [...]*Lane{own, in.common}
	if in.common.turn++; own != nil {
		if own.turn++; own.turn%3 == 0 {
			lanes[0], lanes[1] = lanes[1], lanes[0]
		}
	}
	for more := true; more; {
		more, wait = false, 0
		for _, lane := range lanes {
			if lane == nil {
				continue
			}
			sharers := idle
			if lane == own {
				sharers = 1 // nobody else serves it
			}
			in.fill(lane, now)
			b, w, err := in.formAny(lane, now, sharers)
			if b != nil || err != nil {
				return b, 0, err
			}
			if w > 0 && (wait == 0 || w < wait) {
				wait = w
			}
			more = more || lane.queued() > 0 // tokens turned out empty, and others are behind them
		}
	}
	return nil, wait, nil
}

// formAny tries the lane's open batches: the one whose turn it has been for
// longest first, so that no class keeps the others waiting.
func (in *Intake) formAny(l *Lane, now stream.Instant, idle int) (b *Batch, wait time.Duration, err error) {
	order := l.order()
	if len(l.open) > 1 {
		slices.SortFunc(l.open, func(x, y *open) int { return cmp.Compare(x.rank(order), y.rank(order)) })
	}
	for i := 0; i < len(l.open); {
		o := l.open[i]
		b, w, err := in.form(l, o, now, idle)
		if b != nil || err != nil {
			return b, 0, err
		}
		if w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
		if o.empty() && o.batch == nil && l.remove(o) {
			continue
		}
		i++
	}
	return nil, wait, nil
}

func (l *Lane) queued() int {
	n := 0
	for _, r := range l.rings {
		n += r.Len()
	}
	return n
}

// Idle says whether nothing waits in the common lane.
func (in *Intake) Idle() bool {
	for _, o := range in.common.open {
		if !o.empty() {
			return false
		}
	}
	return len(in.loose) == 0 && in.common.queued() == 0
}

// order is the priorities as they are served this time: higher ones first, but
// every eighth time the lower ones, so that none starves.
func (l *Lane) order() [stream.Priorities]stream.Priority {
	if l.turn%8 == 0 {
		return [...]stream.Priority{stream.Low, stream.Normal, stream.High}
	}
	return [...]stream.Priority{stream.High, stream.Normal, stream.Low}
}

// fill moves the tokens from the rings to the open batches.
func (in *Intake) fill(l *Lane, now stream.Instant) {
	// A bound on each visit: a stream that is refilled as fast as it is emptied
	// must not hold the gatherer here.
	budget := 2 * max(in.model.MaxBatch, 16)
	for _, p := range l.order() {
		for ; budget > 0; budget-- {
			s, ok := l.rings[p].Pop()
			if !ok {
				break
			}
			in.sort(l, s, p, now)
		}
	}
}

// sort puts a token into the open batch of its next frame's class.
func (in *Intake) sort(l *Lane, s *stream.Stream, p stream.Priority, now stream.Instant) {
	in.tickets++
	t := ticket{stream: s, number: in.tickets, since: now}
	var class uint64
	if in.dynamic || in.timed {
		c, received, ok := s.Head()
		if in.dynamic {
			class = c
		}
		if ok {
			t.since = received
		}
	}
	for _, o := range l.open {
		if o.class == class {
			o.tokens[p].push(t)
			return
		}
	}
	o := &open{class: class}
	o.tokens[p].push(t)
	l.open = append(l.open, o)
}

// form asks the batcher and binds the frames of the batch it wants.
func (in *Intake) form(l *Lane, o *open, now stream.Instant, idle int) (*Batch, time.Duration, error) {
	bound := 0
	if o.batch != nil {
		bound = o.batch.Rows
	}
	waiting := bound + in.count(o, in.model.MaxBatch*idle-bound)
	if waiting == 0 {
		return nil, 0, nil
	}
	var oldest time.Duration
	if in.timed && waiting < in.model.MaxBatch {
		oldest = now.Sub(o.oldest(now))
	}
	take, wait := in.batcher.Decide(oldest, waiting, idle)
	if take == 0 {
		return nil, wait, nil
	}
	predict, probe := in.times.Predict(now, take)
	if probe && !in.strict {
		take = 1
	}
	b := o.batch
	if b == nil {
		var err error
		if b, err = in.pool.Take(); err != nil {
			return nil, 0, err
		}
		if b == nil {
			b = l.oldest()
			in.starved = in.starved || b == nil
			return b, 0, nil
		}
	}
	o.batch, b.Gathered = nil, now
	full := in.collect(l, o, b, take, now, predict)
	switch {
	case b.Rows == 0:
		in.pool.Put(b)
		return nil, 0, nil
	case in.strict && !full:
		o.batch = b
		return nil, 0, nil
	}
	return b, 0, nil
}

// count returns how many rows wait behind the tokens of o, at least up to most,
// and takes out the tokens behind which none does.
func (in *Intake) count(o *open, most int) int {
	n := 0
	for p := range o.tokens {
		o.tokens[p].keep(func(s *stream.Stream) (keep, more bool) {
			if n >= most {
				return true, false
			}
			frames, rows := s.WaitingFrames(), s.WaitingRows()
			switch {
			case frames == 0 && s.ReleaseToken():
				return false, true
			case frames == 0: // one has come at this moment
				rows = 1
			case in.model.Stateful: // one at a time
				rows = (rows + frames - 1) / frames
			}
			n += rows
			return true, true
		})
	}
	return n
}

// collect binds frames until b has take rows, and reports whether it is full:
// has them, or the next frame does not fit. That one is the first of the next
// batch then.
func (in *Intake) collect(l *Lane, o *open, b *Batch, take int, now stream.Instant, predict time.Duration) bool {
	order := l.order()
	for b.Rows < take {
		q := o.first(order)
		if q == nil {
			in.fill(l, now)
			if q = o.first(order); q == nil {
				return false
			}
		}
		r, kept := q.peek().stream.Take(now, in.model.MaxBatch-b.Rows, &o.class, predict)
		if kept {
			return true
		}
		q.pop()
		if r != nil {
			b.bind(r)
		}
	}
	return true
}

// Drain empties the lanes and returns the batches that frames were bound to and
// that did not go yet. The tokens are discarded: their streams have been closed
// or moved, and are to be told (Stream.Discard).
func (in *Intake) Drain(lanes ...*Lane) (partial []*Batch) {
	partial, in.loose = in.loose, nil
	for _, l := range append(lanes, in.common) {
		for _, r := range l.rings {
			for _, ok := r.Pop(); ok; _, ok = r.Pop() {
			}
		}
		partial = append(partial, l.partial()...)
		l.open = nil
	}
	return partial
}

// Loosen has batches that were bound already gathered next, as they are.
func (in *Intake) Loosen(bs ...*Batch) {
	in.loose = append(in.loose, bs...)
	in.arrivals.Add(1)
}

// Starved says whether Gather found no memory since it was asked last: then
// another worker may have to look again, now that there is some.
func (in *Intake) Starved() bool {
	was := in.starved
	in.starved = false
	return was
}

// Loose says whether a batch waits that was bound already.
func (in *Intake) Loose() bool { return len(in.loose) > 0 }

// Rehome moves the tokens of a worker's lane to the common one: that worker is
// gone. Batches that waited to be full go as they are.
func (in *Intake) Rehome(l *Lane) {
	in.Loosen(l.partial()...)
	for _, o := range l.open {
		for p := range o.tokens {
			o.tokens[p].keep(func(s *stream.Stream) (keep, more bool) {
				in.Push(s, nil)
				return false, true
			})
		}
	}
	l.open = nil
	for _, r := range l.rings {
		for s, ok := r.Pop(); ok; s, ok = r.Pop() {
			in.Push(s, nil)
		}
	}
}
