package tasks

import (
	"encoding/hex"
	"errors"
	"sync"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/stream"
	"millrace/tasks"
)

// attempts are the spans of the running attempts.
type attempts struct {
	mu  sync.Mutex
	all map[claimKey]stream.TaskSpan
}

// beginSubmission sets the trace of a new task: the trace of the request, or a new trace. Without traces on this
// server, the task keeps the context of the client.
func (a *Adapter) beginSubmission(c *fiber.Ctx, by *ingest.Client, t *tasks.Task) stream.TaskSpan {
	var h frames.TraceHeaders
	c.Request().Header.VisitAll(h.Add)
	s := stream.TaskSpan{TraceContext: a.contexts.Request(&h), Model: t.Model, Version: t.Version, User: by.Name(),
		From: stream.Now()}
	stored := s.TraceContext
	if a.opts.Tracer != nil {
		s.Span = a.opts.Tracer.SampleTask(&s.TraceContext, t.Model)
		stored.Trace, stored.Parent, stored.Decision = s.Trace, s.Span, s.Decision
	}
	t.Trace = ""
	if stored.Trace != (stream.TraceID{}) {
		t.Trace = string(frames.AppendTraceparent(nil, &stored))
	}
	return s
}

// endSubmission ends the span of a submission that is stored as a task or an upload.
func (a *Adapter) endSubmission(c *fiber.Ctx, s stream.TaskSpan, id string, size int64) {
	if a.opts.Tracer == nil {
		return
	}
	s.Task, s.Bytes, s.To = id, size, stream.Now()
	a.opts.Tracer.KeepTask(s)
	r := stream.Result{Trace: s.Trace, Span: s.Span, Kept: s.Decision >= stream.Sampled}
	c.Set("traceresponse", string(frames.AppendTraceresponse(nil, &r)))
}

// beginAttempt begins the span of an attempt, and returns the context for the frames of the attempt. A task without a
// trace has the trace with the id of the task.
func (a *Adapter) beginAttempt(t *tasks.Task) (c stream.TraceContext) {
	frames.Traceparent(&c, []byte(t.Trace))
	if a.opts.Tracer == nil {
		return c
	}
	if c.Trace == (stream.TraceID{}) {
		_, _ = hex.Decode(c.Trace[:], []byte(t.ID)) // an id is 32 digits
	}
	s := stream.TaskSpan{TraceContext: c, Task: t.ID, Model: t.Model, Version: t.Version, Bytes: t.Input.Size,
		Attempt: t.Attempt, Consumer: t.Consumer, Begun: stream.Now()}
	s.Span = a.opts.Tracer.SampleTask(&s.TraceContext, t.Model)
	s.From = s.Begun
	if !t.Queued.IsZero() {
		s.From = min(s.Begun, stream.InstantOf(t.Queued)) // the clocks of two hosts may differ
	}
	a.attempts.mu.Lock()
	defer a.attempts.mu.Unlock()
	if a.attempts.all == nil {
		a.attempts.all = map[claimKey]stream.TaskSpan{}
	}
	a.attempts.all[claimKey{t.ID, t.Attempt}] = s
	c = s.TraceContext
	c.Parent = s.Span
	return c
}

// endAttempt ends the span of an attempt.
func (a *Adapter) endAttempt(e tasks.End) {
	if a.opts.Tracer == nil {
		return
	}
	k := claimKey{e.Task.ID, e.Task.Attempt}
	a.attempts.mu.Lock()
	s, ok := a.attempts.all[k]
	delete(a.attempts.all, k)
	a.attempts.mu.Unlock()
	if !ok {
		return
	}
	s.To, s.Outcome = stream.Now(), e.Outcome
	if e.Outcome == "failed" || e.Outcome == "lost" {
		if s.Err = e.Err; s.Err == nil {
			s.Err = errors.New(e.Outcome)
		}
	}
	a.opts.Tracer.KeepTask(s)
}
