package tasks

import (
	"context"
	"sync"

	"millrace/ingest"
	"millrace/ingest/sinks"
	"millrace/internal/ctxio"
	"millrace/stream"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// linesType is the media type of a result of JSON lines.
const linesType = "application/x-ndjson"

// maxPartials is the most partial results of a frame that wait to be written.
const maxPartials = 64

// frameWindow is the number of frames of a task that may be unanswered at once. A batch is not interrupted: a live
// frame that arrives during a batch with many frames of a task would wait for all of the frames.
const frameWindow = 1

// frameRun runs the frames of a task in a stream with mode Every and low priority, and writes a line for each result.
// The goroutine of the task submits frames, another goroutine writes lines.
type frameRun struct {
	claim  tasks.Claim
	out    blob.Writer
	unit   string // of the progress
	key    string // of the first member of each line
	stream *stream.Stream
	window *ingest.Window // frames submitted and lines written
	ctx    context.Context
	cancel context.CancelCauseFunc
	seq    uint64 // of the next frame
	share  *share

	mu      sync.Mutex
	changed sync.Cond // queue or closed has changed
	queue   []*stream.Result
	closed  bool
	total   int64             // of the progress; 0 = unknown
	names   map[uint64]string // of frames in flight, by seq; a frame without a name has the id of the task

	annotated *annotated // the annotated video; nil = lines
}

var _ stream.Pacer = (*frameRun)(nil)

// runFrames runs the frames of a task of a model that takes pictures. feed submits the frames. The result has a line
// for each frame, or is the annotated video.
func (a *Adapter) runFrames(c tasks.Claim, trace stream.TraceContext, unit, key string,
	feed func(*frameRun) error) (tasks.File, error) {
	t, backend := c.Task(), a.gate.Owner()
	m, _, err := backend.Models().Model(t.Model, t.Version)
	switch {
	case err != nil:
		return tasks.File{}, err
	case m.Image == nil && !m.AcceptsAnyInput:
		return tasks.File{}, stream.Errorf(stream.Unsupported, "model",
			"model %s takes tensors, not pictures: submit a request", t.Model)
	}
	out, err := c.Create()
	if err != nil {
		return tasks.File{}, err
	}
	defer out.Discard()
	f := &frameRun{claim: c, out: out, unit: unit, key: key, window: ingest.NewWindow(), names: map[uint64]string{},
		share: newShare(a.opts.Share, func() stream.Instant { return a.gate.State().Live })}
	f.changed.L = &f.mu
	f.ctx, f.cancel = context.WithCancelCause(c.Context())
	defer f.cancel(nil)
	f.stream, err = backend.Open(t.Model, t.Version, stream.Options{
		Policy:   stream.Policy{Mode: stream.Every, Priority: stream.Low, Window: frameWindow},
		Protocol: "tasks", Name: t.ID, Version: t.Version, Trace: trace,
	}, f)
	if err != nil {
		return tasks.File{}, err
	}
	result := tasks.File{Type: linesType, Name: "results.jsonl"}
	if t.Annotate == "" {
		err = f.run(feed)
	} else {
		result = tasks.File{Type: "video/mp4", Name: "annotated.mp4"}
		err = a.annotate(f, out, feed)
	}
	if err != nil {
		return tasks.File{}, err
	}
	result.Info, err = out.Commit()
	return result, err
}

// run submits the frames, and returns when every line is written, or after a failure.
func (f *frameRun) run(feed func(*frameRun) error) error {
	var writing sync.WaitGroup
	writing.Go(f.write)
	stop := context.AfterFunc(f.ctx, func() {
		f.stream.Close(stream.ByClient) // frames that wait are dropped
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed.Broadcast()
	})
	defer stop()
	err := feed(f)
	if err == nil {
		f.window.Wait(1, f.ctx.Done())
	}
	f.stream.Close(stream.SourceEnded)
	<-f.stream.Finished()
	f.mu.Lock()
	f.closed = true
	f.changed.Broadcast()
	f.mu.Unlock()
	writing.Wait()
	if cause := context.Cause(f.ctx); cause != nil {
		return cause
	}
	return err
}

// submit submits a frame when the window has room, and takes over the lease. failed is the reason why there is no
// frame to run, nil for none. A name "" stands for the id of the task.
func (f *frameRun) submit(fr stream.Frame, name string, failed error) error {
	if !f.window.Wait(f.stream.Policy().Window, f.ctx.Done()) || !ctxio.Sleep(f.ctx, f.share.pause(stream.Now())) {
		fr.Lease.Release()
		return context.Cause(f.ctx)
	}
	f.window.Receive()
	fr.Seq, fr.Must = f.seq, true // no limit of the model's policy drops the frame
	f.seq++
	f.mu.Lock()
	if name != "" {
		f.names[fr.Seq] = name
	}
	if f.annotated != nil {
		f.annotated.keep(fr)
	}
	f.mu.Unlock()
	var err error
	if failed != nil {
		err = f.stream.SubmitEnded(fr, stream.Now(), "", failed)
	} else {
		err = f.stream.Submit(fr)
	}
	if err != nil && f.ctx.Err() != nil {
		err = context.Cause(f.ctx)
	}
	return err
}

// Push implements stream.Sink.
func (f *frameRun) Push(r *stream.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, r)
	f.changed.Broadcast()
}

