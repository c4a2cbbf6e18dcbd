package decoders

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

const (
	// mostLate is how far decoding may lag behind in `latest` before the rest up to a key frame is given up.
	mostLate = time.Second
	// mostWaiting bounds the chunks that wait for ffmpeg, whatever their age.
	mostWaiting = 256
	// mostAhead bounds, in `latest`, the chunks that lie in ffmpeg and its pipe, where they cannot be given up any more. A
	// key frame may go beyond: with it ffmpeg begins anew, also when no pictures came of those before.
	mostAhead = 4
	// mostWritten bounds them in any case.
	mostWritten = 64
	// patience is how long ffmpeg may take over a chunk, its own start included.
	patience = 10 * time.Second
	// askEvery is the least time between two requests for a key frame.
	askEvery = time.Second
	// mostConfig bounds the parameter sets that are sent apart.
	mostConfig = 64 << 10
	// The waits before an ffmpeg that failed is started anew.
	firstWait, lastWait = 200 * time.Millisecond, 10 * time.Second
)

// chunk is one chunk on its way through ffmpeg.
type chunk struct {
	frame stream.Frame // without its payload
	at    stream.Instant
	data  []byte
	lease *buf.Buf
	says  video.Chunk
	sets  []byte // parameter sets that go in front of it
	ended bool   // its frame has had its ending: what comes of it is not wanted
	n     uint64 // its number in its run
}

// Decoder decodes one video. Feed, Configure, Flush and End are for one
// goroutine; Close may be called by any, also with the stream's lock held.
type Decoder struct {
	pool   *Pool
	codec  stream.Codec
	name   string
	st     *stream.Stream
	memory *buf.Pool
	client Client
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // one slot: the queue, ended or closed changed
	gone   chan struct{} // nothing runs any more

	mu       sync.Mutex
	queue    []*chunk // fed and not yet written to ffmpeg
	hand     *chunk   // taken off the queue and not yet written
	pending  []*chunk // written, and no frame has come of them yet
	skipping bool     // up to the next key frame
	ended    bool     // no chunk comes any more
	closed   bool
	config   []byte // parameter sets that were sent apart
	sized    video.Chunk
	asked    stream.Instant
	notUntil stream.Instant // ffmpeg is not started before that
	backoff  backoff.Backoff
	on       *video.Decoder // what pending was written to
}

// Codec returns what the chunks are coded with.
func (d *Decoder) Codec() stream.Codec { return d.codec }

// Configure takes parameter sets that the encoder sends apart from its chunks.
// For H.264 they are put in front of key frames; the others need none.
func (d *Decoder) Configure(sets []byte) error {
	if len(sets) > mostConfig {
		return stream.Errorf(stream.TooLarge, "payload", "parameter sets of %d bytes: want at most %d", len(sets), mostConfig)
	}
	if d.codec != stream.H264 {
		return nil
	}
	says, err := video.ParseChunk(d.name, sets)
	if err == nil && says.Width == 0 {
		err = fmt.Errorf("it has no sequence parameter set")
	}
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "payload", "is no codec configuration of h264: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config, d.sized = append([]byte(nil), sets...), says
	return nil
}

// Feed takes one chunk, received at now, whose bytes are f.Payload, and takes
// f.Lease over. It does not block. The frame gets its ending through the stream,
// or Client.Refused.
func (d *Decoder) Feed(f stream.Frame, now stream.Instant) {
	c := &chunk{at: now, data: f.Payload, lease: f.Lease}
	f.Payload, f.Lease = nil, nil
	c.frame = f
	says, err := video.ParseChunk(d.name, c.data)
	if err != nil {
		d.lose(c, "", stream.Errorf(stream.InvalidArgument, "frame", "is no chunk of %s: %w", d.name, err))
		d.skip()
		return
	}
	c.says = says
	d.mu.Lock()
	if says.Key && says.Width == 0 {
		c.says.Width, c.says.Height = d.sized.Width, d.sized.Height
	}
	if d.closed || d.ended {
		d.mu.Unlock()
		d.lose(c, stream.Closed, nil)
		return
	}
	late := d.late(now)
	switch size := c.says.Width * c.says.Height; {
	case says.Key && size == 0 && d.on == nil:
		err = stream.Errorf(stream.InvalidArgument, "frame", "is a key frame without parameter sets, and none came before: send them in front of it, or as a message of kind 2")
	case d.pool.opts.MaxPixels > 0 && size > d.pool.opts.MaxPixels:
		err = stream.Errorf(stream.TooLarge, "frame", "has %d x %d pixels: at most %d are taken (limits.max_pixels)", c.says.Width, c.says.Height, d.pool.opts.MaxPixels)
	case says.Key:
		c.sets = d.config
		// What was lost ended at once; the frames before that may be on their way still, and are not to be joined to this.
		c.frame.Discontinuity = f.Discontinuity || d.skipping
		d.skipping = false
	case f.Discontinuity:
		d.skipping = true
	}
	d.skipping = d.skipping || err != nil
	lost := d.skipping
	if !lost {
		d.queue = append(d.queue, c)
		d.signal()
	}
	d.mu.Unlock()
	for _, l := range late {
		d.lose(l, stream.Undecoded, nil)
	}
	if lost {
		d.lose(c, stream.Undecoded, err)
		d.ask()
	}
}

