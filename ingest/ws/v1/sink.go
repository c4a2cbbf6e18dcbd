package v1

import (
	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/stream"
)

var _ stream.Sink = (*channel)(nil)

// Push implements stream.Sink.
func (c *channel) Push(r *stream.Result) {
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
	c.endUndecoded(why)
	c.push(conn.Entry{Source: &closedNotice{c, why}})
}

// refuse ends a frame that is not submitted to the stream, and counts it: as dropped for
// why, or as failed when err is set. The stream's lock may be held.
func (c *channel) refuse(seq uint64, why stream.Reason, err error) {
	r := c.stream.Load().Refuse(&stream.Frame{Seq: seq}, why, err)
	if err != nil {
		c.push(conn.Entry{Source: (*endings)(c), Result: r})
		return
	}
	c.drop(seq, why)
}

// fail ends a frame that the stream has refused, which it has counted.
func (c *channel) fail(seq uint64, err error) {
	c.push(conn.Entry{Source: (*endings)(c), Result: &stream.Result{Outcome: stream.Failed, Err: err, Seq: seq}})
}

// drop records a dropped frame. Drops that are recorded when the writer gets to their
// entry are sent together.
func (c *channel) drop(seq uint64, why stream.Reason) {
	if c.drops.note(seq, why) {
		c.push(conn.Entry{Source: (*dropNotice)(c)})
	}
}

// endUndecoded ends the frames that are left in the decoder of a stream which has ended
// by itself. The stream's lock may be held.
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