// WaitForRoom implements stream.Pacer.
func (f *frameRun) WaitForRoom() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) >= maxPartials && f.ctx.Err() == nil {
		f.changed.Wait()
	}
	return context.Cause(f.ctx)
}

// Done implements stream.Sink. A stream that was closed by the server fails the attempt.
func (f *frameRun) Done(why stream.CloseReason) {
	t := f.claim.Task()
	switch why {
	case stream.SourceEnded, stream.ByClient:
	case stream.ByDrain:
		f.cancel(stream.Errorf(stream.Draining, "", "the server is shutting down"))
	case stream.ByUnload:
		f.cancel(stream.Errorf(stream.Unloaded, "model", "model %s was unloaded while the task ran", t.Model))
	default:
		f.cancel(stream.Errorf(stream.Unavailable, "model", "the stream to model %s was closed (%s)", t.Model, why))
	}
}

// write writes the lines, or the pictures, until the end of the stream.
func (f *frameRun) write() {
	var enc sinks.Encoder
	done := int64(0)
	for r := f.next(); r != nil; r = f.next() {
		partial := r.Partial
		if f.ctx.Err() == nil {
			var err error
			if f.annotated != nil {
				err = f.annotated.write(r)
			} else {
				err = f.writeLine(&enc, r)
			}
			if err != nil {
				f.cancel(err)
			}
		}
		took := r.Timing.Done.Sub(r.Timing.Received)
		r.Release()
		if partial {
			continue
		}
		f.share.took(took)
		done++
		f.mu.Lock()
		total := f.total
		f.mu.Unlock()
		if total != 0 {
			total = max(total, done)
		}
		// the context says when the claim ends
		_ = f.claim.Report(tasks.Progress{Done: done, Total: total, Unit: f.unit})
		f.window.Answer(1)
	}
}

// next waits for a result; nil = no more results follow.
func (f *frameRun) next() *stream.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.closed {
		f.changed.Wait()
	}
	if len(f.queue) == 0 {
		return nil
	}
	r := f.queue[0]
	f.queue[0] = nil
	if f.queue = f.queue[1:]; len(f.queue) == 0 {
		f.queue = nil
	}
	f.changed.Broadcast()
	return r
}

// writeLine writes the line of a result, and forgets the name of the frame after the last line.
func (f *frameRun) writeLine(enc *sinks.Encoder, r *stream.Result) error {
	t := f.claim.Task()
	f.mu.Lock()
	name, named := f.names[r.Seq]
	if !named {
		name = t.ID
	}
	if !r.Partial {
		delete(f.names, r.Seq)
	}
	f.mu.Unlock()
	if r.Outcome == stream.Dropped {
		r.Err = ingest.DropError(r.Reason)
	}
	line, _ := enc.Line(f.key, name, t.Model, r) // an error of the encoding is in the line
	_, err := f.out.Write(append(line, '\n'))
	return err
}

// setTotal sets the total of the progress; 0 = unknown.
func (f *frameRun) setTotal(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total = n
}
