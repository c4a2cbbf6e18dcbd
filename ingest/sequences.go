package ingest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/stream"
)

// SequenceID names a sequence of requests by a text or by a number. The zero value is no name. A number and its
// digits as a text are different names.
type SequenceID struct {
	Text   string
	Number uint64
}

// String returns the name for messages.
func (id SequenceID) String() string {
	if id.Text != "" {
		return fmt.Sprintf("%.64q", id.Text)
	}
	return fmt.Sprint(id.Number)
}

// Sequence identifies the sequence of a request. The zero value is no sequence.
type Sequence struct {
	ID         SequenceID
	Start, End bool // the first request, the last request
}

// Sequences holds the sequences of requests to stateful models: a sequence is a stream, with the policy every, open
// from one request to the next. All adapters share one Sequences, so that the requests of a sequence may come by
// different protocols. Each client has its own names, and cannot reach the sequences of other clients. Sequences is
// safe for concurrent use.
//
// A sequence ends after the answer to the last request, after an idle time, when a request starts another sequence
// with the same name, when a caller gives up, and with the model: a swap or an unload. The state ends with the
// sequence; a later request without Start is refused, and never answered with another state.
type Sequences struct {
	backend Backend
	dead    atomic.Int64 // in all, and their stream has ended

	mu   sync.Mutex
	all  map[sequenceKey]*sequence
	used map[string]int // sequences per model, including sequences whose last answers are due
}

type sequenceKey struct {
	model, version string // as requested
	id             SequenceID
	// client is the account of the sequence's client; nil = the owner's. A sequence in use holds places of
	// stream.QuotaStreams and QuotaSequences, so that the account is not forgotten and replaced.
	client *stream.Account
}

// sequence is an open sequence, and the sink of the sequence's stream. Locks nest in this order: mu, Sequences.mu,
// the stream's lock, waiters.
type sequence struct {
	table  *Sequences
	key    sequenceKey
	stream *stream.Stream
	idle   time.Duration

	mu          sync.Mutex // held while a request is submitted, so that waiting has the order of the stream
	outstanding int        // requests without their ending
	timer       *time.Timer
	idleAt      time.Time   // end of the idle time, if no request is outstanding
	closed      bool        // the stream was closed, and its place released
	retired     atomic.Bool // takes no further requests; set under mu

	ended   atomic.Bool // Done was called
	waiters sync.Mutex
	waiting []*SequenceCall // in the order of the stream
}

// NewSequences returns a Sequences that opens streams with backend.
func NewSequences(backend Backend) *Sequences {
	return &Sequences{backend: backend, all: make(map[sequenceKey]*sequence), used: make(map[string]int)}
}

// Infer is OneShot.Infer for a request of a sequence. Infer waits for the sequence's earlier requests. When ctx ends
// first, the whole sequence ends, since the client cannot know whether the request is part of the state. The errors
// are the errors of Submit.
func (t *Sequences) Infer(ctx context.Context, one *OneShot, client *Client, model, version string, of Sequence,
	f stream.Frame) (*stream.Result, error) {
	result := make(chan *stream.Result, 1)
	call, r, err := t.Submit(one, client, model, version, of, f, func(r *stream.Result) { result <- r })
	if err != nil {
		return r, err
	}
	select {
	case r = <-result:
	case <-ctx.Done():
		cause := context.Cause(ctx)
		call.Abandon(stream.Errorf(stream.CodeOf(cause), "",
			"a call of sequence %s ended before its result, which ends the sequence: %w", of.ID, cause))
		r = <-result // the error, or an ending pushed at the same time
	}
	call.Finish()
	if call.partial && r.Outcome == stream.Answered {
		r.Release()
		return r, ErrDecoupled(r.Model)
	}
	return ending(r)
}

