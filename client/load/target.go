package load

import (
	"context"
	"sync"

	"millrace/stream"
)

// Target is what load is put on.
type Target interface {
	// Open opens stream number i. ended is called once for each ending that
	// arrives, from any goroutine; it is quick and calls nothing back.
	Open(ctx context.Context, i int, ended func(Ending)) (Conn, error)
}

// Conn is one open stream of a target.
type Conn interface {
	// Send sends a frame; seq counts from 0 without gaps. It may block while the
	// server takes nothing. It is called from one goroutine, and its error means
	// that the frame was not sent and the stream is over.
	Send(seq uint64, f *Frame) error
	// Close ends the stream, and a Send that blocks. After it, ended is not
	// called any more.
	Close() error
}

// Ending is what a server said of a frame.
type Ending struct {
	Seq     uint64
	Outcome stream.Outcome // Pending for Lost
	Partial bool           // part of a result: the frame's ending is still to come
	Reason  stream.Reason  // of a drop
	Code    stream.Code    // of an error
	Batch   int            // frames in its batch, 0 when not told
	Lost    error          // the stream broke: no ending will come any more
}

// Calls is a target made of a function that sends one frame and waits for its
// answer, such as a call of the server in this process. Its errors are counted
// by their code (stream.CodeOf). In a closed loop as many calls run at once on
// each stream as its window allows; in an open loop, up to InFlight.
type Calls struct {
	Call     func(ctx context.Context, stream int, f *Frame) (batch int, err error)
	InFlight int // 0 = DefaultInFlight
}

// DefaultInFlight is how many calls an open loop has running on one stream
// before further frames wait for a place. That wait counts as latency.
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

// Send implements Conn: the call gets a goroutine of its own, so that frames
// which are due do not wait for earlier answers.
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
			e.Outcome, e.Code = stream.Failed, stream.CodeOf(err)
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
