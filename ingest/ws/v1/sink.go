package v1

import (
	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/stream"
)

var _ stream.Sink = (*channel)(nil)

// Push implements stream.Sink.
func (c *channel) Push(r *stream.Result) {
	c.clips.Result(r)
	if r.Outcome != stream.Dropped {
		c.push(conn.Entry{Source: (*endings)(c), Result: r})
		return
	}
	c.drop(r.Seq, r.Reason)
	r.Release()
}

// Done implements stream.Sink.
func (c *channel) Done(why stream.CloseReason) {
	c.registry.StreamEnded(why)
	c.clips.Close()
	c.endUndecoded(why)
	c.push(conn.Entry{Source: &closedNotice{c, why}})
}

// refuse ends a frame before the stream, and counts the frame: as dropped for why, or, with err, as failed. The
// caller may hold the stream's lock.
func (c *channel) refuse(seq uint64, why stream.Reason, err error) {
	r := c.stream.Load().Refuse(&stream.Frame{Seq: seq}, why, err)
	if err != nil {
		c.push(conn.Entry{Source: (*endings)(c), Result: r})
		return
	}
	c.drop(seq, why)
}

// fail ends a frame refused, and already counted, by the stream.
func (c *channel) fail(seq uint64, err error) {
	c.push(conn.Entry{Source: (*endings)(c), Result: &stream.Result{Outcome: stream.Failed, Err: err, Seq: seq}})
}

// drop records a dropped frame. The writer sends all drops recorded by the time of their entry together.
func (c *channel) drop(seq uint64, why stream.Reason) {
	if c.drops.note(seq, why) {
		c.push(conn.Entry{Source: (*dropNotice)(c)})
	}
}

// endUndecoded ends the frames left in the decoder after the stream has ended by itself. The caller may hold the
// stream's lock.
func (c *channel) endUndecoded(why stream.CloseReason) {
	d := c.decoder.Load()
	if d == nil {
		return
	}
	err := ingest.ClosedError(why, c.model)
	if err == nil {
		err = stream.Errorf(stream.Conflict, "", "the stream is closed (%s)", why)
	}
	for _, f := range d.Close() {
		c.refuse(f.Seq, "", err)
	}
}