// late returns the chunks that wait when ffmpeg is too far behind with them, and
// takes them off the queue: those before the newest key frame, or all of them when
// there is none in time. mu is held.
func (d *Decoder) late(now stream.Instant) (late []*chunk) {
	if len(d.queue) == 0 || len(d.queue) < mostWaiting && (d.st.Policy().Mode == stream.Every || now.Sub(d.queue[0].at) < mostLate) {
		return nil
	}
	key := len(d.queue) - 1
	for key > 0 && !d.queue[key].says.Key {
		key--
	}
	if key == 0 || now.Sub(d.queue[key].at) >= mostLate {
		late, d.queue = d.queue, nil
		d.skipping = true
		return late
	}
	late, d.queue = d.queue[:key:key], d.queue[key:]
	d.queue[0].frame.Discontinuity = true
	return late
}

// Flush ends the frames that are not decoded yet as flushed. They are decoded
// all the same, for what follows needs them.
func (d *Decoder) Flush() {
	var all []*chunk
	d.mu.Lock()
	for _, list := range [][]*chunk{d.pending, {d.hand}, d.queue} {
		for _, c := range list {
			if c != nil && !c.ended {
				c.ended = true
				all = append(all, c)
			}
		}
	}
	d.mu.Unlock()
	for _, c := range all {
		d.tell(c, stream.Flushed, nil)
	}
}

// End says that no chunk comes any more. What was fed is decoded.
func (d *Decoder) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.signal()
}

// Gone is closed when the decoder was closed or has ended, and every frame that
// Close did not return was handed to the stream.
func (d *Decoder) Gone() <-chan struct{} { return d.gone }

// Close stops decoding and returns the frames that are not decoded yet, whose
// ending is the caller's: Client.Refused is not called for them. It does not
// block.
func (d *Decoder) Close() (left []stream.Frame) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.pending {
		if !c.ended {
			left = append(left, c.frame)
		}
	}
	if c := d.hand; c != nil && !c.ended {
		c.ended = true
		left = append(left, c.frame)
	}
	for _, c := range d.queue {
		c.lease.Release()
		if !c.ended {
			left = append(left, c.frame)
		}
	}
	d.queue, d.pending = nil, nil
	d.cancel()
	d.signal()
	return left
}

func (d *Decoder) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// lose ends a chunk that is in no list any more.
func (d *Decoder) lose(c *chunk, why stream.Reason, err error) {
	c.lease.Release()
	c.lease, c.data = nil, nil
	d.mu.Lock()
	ended := c.ended
	c.ended = true
	if d.hand == c {
		d.hand = nil
	}
	d.mu.Unlock()
	if !ended {
		d.tell(c, why, err)
	}
}

func (d *Decoder) tell(c *chunk, why stream.Reason, err error) {
	if e := d.st.SubmitEnded(c.frame, c.at, why, err); e != nil {
		d.client.Refused(&c.frame, e)
	}
}

// Lost tells that a chunk was lost before it came here: those after it cannot be
// decoded, up to the next key frame.
func (d *Decoder) Lost() { d.skip() }

// skip has the chunks up to the next key frame given up, and asks for one.
func (d *Decoder) skip() {
	d.mu.Lock()
	d.skipping = true
	d.mu.Unlock()
	d.ask()
}

func (d *Decoder) ask() {
	now := stream.Now()
	d.mu.Lock()
	due := d.asked == 0 || now.Sub(d.asked) >= askEvery
	if due {
		d.asked = now
	}
	d.mu.Unlock()
	if due {
		d.client.KeyFrame()
	}
}