// Submit sends f as the next request of a sequence, and always takes over f.Lease. Submit calls ended with the
// request's ending, perhaps before Submit returns; ended must not block, and owns the ending. Partial results are
// discarded. After the ending the caller must call Finish. For a refused request, Submit returns the ending with the
// trace ids, as OneShot.Refuse. Errors: InvalidArgument, for a request without Start when the sequence is not open
// for the client; Overloaded, for sequences.max; FlowControl, when too many requests of the sequence wait, and for
// quotas.streams and quotas.sequences; the model's errors.
func (t *Sequences) Submit(one *OneShot, client *Client, model, version string, of Sequence, f stream.Frame,
	ended func(*stream.Result)) (*SequenceCall, *stream.Result, error) {
	if err := client.Charge(model, &f); err != nil {
		r := one.Refuse(client, model, version, &f, err)
		f.Lease.Release()
		return nil, r, err
	}
	c := &SequenceCall{ended: ended}
	key := sequenceKey{model, version, of.ID, f.Account}
	for attempt := 0; ; attempt++ {
		q, err := t.find(one.protocol, key, of.Start)
		if err == nil {
			c.of = q
			var taken bool
			if taken, err = q.submit(c, of, &f); taken {
				return c, nil, nil
			}
		}
		switch {
		case err == nil: // the sequence was retired meanwhile
		case of.Start && stream.CodeOf(err) == stream.Unloaded && attempt < 3: // the model was swapped in between
		default:
			r := one.Refuse(client, model, version, &f, err)
			f.Lease.Release()
			return nil, r, err
		}
	}
}

// SequenceCall is a request of a sequence.
type SequenceCall struct {
	of      *sequence
	ended   func(*stream.Result)
	partial bool // the request had partial results; written before the ending is pushed
}

// Finish says that the caller has received the ending of the request.
func (c *SequenceCall) Finish() { c.of.finish() }

// Abandon ends the sequence: all unfinished requests of the sequence end with err. Abandon returns after their end.
func (c *SequenceCall) Abandon(err error) {
	c.of.retire()
	c.of.stream.Abandon(err)
	<-c.of.stream.Finished()
}

// submit sends f as the next request c. submit returns false without an error when the sequence is retired. The
// caller owns f.Lease unless taken is true.
func (q *sequence) submit(c *SequenceCall, of Sequence, f *stream.Frame) (taken bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired.Load() {
		return false, nil
	}
	q.waiters.Lock()
	q.waiting = append(q.waiting, c)
	q.waiters.Unlock()
	if err := q.stream.Offer(*f, nil); err != nil {
		q.waiters.Lock()
		q.waiting = q.waiting[:len(q.waiting)-1] // removes c, the last entry
		q.waiters.Unlock()
		if code := stream.CodeOf(err); !of.Start && (code == stream.FlowControl || code == stream.Overloaded) {
			return false, err // the request may be sent again
		}
		if q.ended.Load() && !of.Start {
			err = q.table.notOpen(q.key)
		}
		q.retireLocked()
		return false, err
	}
	q.outstanding++
	if q.timer != nil {
		q.timer.Stop()
	}
	if of.End {
		q.retireLocked()
	}
	return true, nil
}

// find returns the sequence with a name. With start, find opens a new sequence, in place of an open sequence.
func (t *Sequences) find(protocol string, key sequenceKey, start bool) (*sequence, error) {
	t.mu.Lock()
	q := t.all[key]
	t.mu.Unlock()
	switch {
	case !start && q != nil && !q.retired.Load() && !q.ended.Load():
		return q, nil
	case !start:
		return nil, t.notOpen(key)
	}
	if q != nil {
		q.retire() // even if the new sequence cannot be opened
	}
	if t.dead.Load() > 0 {
		t.sweep()
	}
	m, _, err := t.backend.Models().Model(key.model, key.version)
	if err != nil {
		return nil, err
	}
	if err := holdSequence(key.client); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if t.used[key.model] >= m.Sequences.Max {
		t.mu.Unlock()
		releaseSequence(key.client)
		return nil, stream.Errorf(stream.Overloaded, "sequences.max",
			"%d sequences of model %s are open already: end one with sequence_end, or raise the setting",
			m.Sequences.Max, key.model)
	}
	t.used[key.model]++
	t.mu.Unlock()
	q = &sequence{table: t, key: key, idle: m.Sequences.Idle}
	q.stream, err = t.backend.Open(key.model, key.version, stream.Options{
		Policy:   stream.Policy{Mode: stream.Every, Window: stream.MaxWindow},
		Sequence: true, OwnRefusals: true, Protocol: protocol, Name: key.id.String(),
	}, q)
	if err != nil {
		t.free(key)
		return nil, err
	}
	t.mu.Lock()
	other := t.all[key] // started at the same time
	t.all[key] = q
	t.mu.Unlock()
	if other != nil {
		other.retire()
	}
	return q, nil
}

