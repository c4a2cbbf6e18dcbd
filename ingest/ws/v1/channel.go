package v1

import (
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/ingest/decoders"
	"millrace/stream"
)

// channel is one stream of a session, and the stream's sink. The connection's reader feeds the channel. The channel's
// endings are sent through the session's outlet; the newest written endings are kept for a client that lost them.
//
// Fields without a named owner are set before the first frame, or safe for concurrent use.
type channel struct {
	*outlet
	openOptions
	stream  atomic.Pointer[stream.Stream]    // set before the channel is fed
	decoder atomic.Pointer[decoders.Decoder] // of inter-coded video, or nil

	clips *clips.ClientStream // nil = none

	window    *ingest.Window // frames received, and frames with an ending written or lost with a connection
	form      outputs
	drops     pendingDrops
	replay    *replayBuffer  // of the session
	kept      replayRing     // kept endings of this stream; for the replayBuffer
	onEndSent func(*channel) // called by the writer when the stream's end is sent

	lastSeq atomic.Uint64 // seq of the newest frame; valid after the first frame
	last    atomic.Bool   // no further frame is accepted
	regions atomic.Bool   // frames have a region, so that their size matters

	reader channelReader // for the reader goroutine only
	writer channelWriter // for the writer goroutine only
}

// openOptions is the client's request in the open message of a stream.
type openOptions struct {
	sid           uint32
	model         string
	codec         stream.Codec
	width, height int  // of raw frames without their own
	traced        bool // endings contain the frame's trace
}

// channelReader is the part of a channel that only the reader goroutine uses.
type channelReader struct {
	params    stream.Params // for frames without parameters, after an update
	closing   bool          // video whose client has closed the stream
	discarded uint64        // chunks discarded by the decoder, as of the newest chunk
}

// channelWriter is the part of a channel that only the writer goroutine uses. The writer of the next connection takes
// over the channelWriter.
type channelWriter struct {
	end     stream.CloseReason // why the stream ended; set once the end is sent
	sent    endingCounts       // endings sent
	advisor rateAdvisor
}

// opened is called once, before the channel is fed.
func (c *channel) opened(st *stream.Stream) {
	c.window.Resize(st.Policy().Window)
	c.kept.size = min(max(2*st.Policy().Window, minReplay), maxReplay)
	c.stream.Store(st)
}

// markLast records that no frame may follow. The reader calls markLast.
func (c *channel) markLast() {
	c.last.Store(true)
	if d := c.decoder.Load(); d != nil {
		d.End()
	}
	c.closeIfLast()
}

// closeIfLast closes the stream after the end of the last frame.
func (c *channel) closeIfLast() {
	if c.last.Load() && c.window.Unanswered() == 0 {
		c.stream.Load().Close(stream.ByClient)
	}
}
