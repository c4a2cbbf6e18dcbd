package ws

import (
	"slices"
	"sync"
	"sync/atomic"

	"millrace/ingest/decoders"
	"millrace/internal/wire"
	"millrace/stream"
)

// channel is one stream of a millrace.v1 session. It is the stream's sink. The
// session's reader feeds it; its endings go out through the session's outbox,
// and its keeper has the newest that were written for a client that lost them.
type channel struct {
	m      *mux
	sid    uint32
	model  string
	codec  stream.Codec
	width  int
	height int
	forms  forms
	params stream.Params // of frames that bring none, once they were updated; the reader's

	stream  atomic.Pointer[stream.Stream]    // set before the channel is fed
	decoder atomic.Pointer[decoders.Decoder] // of inter-coded video, or nil

	received atomic.Uint64 // frames that came
	lastSeq  atomic.Uint64 // of the newest; valid when received > 0
	acked    atomic.Uint64 // frames whose ending was written, or lost with a connection
	window   atomic.Int64
	granted  atomic.Uint64 // the highest limit so far
	last     atomic.Bool   // no frame comes any more
	regions  atomic.Bool   // frames name parts of themselves: their size is meant
	closing  bool          // its client has closed it, a video; the reader's

	keeps  int    // endings, at most
	recent []kept // a ring, of the session's keeper; nil until there is one
	at     int    // where the next one goes; the keeper's

	mu    sync.Mutex
	drops []drops            // not yet written
	noted bool               // an entry for them is in the outbox
	why   stream.CloseReason // once its end was told; the writer's
	told  tally              // the writer's
	pace  pace               // the writer's
}

// drops are the frames that were dropped for one reason, as ranges of seq.
type drops struct {
	reason stream.Reason
	ranges []wire.Range
	frames uint64
}

var _ stream.Sink = (*channel)(nil)

// opened is called once, before the channel is fed.
func (c *channel) opened(st *stream.Stream) {
	c.window.Store(int64(st.Policy().Window))
	c.keeps = min(max(2*st.Policy().Window, leastKept), mostKept)
	c.stream.Store(st)
}

// limit is the count of frames that the client may have sent. It never falls,
// for they may be on their way: behind a window that has become smaller it stands
// until so many more have ended.
func (c *channel) limit() uint64 {
	for {
		told, now := c.granted.Load(), c.acked.Load()+uint64(c.window.Load())
		if now <= told {
			return told
		}
		if c.granted.CompareAndSwap(told, now) {
			return now
		}
	}
}

// lastCame notes that no frame comes any more. It is called by the reader.
func (c *channel) lastCame() {
	c.last.Store(true)
	if d := c.decoder.Load(); d != nil {
		d.End()
	}
	c.closeIfLast()
}

// closeIfLast closes the stream when the last frame has its ending.
func (c *channel) closeIfLast() {
	if c.last.Load() && c.acked.Load() >= c.received.Load() {
		c.stream.Load().Close(stream.ByClient)
	}
}

// Push implements stream.Sink.
func (c *channel) Push(r *stream.Result) {
	if r.Outcome != stream.Dropped {
		c.m.push(entry{result: r, channel: c})
		return
	}
	c.drop(r.Seq, r.Reason)
	r.Release()
}

// Done implements stream.Sink.
func (c *channel) Done(why stream.CloseReason) {
	c.m.a.streamEnds.add(string(why))
	c.abandon(why)
	c.m.push(entry{channel: c, closed: why})
}

// fail ends a frame that the stream does not see.
func (c *channel) fail(seq uint64, err error) {
	c.m.push(entry{result: &stream.Result{Outcome: stream.Failed, Err: err, Seq: seq}, channel: c})
}

// drop notes a dropped frame. Those that wait to be told go out together.
func (c *channel) drop(seq uint64, why stream.Reason) {
	c.mu.Lock()
	i := slices.IndexFunc(c.drops, func(d drops) bool { return d.reason == why })
	if i < 0 {
		i = len(c.drops)
		c.drops = append(c.drops, drops{reason: why})
	}
	d := &c.drops[i]
	d.frames++
	d.ranges = wire.AddSeq(d.ranges, seq)
	first := !c.noted
	c.noted = true
	c.mu.Unlock()
	if first {
		c.m.push(entry{channel: c})
	}
}

// takeDrops returns what is noted, for the writer.
func (c *channel) takeDrops() []drops {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.drops
	c.drops, c.noted = nil, false
	return d
}