func (t *Sequences) notOpen(key sequenceKey) error {
	idle := "sequences.idle"
	if m, _, err := t.backend.Models().Model(key.model, key.version); err == nil {
		idle = fmt.Sprintf("sequences.idle, %v", m.Sequences.Idle)
	} else {
		return err
	}
	// Clients of Triton look for the first words.
	return stream.Errorf(stream.InvalidArgument, "",
		"inference request for sequence %s to model '%s' must specify the START flag on the first request of the "+
			"sequence: set parameters.sequence_start (a sequence ends with sequence_end, after a pause of %s, and "+
			"when its model is loaded again)", key.id, key.model, idle)
}

// holdSequence takes a client's places for a sequence.
func holdSequence(client *stream.Account) error {
	if err := client.Hold(stream.QuotaSequences); err != nil {
		return err
	}
	err := client.Hold(stream.QuotaStreams)
	if err != nil {
		client.Release(stream.QuotaSequences)
	}
	return err
}

// releaseSequence releases the places taken by holdSequence.
func releaseSequence(client *stream.Account) {
	client.Release(stream.QuotaStreams)
	client.Release(stream.QuotaSequences)
}

// free gives the places of a sequence back.
func (t *Sequences) free(of sequenceKey) {
	releaseSequence(of.client)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used[of.model]--; t.used[of.model] == 0 {
		delete(t.used, of.model)
	}
}

// remove forgets a sequence, unless the name now belongs to another sequence.
func (t *Sequences) remove(q *sequence) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[q.key] == q {
		delete(t.all, q.key)
	}
}

// sweep removes the sequences with streams closed by the server.
func (t *Sequences) sweep() {
	var dead []*sequence
	t.mu.Lock()
	for _, q := range t.all {
		if q.ended.Load() {
			dead = append(dead, q)
		}
	}
	t.mu.Unlock()
	for _, q := range dead {
		q.retire()
	}
}

// Open returns how many sequences of each model are open.
func (t *Sequences) Open() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]int, len(t.used))
	for model, n := range t.used {
		out[model] = n
	}
	return out
}

// Close ends all sequences. Close is called after the last request.
func (t *Sequences) Close() {
	t.mu.Lock()
	all := make([]*sequence, 0, len(t.all))
	for _, q := range t.all {
		all = append(all, q)
	}
	t.mu.Unlock()
	for _, q := range all {
		q.retire()
	}
}

// retire makes the sequence refuse further requests. The stream is closed when all accepted requests are answered.
func (q *sequence) retire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retireLocked()
}

func (q *sequence) retireLocked() {
	if !q.retired.Swap(true) {
		q.table.remove(q)
	}
	q.closeIfDone(stream.ByClient)
}

// closeIfDone closes the stream of a retired sequence without outstanding requests. mu is
// held.
func (q *sequence) closeIfDone(why stream.CloseReason) {
	if q.closed || q.outstanding > 0 {
		return
	}
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	if q.ended.Swap(true) {
		q.table.dead.Add(-1)
	} else {
		q.stream.Close(why)
	}
	q.table.free(q.key)
}

// finish is called after the ending of a request.
func (q *sequence) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.outstanding--; q.outstanding > 0 {
		return
	}
	if q.retired.Load() {
		q.closeIfDone(stream.ByClient)
		return
	}
	q.idleAt = time.Now().Add(q.idle)
	if q.timer == nil {
		q.timer = time.AfterFunc(q.idle, q.expire)
	} else {
		q.timer.Reset(q.idle)
	}
}

// expire ends the sequence if the idle time is over: the timer may have been reset after firing.
func (q *sequence) expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.outstanding > 0 || q.retired.Load() || time.Now().Before(q.idleAt) {
		return
	}
	q.retired.Store(true)
	q.table.remove(q)
	q.closeIfDone(stream.Idle)
}

// Push implements stream.Sink.
func (q *sequence) Push(r *stream.Result) {
	q.waiters.Lock()
	c := q.waiting[0]
	if r.Partial {
		c.partial = true
		q.waiters.Unlock()
		r.Release()
		return
	}
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	q.waiters.Unlock()
	c.ended(r)
}

// Done implements stream.Sink.
func (q *sequence) Done(stream.CloseReason) {
	if !q.ended.Swap(true) {
		q.table.dead.Add(1)
	}
}
