package load

import (
	"context"
	"sync"

	"millrace/stream"
)

// Target opens streams to a server or function under test.
type Target interface {
	// Open opens stream number i. The target calls ended once for each ending, from any
	// goroutine; ended does not block and does not call the target.
	Open(ctx context.Context, i int, ended func(Ending)) (Conn, error)
}

// Conn is one open stream of a target.
type Conn interface {
	// Send sends a frame; seq counts from 0 without gaps. Send may block while the server does not accept frames. A
	// single goroutine calls Send. An error means that the frame was not sent and the stream has failed.
	Send(seq uint64, f *Frame) error
	// Close ends the stream and any blocked Send. After Close has returned, ended is not called again.
	Close() error
}

// Ending is the ending of a frame, a part of a result, or the loss of the stream.
type Ending struct {
	Seq     uint64
	Outcome stream.Outcome // Pending for Lost
	Partial bool           // part of a result: the frame's ending follows
	Reason  stream.Reason  // of a drop
	Err     error          // of a failed frame, with the code stream.CodeOf(Err)
	Batch   int            // rows of the batch; 0 = unknown
	Lost    error          // the stream failed: no more endings follow
}

// Calls is a target that calls a function for each frame, for example a call of the server in this process. The
// function returns when the frame is answered. Errors are counted by code (stream.CodeOf). In a closed loop each
// stream runs as many calls at the same time as its window allows; in an open loop, up to InFlight.
type Calls struct {
	Call     func(ctx context.Context, stream int, f *Frame) (batch int, err error)
	InFlight int // 0 = DefaultInFlight
}

// DefaultInFlight is the number of calls at the same time on one stream in an open loop. Further frames wait, and the
// wait is part of their latency.
const DefaultInFlight = 256

var _ Target = Calls{}

// Open implements Target.
func (t Calls) Open(_ context.Context, i int, ended func(Ending)) (Conn, error) {
	n := t.InFlight
	if n == 0 {
		n = DefaultInFlight
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &calls{call: t.Call, index: i, ended: ended, ctx: ctx, cancel: cancel, places: make(chan struct{}, n)}, nil
}

type calls struct {
	call   func(context.Context, int, *Frame) (int, error)
	index  int
	ended  func(Ending)
	ctx    context.Context
	cancel func()
	places chan struct{}
	wg     sync.WaitGroup
}

// Send implements Conn. The call runs in its own goroutine, so that later frames do not wait for earlier answers.
func (c *calls) Send(seq uint64, f *Frame) error {
	select {
	case c.places <- struct{}{}:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	c.wg.Go(func() {
		batch, err := c.call(c.ctx, c.index, f)
		<-c.places
		e := Ending{Seq: seq, Outcome: stream.Answered, Batch: batch}
		if err != nil {
			e.Outcome, e.Err = stream.Failed, err
		}
		if c.ctx.Err() == nil {
			c.ended(e)
		}
	})
	return nil
}

// Close implements Conn.
func (c *calls) Close() error {
	c.cancel()
	c.wg.Wait()
	return nil
}
