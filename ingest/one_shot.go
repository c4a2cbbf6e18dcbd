package ingest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// maxIdle is the most unused streams that a OneShot keeps for each model.
const maxIdle = 256

// maxReopened is how often a request opens another stream when its new stream was ended by a swap.
const maxReopened = 3

// OneShot sends one-shot requests, which have one frame each: those of REST, gRPC and
// native calls. Each request has its own stream, which a later request uses again, so
// that one-shot requests share batches and fairness with other streams. It is safe for
// concurrent use.
type OneShot struct {
	backend  Backend
	protocol string
	noModel  *stream.FrameCounts

	mu     sync.Mutex
	idle   map[target]*exchangePool
	closed bool
}

// target is where a request goes: chosen is the version for one whose client named none
// in version, "" = the only one.
type target struct{ model, version, chosen string }

// NewOneShot returns a OneShot that sends to the backend behind a gate the requests of a protocol,
// which traces name. Requests for models that are not loaded are counted in noModel.
func NewOneShot(gate *Gate, protocol string, noModel *stream.FrameCounts) *OneShot {
	return &OneShot{backend: gate.backend, protocol: protocol, noModel: noModel, idle: make(map[target]*exchangePool)}
}

// exchangePool holds the exchanges with one target that no request uses, under
// OneShot.mu.
type exchangePool struct{ free []*exchange }

// exchange is a stream that takes one request at a time, and its sink.
type exchange struct {
	pool   *exchangePool // where it returns to: saves a lookup by the target's names
	stream *stream.Stream
	result chan *stream.Result // with room for the one ending, so that Push never blocks
	ended  atomic.Bool         // Done was called
	// partial says that the request had partial results, which nobody took. It is written
	// before the ending is pushed.
	partial bool
}

// Push implements stream.Sink.
func (x *exchange) Push(r *stream.Result) {
	if r.Partial {
		x.partial = true
		r.Release()
		return
	}
	x.result <- r
}

// Done implements stream.Sink.
func (x *exchange) Done(stream.CloseReason) { x.ended.Store(true) }

// Infer submits one frame of a client, to whom it is charged, and returns its ending, which the caller must
// release. It takes over f.Lease in every case. A drop or a failure is returned as an error: the
// frame's own coded error, or Overloaded or Timeout for a drop; the result that comes with
// it, if the frame was accepted, is released and says which trace it belonged to. When ctx
// ends first, the frame ends with its error.
func (o *OneShot) Infer(ctx context.Context, client *Client, model, version string, f stream.Frame) (*stream.Result, error) {
	if err := client.Charge(model, &f); err != nil {
		r := o.Refuse(client, model, version, &f, err)
		f.Lease.Release()
		return r, err
	}
	for attempt := 1; ; attempt++ {
		t := target{model, version, version}
		if version == "" {
			t.chosen = o.backend.Models().Choose(model)
		}
		x, reused, err := o.acquire(t)
		if err != nil {
			o.Refuse(client, model, version, &f, err)
			f.Lease.Release()
			return nil, err
		}
		if err := x.stream.Offer(f); err != nil {
			// Its stream is from before an unload or a swap: open another one. A swap may also end a new stream before its
			// first frame, when the model has other inputs or outputs now.
			code := stream.CodeOf(err)
			if reused && code != stream.FlowControl || code == stream.Unloaded && attempt <= maxReopened {
				continue
			}
			x.stream.Refuse(&f, "", err)
			f.Lease.Release()
			return nil, err
		}
		return o.await(ctx, x)
	}
}

// InferIn is Infer for a request that may be part of a sequence: see Sequences.Infer.
func (o *OneShot) InferIn(ctx context.Context, client *Client, of Sequence, model, version string, f stream.Frame) (*stream.Result, error) {
	if of.ID == (SequenceID{}) {
		return o.Infer(ctx, client, model, version, f)
	}
	return o.backend.Sequences().Infer(ctx, o, client, model, version, of, f)
}

func (o *OneShot) await(ctx context.Context, x *exchange) (*stream.Result, error) {
	r := x.wait(ctx)
	lost := x.partial
	x.partial = false
	// After a drop, the stream's token may wait still, with this request's priority. After a
	// stateful run, the stream has this request's state.
	o.release(x, !r.Model.Stateful && r.Outcome != stream.Dropped)
	if lost && r.Outcome == stream.Answered && (r.Model.Decoupled || r.Reply != nil || r.Model.App != nil) {
		err := ErrDecoupled(r.Model)
		r.CountUnsendable(err)
		r.Release()
		return r, err
	}
	return ending(r)
}

