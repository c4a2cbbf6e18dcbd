package ws

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/ingest/decoders"
	"millrace/internal/wire"
	"millrace/stream"
)

// channel is one stream of a millrace.v1 session. It is the stream's sink. The
// session's reader feeds it; its endings go out through the session's outbox,
// and the newest that were written are kept for a client that lost them.
type channel struct {
	m      *mux
	sid    uint32
	model  string
	codec  stream.Codec
	width  int
	height int
	form   outputs

	stream  atomic.Pointer[stream.Stream]    // set before the channel is fed
	decoder atomic.Pointer[decoders.Decoder] // of inter-coded video, or nil

	received atomic.Uint64 // frames that came
	lastSeq  atomic.Uint64 // of the newest; valid when received > 0
	acked    atomic.Uint64 // frames whose ending was written, or lost with a connection
	window   atomic.Int64
	last     atomic.Bool // no frame comes any more
	regions  atomic.Bool // frames name parts of themselves: their size is meant
	closing  bool        // its client has closed it, a video; the reader's

	mu     sync.Mutex
	drops  []drops            // not yet written
	noted  bool               // an entry for them is in the outbox
	recent []kept             // the writer's; a ring
	at     int                // where the next one goes
	why    stream.CloseReason // once its end was told; the writer's
	pace   pace               // the writer's
}

// drops are the frames that were dropped for one reason, as ranges of seq.
type drops struct {
	reason stream.Reason
	ranges []wire.Range
	frames uint64
}

// kept is an ending as it was written.
type kept struct {
	seq    uint64
	msg    []byte
	binary bool
}

var _ stream.Sink = (*channel)(nil)

// opened is called once, before the channel is fed.
func (c *channel) opened(st *stream.Stream) {
	c.window.Store(int64(st.Policy().Window))
	c.recent = make([]kept, min(max(2*st.Policy().Window, leastKept), mostKept))
	c.stream.Store(st)
}

// The bounds of what is kept of a stream for a resumed session.
const (
	leastKept    = 4
	mostKept     = 64
	mostKeptSize = 256 << 10 // bytes of one ending; larger ones are not kept
)

// limit is the count of frames that the client may have sent.
func (c *channel) limit() uint64 { return c.acked.Load() + uint64(c.window.Load()) }

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

// keep is called by the writer with each ending that it writes.
func (c *channel) keep(seq uint64, msg []byte, isBinary bool) {
	if len(msg) > mostKeptSize {
		return
	}
	k := &c.recent[c.at]
	c.at = (c.at + 1) % len(c.recent)
	k.seq, k.binary = seq, isBinary
	k.msg = append(k.msg[:0], msg...)
}

// missed calls f with the kept endings of frames after seq, the oldest first;
// math.MaxUint64 stands for none of them being known.
func (c *channel) missed(after uint64, f func(k *kept)) {
	for i := range c.recent {
		k := &c.recent[(c.at+i)%len(c.recent)]
		if k.msg != nil && (after == math.MaxUint64 || k.seq > after) {
			f(k)
		}
	}
}
