package v1

import (
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/decoders"
	"millrace/stream"
)

// channel is one stream of a session, and the stream's sink. The connection's reader
// feeds it. Its endings are sent through the session's outlet; the newest written ones
// are kept for a client that loses them.
//
// Fields without an owner of their own are set before the channel is fed, or safe for concurrent use.
type channel struct {
	*outlet
	asked
	stream  atomic.Pointer[stream.Stream]    // set before the channel is fed
	decoder atomic.Pointer[decoders.Decoder] // of inter-coded video, or nil

	window    *ingest.Window // frames received, and those whose ending was written or lost with a connection
	form      outputs
	drops     pendingDrops
	replay    *replayBuffer  // of the session
	kept      replayRing     // its endings of this stream; for the replayBuffer
	onEndSent func(*channel) // called by the writer when the stream's end is sent

	lastSeq atomic.Uint64 // of the newest frame; valid when one was received
	last    atomic.Bool   // no further frame is accepted
	regions atomic.Bool   // frames have a region, so that their size matters

	reader channelReader // for the reader goroutine only
	writer channelWriter // for the writer goroutine only
}

// asked is what the client's open message says of a stream.
type asked struct {
	sid           uint32
	model         string
	codec         stream.Codec
	width, height int  // of raw frames without their own
	traced        bool // endings say which trace their frame belongs to
}

// channelReader is the state of a channel that only the reader goroutine uses.
type channelReader struct {
	params    stream.Params // of frames that bring none, once they were updated
	closing   bool          // its client has closed it, a video
	discarded uint64        // chunks that its decoder had discarded after the newest one
}

// channelWriter is what the writer goroutine knows of a channel. It goes from one connection's writer to the next one's.
type channelWriter struct {
	end  stream.CloseReason // why the stream has ended, once that is sent
	sent counts             // endings that were sent
	pace pace
}

// opened is called once, before the channel is fed.
func (c *channel) opened(st *stream.Stream) {
	c.window.Resize(st.Policy().Window)
	c.kept.size = min(max(2*st.Policy().Window, minReplay), maxReplay)
	c.stream.Store(st)
}

// markLast records that no further frame is accepted. The reader calls it.
func (c *channel) markLast() {
	c.last.Store(true)
	if d := c.decoder.Load(); d != nil {
		d.End()
	}
	c.closeIfLast()
}

// closeIfLast closes the stream when its last frame has ended.
func (c *channel) closeIfLast() {
	if c.last.Load() && c.window.Unanswered() == 0 {
		c.stream.Load().Close(stream.ByClient)
	}
}