// wait returns the frame's ending, which is an error when ctx ends first.
func (x *exchange) wait(ctx context.Context) *stream.Result {
	if ctx.Done() == nil { // avoids a select, which takes as long as all other steps here
		return <-x.result
	}
	select {
	case r := <-x.result:
		return r
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	x.stream.Abandon(stream.Errorf(stream.CodeOf(cause), "", "the call ended before its result: %w", cause))
	return <-x.result // that error, or what was pushed at the same moment
}

// Refuse counts a request of a client that is refused with err before it has reached a stream. Want
// of memory is a drop, as for requests that have reached one, although both are told as
// an error.
// It returns the ending, with the ids of the request's trace.
func (o *OneShot) Refuse(client *Client, model, version string, f *stream.Frame, err error) *stream.Result {
	if f.Account == nil {
		f.Account = client.Core()
	}
	counts := o.noModel
	if m, _, e := o.backend.Models().Model(model, version); e == nil {
		counts = m.Counts
	}
	if errors.Is(err, buf.ErrBudget) || errors.Is(err, oip.ErrMemory) {
		return counts.RefuseFrame(f, &stream.Options{Protocol: o.protocol}, stream.Memory, nil)
	}
	return counts.RefuseFrame(f, &stream.Options{Protocol: o.protocol}, "", err)
}

// ErrDecoupled returns the error of a request for one answer to a model that answers as
// often as it likes.
func ErrDecoupled(m *stream.Model) error {
	err := stream.Errorf(stream.Unsupported, "", "model %s may answer a request more than once, and this call doesn't support models with decoupled transaction policy: ask it with generate_stream, infer_stream, or ModelStreamInfer over gRPC", m.Name)
	err.Err = ErrSeveral
	return err
}

// ErrSeveral is wrapped by the error of a request for one answer that was answered several
// times.
var ErrSeveral = errors.New("several answers")

// DropError returns the error that a one-shot request gets for a drop.
func DropError(why stream.Reason) error {
	switch why {
	case stream.Stale:
		return stream.Errorf(stream.Timeout, "deadline_ms", "the request would have been answered later than its deadline allows")
	case stream.Memory:
		return buf.ErrBudget
	case stream.Closed:
		return stream.Errorf(stream.Canceled, "", "the stream was closed while the request waited")
	}
	return stream.Errorf(stream.Overloaded, "", "the request was dropped (%s)", why)
}

// acquire returns an exchange with t that no request uses, and whether one used it
// before.
func (o *OneShot) acquire(t target) (*exchange, bool, error) {
	for x := o.unused(t); x != nil; x = o.unused(t) {
		if t.chosen == t.version || x.stream.Model().Version == t.chosen {
			return x, true, nil
		}
		// It went on with another version when its own was unloaded, which is loaded again.
		x.stream.Close(stream.ByClient)
	}
	x := &exchange{result: make(chan *stream.Result, 1)}
	s, err := o.backend.Open(t.model, t.chosen, stream.Options{
		Policy:  stream.Policy{Mode: stream.Every, Window: 1},
		OneShot: true, OwnRefusals: true, Protocol: o.protocol, Version: t.version,
	}, x)
	if err != nil {
		return nil, false, err
	}
	x.stream = s
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle[t] == nil { // only now: models that do not exist get no place in the map
		for _, pool := range o.idle { // of versions that are not served any more
			pool.free = slices.DeleteFunc(pool.free, func(x *exchange) bool { return x.ended.Load() })
		}
		o.idle[t] = &exchangePool{}
	}
	x.pool = o.idle[t]
	return x, false, nil
}

// unused returns an exchange with t that no request uses, or nil.
func (o *OneShot) unused(t target) *exchange {
	o.mu.Lock()
	defer o.mu.Unlock()
	pool := o.idle[t]
	for pool != nil && len(pool.free) > 0 {
		last := len(pool.free) - 1
		x := pool.free[last]
		pool.free[last] = nil
		pool.free = pool.free[:last]
		if !x.ended.Load() {
			return x
		}
	}
	return nil
}

// release keeps the exchange for a later request, if that may use it.
func (o *OneShot) release(x *exchange, reuse bool) {
	if x.ended.Load() {
		return
	}
	o.mu.Lock()
	keep := reuse && !o.closed && len(x.pool.free) < maxIdle
	if keep {
		x.pool.free = append(x.pool.free, x)
	}
	o.mu.Unlock()
	if !keep {
		x.stream.Close(stream.ByClient)
	}
}

// Close closes the unused streams; those in use close when their request ends.
func (o *OneShot) Close() {
	o.mu.Lock()
	idle := o.idle
	o.idle, o.closed = make(map[target]*exchangePool), true
	o.mu.Unlock()
	for _, pool := range idle {
		for _, x := range pool.free {
			x.stream.Close(stream.ByClient)
		}
	}
}
