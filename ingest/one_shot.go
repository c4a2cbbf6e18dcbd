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

// maxIdle is the most unused streams kept by a OneShot per model.
const maxIdle = 256

// maxReopened is the most further streams for a request whose new stream was ended by a swap.
const maxReopened = 3

// OneShot sends one-shot requests of one frame each, for REST, gRPC and native calls. Each request has its own stream
// during the request; later requests reuse the stream. One-shot requests thus share batches and fairness with other
// streams. OneShot is safe for concurrent use.
type OneShot struct {
	backend  Backend
	protocol string
	noModel  *stream.FrameCounts

	mu     sync.Mutex
	idle   map[target]*exchangePool
	closed bool
}

// target is the destination of a request: when version is "", chosen is the version chosen by weight, "" = the only
// version.
type target struct{ model, version, chosen string }

// NewOneShot returns a OneShot for the backend behind a gate. protocol is the protocol's name in traces. Requests for
// models that are not loaded are counted in noModel.
func NewOneShot(gate *Gate, protocol string, noModel *stream.FrameCounts) *OneShot {
	return &OneShot{backend: gate.backend, protocol: protocol, noModel: noModel, idle: make(map[target]*exchangePool)}
}

// exchangePool holds the unused exchanges with a target. OneShot.mu guards the pool.
type exchangePool struct{ free []*exchange }

// exchange is a stream for one request at a time, and the stream's sink.
type exchange struct {
	pool   *exchangePool // for the return of the exchange without a lookup by names
	stream *stream.Stream
	// ending is the ending of the request, or awaited. The ending of a request that has run in the caller's goroutine
	// does not pass through the channel, for speed.
	ending atomic.Pointer[stream.Result]
	result chan *stream.Result // the ending of an awaited request; capacity 1, for the only ending: Push never blocks
	ended  atomic.Bool         // Done was called
	// partial says that partial results of the request were discarded. Written before the ending is pushed.
	partial bool
	caller  stream.Caller
}

// awaited is exchange.ending while the caller waits at exchange.result.
var awaited = new(stream.Result)

// hasEnded reports whether the ending of the request was pushed. Only the caller calls hasEnded, before wait.
func (x *exchange) hasEnded() bool { return x.ending.Load() != nil }

// Push implements stream.Sink.
func (x *exchange) Push(r *stream.Result) {
	if r.Partial {
		x.partial = true
		r.Release()
		return
	}
	if !x.ending.CompareAndSwap(nil, r) {
		x.result <- r
	}
}

// Done implements stream.Sink.
func (x *exchange) Done(stream.CloseReason) { x.ended.Store(true) }

// Infer submits a frame, charges the client, and returns the frame's ending; the caller must release the ending.
// Infer always takes over f.Lease. A drop or a failure is returned as an error: the frame's own coded error, or
// Overloaded or Timeout for a drop. With the error of an accepted frame Infer also returns the result, already
// released, for its trace ids. When ctx ends first, the frame ends with ctx's error.
func (o *OneShot) Infer(ctx context.Context, client *Client, model, version string,
	f stream.Frame) (*stream.Result, error) {
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
		x.caller.Open()
		err = x.stream.Offer(f, &x.caller)
		x.caller.Work()
		if err != nil {
			// The stream was opened before an unload or swap: open another stream. A swap may also end a new stream
			// before its first frame, when the model's inputs or outputs have changed.
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

// InferIn is Infer for a request possibly in a sequence: see Sequences.Infer.
func (o *OneShot) InferIn(ctx context.Context, client *Client, of Sequence, model, version string,
	f stream.Frame) (*stream.Result, error) {
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

// wait returns the frame's ending; when ctx ends first, the ending is an error.
func (x *exchange) wait(ctx context.Context) *stream.Result {
	defer x.ending.Store(nil) // for the next request
	if !x.ending.CompareAndSwap(nil, awaited) {
		return x.ending.Load()
	}
	if ctx.Done() == nil { // avoids a select
		return <-x.result
	}
	select {
	case r := <-x.result:
		return r
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	x.stream.Abandon(stream.Errorf(stream.CodeOf(cause), "", "the call ended before its result: %w", cause))
	return <-x.result // the error, or an ending pushed at the same time
}

// Refuse counts a client's request refused with err before a stream, and returns the ending with the trace ids of the
// request. Lack of memory counts as a drop, as for requests in a stream, although the client receives an error for
// both.
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

// ErrDecoupled returns the error of a request for a single answer to a model with any number of answers.
func ErrDecoupled(m *stream.Model) error {
	err := stream.Errorf(stream.Unsupported, "", "model %s may answer a request more than once, and this call "+
		"doesn't support models with decoupled transaction policy: ask it with generate_stream, infer_stream, or "+
		"ModelStreamInfer over gRPC", m.Name)
	err.Err = ErrSeveral
	return err
}

// ErrSeveral is wrapped by the error of a request for a single answer that received several answers.
var ErrSeveral = errors.New("several answers")

// DropError returns the error of a dropped one-shot request.
func DropError(why stream.Reason) error {
	switch why {
	case stream.Stale:
		return stream.Errorf(stream.Timeout, "deadline_ms",
			"the request would have been answered later than its deadline allows")
	case stream.Memory:
		return buf.ErrBudget
	case stream.Closed:
		return stream.Errorf(stream.Canceled, "", "the stream was closed while the request waited")
	}
	return stream.Errorf(stream.Overloaded, "", "the request was dropped (%s)", why)
}

// acquire returns an exchange with t for exclusive use, and whether the exchange was used before.
func (o *OneShot) acquire(t target) (*exchange, bool, error) {
	for x := o.unused(t); x != nil; x = o.unused(t) {
		if t.chosen == t.version || x.stream.Model().Version == t.chosen {
			return x, true, nil
		}
		// The stream moved to another version during an unload, and the stream's own version is loaded again.
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
	x.stream, x.caller.Ended = s, x.hasEnded
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle[t] == nil { // only now: unknown models get no place in the map
		for _, pool := range o.idle { // of versions no longer served
			pool.free = slices.DeleteFunc(pool.free, func(x *exchange) bool { return x.ended.Load() })
		}
		o.idle[t] = &exchangePool{}
	}
	x.pool = o.idle[t]
	return x, false, nil
}

// unused removes and returns an unused exchange with t, or nil.
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

// release keeps the exchange for a later request if reuse is permitted.
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

// Close closes the unused streams; a stream in use closes when its request ends.
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
