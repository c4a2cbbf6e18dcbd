package batching

import (
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
	dynamic  bool // frames of different shapes need different batches
	strict   bool // full batches only
}

// Lane is a way in: the common one, or the inbox of a worker with affinity.
type Lane struct {
	rings [stream.Priorities]*Ring[*stream.Stream]
	open  []*open
	turn  uint
}

// open is a batch that is being collected.
type open struct {
	class  uint64
	tokens []*stream.Stream
	since  stream.Instant
	batch  *Batch // bound so far, only where full batches are awaited
}

// NewIntake returns the intake of a group with places for limit flows.
func NewIntake(model *stream.Model, batcher Batcher, pool *Pool, limit int) *Intake {
	in := &Intake{model: model, batcher: batcher, pool: pool, limit: int64(limit)}
	_, in.strict = batcher.(*hard)
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
// now. It looks at the worker's own lane first. Without a batch, wait says when
// to ask again even if nothing arrives (0: never).
func (in *Intake) Gather(now stream.Instant, idle int, own *Lane) (b *Batch, wait time.Duration, err error) {
	for more := true; more; {
		more, wait = false, 0
		for _, lane := range [...]*Lane{own, in.common} {
			if lane == nil {
				continue
			}
			in.fill(lane, now)
			b, w, err := in.formAny(lane, now, idle)
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

// formAny tries the lane's open batches, oldest first.
func (in *Intake) formAny(l *Lane, now stream.Instant, idle int) (b *Batch, wait time.Duration, err error) {
	for i := 0; i < len(l.open); {
		o := l.open[i]
		b, w, err := in.form(l, o, now, idle)
		if b != nil || err != nil {
			return b, 0, err
		}
		if w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
		if len(o.tokens) == 0 && o.batch == nil && l.remove(o) {
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
		if len(o.tokens) > 0 {
			return false
		}
	}
	return in.common.queued() == 0
}

// fill moves the tokens from the rings to the open batches: higher priorities
// first, but every eighth time the lower ones, so that none starves.
func (in *Intake) fill(l *Lane, now stream.Instant) {
	order := [...]stream.Priority{stream.High, stream.Normal, stream.Low}
	if l.turn++; l.turn%8 == 0 {
		order = [...]stream.Priority{stream.Low, stream.Normal, stream.High}
	}
	// A bound on each visit: a stream that is refilled as fast as it is emptied
	// must not hold the gatherer here.
	budget := 2 * max(in.model.MaxBatch, 16)
	for _, p := range order {
		for ; budget > 0; budget-- {
			s, ok := l.rings[p].Pop()
			if !ok {
				break
			}
			in.sort(l, s, now)
		}
	}
}

// sort puts a token into the open batch of its next frame's class.
func (in *Intake) sort(l *Lane, s *stream.Stream, now stream.Instant) {
	var class uint64
	if in.dynamic {
		class, _ = s.Class()
	}
	for _, o := range l.open {
		if o.class == class {
			if len(o.tokens) == 0 && o.batch == nil {
				o.since = now
			}
			o.tokens = append(o.tokens, s)
			return
		}
	}
	l.open = append(l.open, &open{class: class, since: now, tokens: []*stream.Stream{s}})
}

// remove takes an empty open batch out, but keeps the last one for its memory.
func (l *Lane) remove(o *open) bool {
	if len(l.open) == 1 {
		return false
	}
	l.open = slices.DeleteFunc(l.open, func(x *open) bool { return x == o })
	return true
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
	take, wait := in.batcher.Decide(now.Sub(o.since), waiting, idle)
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
			return in.oldest(l), 0, nil
		}
	}
	o.batch, b.Gathered = nil, now
	full := in.collect(l, o, b, take, now, predict)
	o.since = now
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

// count returns how many frames wait behind the tokens of o, up to most, and
// takes out the tokens behind which none does.
func (in *Intake) count(o *open, most int) int {
	n := 0
	kept := o.tokens[:0]
	for i, s := range o.tokens {
		if n >= most {
			kept = append(kept, o.tokens[i:]...)
			break
		}
		if w := s.WaitingFrames(); w > 0 {
			n += w
			kept = append(kept, s)
		} else if s.Rest() {
			kept = append(kept, s)
			n++
		}
	}
	clear(o.tokens[len(kept):])
	o.tokens = kept
	return n
}

// collect binds frames until b has take rows, and reports whether it is full:
// has them, or the next frame does not fit.
func (in *Intake) collect(l *Lane, o *open, b *Batch, take int, now stream.Instant, predict time.Duration) bool {
	for used := 0; b.Rows < take; {
		if used == len(o.tokens) {
			clear(o.tokens)
			o.tokens, used = o.tokens[:0], 0
			in.fill(l, now)
			if len(o.tokens) == 0 {
				return false
			}
		}
		s := o.tokens[used]
		o.tokens[used] = nil
		used++
		r := s.Take(now, in.model.MaxBatch-b.Rows, &o.class, predict)
		if r != nil {
			b.bind(r)
		}
		if r == nil && s.WaitingFrames() > 0 || b.Rows >= take {
			n := copy(o.tokens, o.tokens[used:])
			clear(o.tokens[n:])
			o.tokens = o.tokens[:n]
			return true
		}
	}
	return true
}

// oldest takes the oldest batch that still waits to be full, when no memory is
// left for another: it goes as it is.
func (in *Intake) oldest(l *Lane) *Batch {
	var first *open
	for _, o := range l.open {
		if o.batch != nil && (first == nil || o.since < first.since) {
			first = o
		}
	}
	if first == nil {
		return nil
	}
	b := first.batch
	first.batch = nil
	return b
}

// Drain empties the lanes and returns the batches that frames were bound to and
// that did not go yet. The tokens are discarded: their streams have been closed
// or moved.
func (in *Intake) Drain(lanes ...*Lane) (partial []*Batch) {
	for _, l := range append(lanes, in.common) {
		for _, r := range l.rings {
			for _, ok := r.Pop(); ok; _, ok = r.Pop() {
			}
		}
		for _, o := range l.open {
			if o.batch != nil {
				partial = append(partial, o.batch)
			}
		}
		l.open = nil
	}
	return partial
}

// Rehome moves the tokens of a worker's lane to the common one: that worker is
// gone.
func (in *Intake) Rehome(l *Lane) {
	for _, o := range l.open {
		for _, s := range o.tokens {
			in.Push(s, nil)
		}
	}
	l.open = nil
	for _, r := range l.rings {
		for s, ok := r.Pop(); ok; s, ok = r.Pop() {
			in.Push(s, nil)
		}
	}
}
