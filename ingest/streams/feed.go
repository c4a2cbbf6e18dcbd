package streams

import (
	"context"
	"sync"
	"sync/atomic"

	"millrace/ingest"
	"millrace/stream"
)

// modelFeed connects the source of a runner to the stream of one model: the feed submits frames and is the stream's
// sink.
type modelFeed struct {
	f      *runner
	c      *consumer
	stream *stream.Stream
	ctx    context.Context
	cancel context.CancelFunc
	every  bool
	model  *stream.Model // of the last frame
	fresh  bool          // no frame was read since the source was opened: the next frame begins a discontinuity

	window  *ingest.Window // frames submitted and results written
	waiting sync.Mutex     // held by the goroutine waiting for the window
	ended   atomic.Pointer[stream.CloseReason]
}

var _ stream.Sink = (*modelFeed)(nil)

// unreadable ends an unreadable frame with an error: in mode Every after the results of earlier frames, in mode
// Latest at once.
func (o *modelFeed) unreadable(fr stream.Frame, err error) {
	o.fresh = true // the next frame does not follow this frame
	if o.every && !o.wait(1) {
		o.drop(fr.Seq, stream.Closed)
		return
	}
	o.window.Receive()
	if o.stream.SubmitEnded(fr, stream.Now(), "", err) != nil {
		o.done()
		o.drop(fr.Seq, stream.Closed)
	}
}

// frame submits a frame. Only mode Every accepts late frames. In mode Every a source with an end (finite) waits for
// room in the window; a live source loses frames that do not fit. A panic also releases the lease.
func (o *modelFeed) frame(fr stream.Frame, finite bool) {
	submitted := false
	defer func() {
		if !submitted {
			fr.Lease.Release()
		}
	}()
	if fr.Late && !o.every {
		o.fresh = true // the next frame does not follow on the last
		o.drop(fr.Seq, stream.Superseded)
		return
	}
	if o.fresh {
		o.fresh, fr.Discontinuity = false, true
	}
	if o.every && finite && !o.wait(o.stream.Policy().Window) {
		o.drop(fr.Seq, stream.Closed)
		return
	}
	if m := o.stream.Model(); m != o.model {
		o.model = m
		o.f.resize() // another model may need another size
	}
	o.window.Receive()
	submitted = true // Submit releases the lease, whatever happens
	if err := o.stream.Submit(fr); err != nil {
		o.done()
		o.stream.MarkDiscontinuity() // the frame is lost: mark the next frame as discontinuous
		why := stream.Closed
		if stream.CodeOf(err) == stream.FlowControl {
			why = stream.WindowFull
		}
		o.drop(fr.Seq, why)
	}
}

// dropForMemory reports a frame dropped for lack of memory. The source counts the frame.
func (o *modelFeed) dropForMemory() {
	o.stream.Refuse(&stream.Frame{}, stream.Memory, nil)
	o.stream.MarkDiscontinuity()
}

// wait returns true once at most n-1 frames have unwritten results, or false when the feed ends first. Several
// goroutines may wait: the reader of the source, the waiter at the source's end, and the goroutine of a removed
// model.
func (o *modelFeed) wait(n int) bool {
	o.waiting.Lock()
	defer o.waiting.Unlock()
	return o.window.Wait(n, o.ctx.Done())
}

// settle returns true once the result of every frame has been written, or false when the feed ends first.
func (o *modelFeed) settle() bool { return o.wait(1) }

// Push implements stream.Sink.
func (o *modelFeed) Push(r *stream.Result) {
	if r.Outcome == stream.Dropped {
		o.f.dropPicture(r.Seq)
		o.c.count(r, nil)
		r.Release()
		o.done()
		return
	}
	if !o.f.queue.push(ending{r, o}) {
		o.f.resultsLost.Add(1)
		partial := r.Partial
		if !partial {
			o.f.dropPicture(r.Seq)
			o.c.count(r, nil)
		}
		r.Release()
		if !partial {
			o.done()
		}
	}
}

// Done implements stream.Sink.
func (o *modelFeed) Done(why stream.CloseReason) {
	o.ended.Store(&why)
	o.cancel()
}

// closed returns the reason for the end of the stream, or "" while the stream is open.
func (o *modelFeed) closed() stream.CloseReason {
	if p := o.ended.Load(); p != nil {
		return *p
	}
	return ""
}

// done counts the answer of a frame.
func (o *modelFeed) done() { o.window.Answer(1) }

func (o *modelFeed) free(r *stream.Result) {
	if !r.Partial {
		o.done()
	}
}

// drop counts a frame that the stream did not accept.
func (o *modelFeed) drop(seq uint64, why stream.Reason) {
	o.f.dropPicture(seq)
	o.stream.Refuse(&stream.Frame{Seq: seq}, why, nil)
	o.c.count(&stream.Result{Outcome: stream.Dropped, Reason: why}, nil)
}
