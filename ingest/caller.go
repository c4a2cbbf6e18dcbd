package ingest

import (
	"context"
	"sync"
	"sync/atomic"

	"millrace/internal/buf"
	"millrace/stream"
)

// maxIdleLines bounds how many unused lines a Caller keeps for each model.
const maxIdleLines = 256

// Caller sends one-shot requests: REST, gRPC and native calls. Each request has
// a line, a stream of its own that is used again by a later request, so that
// calls share batches and fairness with the live streams. It is safe for
// concurrent use.
type Caller struct {
	backend Backend

	mu     sync.Mutex
	idle   map[target][]*line
	closed bool
}

type target struct{ model, version string }

// NewCaller returns a Caller that calls backend.
func NewCaller(backend Backend) *Caller {
	return &Caller{backend: backend, idle: make(map[target][]*line)}
}

// line is the sink of one request at a time.
type line struct {
	stream *stream.Stream
	state  atomic.Uint32
	result chan *stream.Result // room for the one ending, so Push never blocks
	broken atomic.Bool         // Done was called
}

// A line's states.
const (
	lineIdle uint32 = iota
	lineCalling
	lineAbandoned
)

// Push implements stream.Sink.
func (l *line) Push(r *stream.Result) {
	if r.Partial || !l.state.CompareAndSwap(lineCalling, lineIdle) {
		r.Release()
		return
	}
	l.result <- r
}

// Done implements stream.Sink.
func (l *line) Done(stream.CloseReason) { l.broken.Store(true) }

// Infer submits one frame and returns its ending, which the caller must
// release. f.Lease is taken over in every case. A drop or a failure is an
// error: the frame's own coded one, Overloaded or Timeout for a drop. When ctx
// ends first, Infer returns at once and the frame's ending is discarded.
func (c *Caller) Infer(ctx context.Context, model, version string, f stream.Frame) (*stream.Result, error) {
	if f.Lease != nil {
		f.Lease.Retain() // so that a line that turns out broken can be replaced
	}
	for {
		l, reused, err := c.line(target{model, version})
		if err != nil {
			f.Lease.Release()
			f.Lease.Release()
			return nil, err
		}
		l.state.Store(lineCalling)
		if err := l.stream.Submit(f); err != nil {
			// A line kept from before an unload or a swap: try the model anew.
			if reused && stream.CodeOf(err) != stream.FlowControl {
				if f.Lease != nil {
					f.Lease.Retain()
				}
				continue
			}
			f.Lease.Release()
			return nil, err
		}
		f.Lease.Release()
		return c.await(ctx, target{model, version}, l)
	}
}

func (c *Caller) await(ctx context.Context, t target, l *line) (*stream.Result, error) {
	r, err := l.wait(ctx)
	if err != nil {
		return nil, err
	}
	c.putBack(t, l, r.Model.Stateful)
	switch r.Outcome {
	case stream.Failed:
		return nil, r.Err
	case stream.Dropped:
		return nil, DropError(r.Reason)
	}
	return r, nil
}

// wait returns the line's result, or gives the line up when ctx ends first.
func (l *line) wait(ctx context.Context) (*stream.Result, error) {
	if ctx.Done() == nil { // a select would cost as much as everything else here
		return <-l.result, nil
	}
	select {
	case r := <-l.result:
		return r, nil
	case <-ctx.Done():
	}
	if !l.state.CompareAndSwap(lineCalling, lineAbandoned) {
		return <-l.result, nil // it came at the same moment
	}
	l.stream.Close(stream.ClientGone)
	cause := context.Cause(ctx)
	return nil, stream.Errorf(stream.CodeOf(cause), "", "the call ended before its result: %w", cause)
}

// DropError says in an error what a drop means to someone who sent one request.
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

// line returns a free line to t, and whether it was used before.
func (c *Caller) line(t target) (*line, bool, error) {
	c.mu.Lock()
	for ls := c.idle[t]; len(ls) > 0; ls = c.idle[t] {
		l := ls[len(ls)-1]
		ls[len(ls)-1] = nil
		c.idle[t] = ls[:len(ls)-1]
		if !l.broken.Load() {
			c.mu.Unlock()
			return l, true, nil
		}
	}
	c.mu.Unlock()
	l := &line{result: make(chan *stream.Result, 1)}
	s, err := c.backend.Open(t.model, t.version, stream.Options{
		Policy:  stream.Policy{Mode: stream.Every, Window: 1},
		OneShot: true,
	}, l)
	if err != nil {
		return nil, false, err
	}
	l.stream = s
	return l, false, nil
}

// putBack keeps the line for a later call. stateful is of the model that answered:
// a swap may have changed it since the line was opened.
func (c *Caller) putBack(t target, l *line, stateful bool) {
	if l.broken.Load() {
		return
	}
	if stateful { // the next caller must not meet this one's state
		l.stream.Close(stream.ByClient)
		return
	}
	c.mu.Lock()
	keep := !c.closed && len(c.idle[t]) < maxIdleLines
	if keep {
		c.idle[t] = append(c.idle[t], l)
	}
	c.mu.Unlock()
	if !keep {
		l.stream.Close(stream.ByClient)
	}
}

// Close closes the unused lines; lines in use close when their call ends.
func (c *Caller) Close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = make(map[target][]*line), true
	c.mu.Unlock()
	for _, ls := range idle {
		for _, l := range ls {
			l.stream.Close(stream.ByClient)
		}
	}
}
