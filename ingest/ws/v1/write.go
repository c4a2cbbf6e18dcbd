package v1

import (
	"time"

	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// A channel puts three kinds of entries into the outbox: the ending of a frame, a notice of drops, and the end of the
// stream. The writer goroutine determines the content at the time of the write.
type (
	endings      channel
	dropNotice   channel
	closedNotice struct {
		c   *channel
		why stream.CloseReason
	}
)

var (
	_ conn.Source = (*endings)(nil)
	_ conn.Source = (*dropNotice)(nil)
	_ conn.Source = (*closedNotice)(nil)
)

// Released implements conn.Source.
func (*endings) Released(bool) {}

// Released implements conn.Source.
func (*dropNotice) Released(bool) {}

// Released implements conn.Source.
func (*closedNotice) Released(bool) {}

// Write writes the result or error of a frame, and keeps the ending for a client that loses the connection.
func (e *endings) Write(w *conn.Writer, r *stream.Result) {
	c := (*channel)(e)
	if !r.Partial {
		c.window.Answer(1)
	}
	msg, isBinary, outcome := c.encode(w.Encoder(), r)
	if !r.Partial {
		c.writer.sent.add(outcome)
		c.replay.add(&c.kept, r.Seq, msg, isBinary)
	}
	w.Message(msg, isBinary)
	if r.Outcome == stream.Answered && !r.Partial {
		if r.Width > 0 {
			c.writer.advisor.frameSize = [2]int{r.Width, r.Height}
		}
		// a frame without a completed window has no times
		c.measure(w, 1, max(r.Timing.Done.Sub(r.Timing.Received), 0), 0)
	}
	c.closeIfLast()
}

// Write writes the recorded drops.
func (n *dropNotice) Write(w *conn.Writer, _ *stream.Result) {
	c := (*channel)(n)
	e := w.Encoder()
	for _, d := range c.drops.take() {
		c.window.Answer(d.frames)
		c.writer.sent.drops += d.frames
		e.Text = wire.AppendDrop(e.Text[:0], &wire.Drop{SID: c.sid, Seqs: d.ranges, Reason: string(d.reason),
			Ack: c.window.Answered(), Limit: c.window.Limit()})
		c.replay.add(&c.kept, d.ranges[len(d.ranges)-1][1], e.Text, false)
		w.Text(e.Text)
		if d.reason == stream.Superseded || d.reason == stream.Overtaken || d.reason == stream.Stale {
			c.measure(w, 0, 0, d.frames)
		}
	}
	c.closeIfLast()
}

// Write writes the end of the stream.
func (n *closedNotice) Write(w *conn.Writer, _ *stream.Result) {
	c := n.c
	c.writer.end = n.why
	c.onEndSent(c)
	c.writeClosed(w)
}

// writeClosed writes the end of the stream; c.writer.end is set.
func (c *channel) writeClosed(w *conn.Writer) {
	c.write(w, &wire.Closed{SID: c.sid, Reason: string(c.writer.end), Totals: c.totals()})
}

// encode encodes the ending of a frame, and returns the outcome in the message: an unsendable result becomes an
// error. The message is valid until the encoder is used again or r is released.
func (c *channel) encode(e *conn.Encoder, r *stream.Result) (msg []byte, isBinary bool, ending stream.Outcome) {
	err := r.Err
	if r.Outcome == stream.Answered {
		form := c.form.of(r.Seq)
		if msg, err = c.encodeResult(e, r, form); err == nil {
			return msg, form == conn.AsBinary, stream.Answered
		}
		err = conn.Unsendable(err)
		r.CountUnsendable(err)
	}
	m := errorMessage(err)
	m.SID, m.Seq, m.Ack, m.Limit = &c.sid, &r.Seq, c.window.Answered(), c.window.Limit()
	m.Trace = c.traceOf(r)
	e.Text = wire.AppendError(e.Text[:0], m)
	return e.Text, false, stream.Failed
}

// traceOf returns the trace of an ending, "" unless the client has asked for traces.
func (c *channel) traceOf(r *stream.Result) string {
	if !c.traced || r.Trace == (stream.TraceID{}) {
		return ""
	}
	return string(frames.AppendTraceresponse(make([]byte, 0, 55), r))
}

func (c *channel) encodeResult(e *conn.Encoder, r *stream.Result, form conn.Outputs) (msg []byte, err error) {
	if form == conn.AsBinary {
		e.Begin(r)
		e.Int("ack", int64(c.window.Answered()))
		e.Int("credit_limit", int64(c.window.Limit()))
		if c.traced {
			e.Trace(r)
		}
		return e.Binary(r, c.sid)
	}
	dst := wire.AppendResultHead(e.Text[:0], &wire.Result{
		SID: c.sid, Seq: r.Seq, Ack: c.window.Answered(), Limit: c.window.Limit(), CaptureUS: r.CaptureUS,
		Model: r.Model.Name, Version: r.Model.Version,
		Batch: r.BatchSize, Width: r.Width, Height: r.Height, Partial: r.Partial, Timing: conn.TimingOf(&r.Timing),
		Trace: c.traceOf(r),
	})
	if form == conn.AsJSON {
		if dst, err = e.Members(append(dst, ','), r); err != nil {
			return nil, err
		}
	}
	e.Text = append(dst, '}')
	return e.Text, nil
}

// serverTime returns the server's time, in microseconds since 1970.
func serverTime() int64 { return time.Now().UnixMicro() }
