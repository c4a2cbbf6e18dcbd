package v1

import (
	"slices"
	"sync"
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/decoders"
	"millrace/internal/wire"
	"millrace/stream"
)

// channel is one stream of a session, and the stream's sink. The connection's reader feeds it. Its endings go out through the
// session's outlet; the newest that were written are kept for a client that loses them.
type channel struct {
	*outlet
	sid    uint32
	model  string
	codec  stream.Codec
	width  int
	height int
	params stream.Params // of frames that bring none, once they were updated; the reader's
	form   outputs

	stream  atomic.Pointer[stream.Stream]    // set before the channel is fed
	decoder atomic.Pointer[decoders.Decoder] // of inter-coded video, or nil

	window  *ingest.Window // frames that came, and those whose ending was written, or lost with a connection
	lastSeq atomic.Uint64  // of the newest; valid when one was received
	last    atomic.Bool    // no frame comes any more
	regions atomic.Bool    // frames name parts of themselves: their size is meant
	closing bool           // its client has closed it, a video; the reader's

	replay *replayBuffer // the session's
	kept   replayRing    // what it has of this stream

	mu    sync.Mutex
	drops []dropRun // not yet written
	noted bool      // an entry for them is in the outbox

	onTold func(*channel)     // called when its end is told
	end    stream.CloseReason // why it has ended, once that is told; the writer's
	told   counts             // endings that were told; the writer's
	pace   pace               // the writer's
}

// dropRun is the frames that were dropped for one reason, as ranges of seq.
type dropRun struct {
	reason stream.Reason
	ranges []wire.Range
	frames uint64
}

// opened is called once, before the channel is fed.
func (c *channel) opened(st *stream.Stream) {
	c.window.Resize(st.Policy().Window)
	c.kept.size = min(max(2*st.Policy().Window, minReplay), maxReplay)
	c.stream.Store(st)
}

// markLast notes that no frame comes any more. It is called by the reader.
func (c *channel) markLast() {
	c.last.Store(true)
	if d := c.decoder.Load(); d != nil {
		d.End()
	}
	c.closeIfLast()
}

// closeIfLast closes the stream when the last frame has its ending.
func (c *channel) closeIfLast() {
	if c.last.Load() && c.window.Unanswered() == 0 {
		c.stream.Load().Close(stream.ByClient)
	}
}

// noteDrop notes a dropped frame, and reports whether the outbox needs an entry for it.
func (c *channel) noteDrop(seq uint64, why stream.Reason) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.drops, func(d dropRun) bool { return d.reason == why })
	if i < 0 {
		i = len(c.drops)
		c.drops = append(c.drops, dropRun{reason: why})
	}
	d := &c.drops[i]
	d.frames++
	d.ranges = wire.AddSeq(d.ranges, seq)
	first := !c.noted
	c.noted = true
	return first
}

// takeDrops returns what is noted, for the writer.
func (c *channel) takeDrops() []dropRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.drops
	c.drops, c.noted = nil, false
	return d
}
