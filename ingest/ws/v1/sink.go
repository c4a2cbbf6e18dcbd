package v1

import (
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

// fail ends a frame that the stream does not see.
func (c *channel) fail(seq uint64, err error) {
	c.push(conn.Entry{Source: (*endings)(c), Result: &stream.Result{Outcome: stream.Failed, Err: err, Seq: seq}})
}

// drop notes a dropped frame. Those that are noted when the writer comes to them are told together.
func (c *channel) drop(seq uint64, why stream.Reason) {
	if c.noteDrop(seq, why) {
		c.push(conn.Entry{Source: (*dropNotice)(c)})
	}
}

// endUndecoded ends the frames that a stream which has ended by itself leaves in its decoder. The stream's lock may be held.
func (c *channel) endUndecoded(why stream.CloseReason) {
	d := c.decoder.Load()
	if d == nil {
		return
	}
	err := error(stream.Errorf(stream.Conflict, "", "the stream is closed (%s)", why))
	if e, ok := conn.StreamEnding(why, c.model); ok {
		err = e.Err
	}
	for _, f := range d.Close() {
		c.fail(f.Seq, err)
	}
}
