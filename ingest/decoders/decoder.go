package decoders

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/backoff"
	"millrace/internal/codec"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

const (
	// maxLag is the maximum delay of decoding in `latest`. Above maxLag, the chunks before a key frame are discarded.
	maxLag = time.Second
	// maxWaiting is the maximum number of chunks waiting for ffmpeg, whatever their age.
	maxWaiting = 256
	// maxAhead is, in `latest`, the maximum number of chunks in ffmpeg and its pipe, where chunks cannot be discarded
	// any more. A key frame may exceed maxAhead: ffmpeg continues with a key frame even if earlier chunks had no
	// pictures.
	maxAhead = 4
	// maxWritten is the most chunks in ffmpeg in any case.
	maxWritten = 64
	// chunkTimeout is the maximum time of ffmpeg for a chunk, including the start of ffmpeg. While ffmpeg waits for a
	// processor, the time-out is extended, see video.Decoder.SetDeadline.
	chunkTimeout = 10 * time.Second
	// keyFrameInterval is the least time between two requests for a key frame.
	keyFrameInterval = time.Second
	// maxParameterSets is the maximum size in bytes of separately sent parameter sets.
	maxParameterSets = 64 << 10
	// The bounds of the wait before a failed ffmpeg is started again.
	minBackoff, maxBackoff = 200 * time.Millisecond, 10 * time.Second
)

// chunk is a chunk in the decoder.
type chunk struct {
	frame         stream.Frame // without payload
	at            stream.Instant
	data          []byte
	lease         *buf.Buf
	info          video.Chunk
	parameterSets []byte // put in front of data
	ended         bool   // the frame has its ending: the decoded frame will be discarded
	n             uint64 // number in the run
}

// Decoder decodes one video. One goroutine calls Feed, Configure, Flush and End. Any goroutine may call Close, even
// with the stream's lock held.
type Decoder struct {
	pool   *Pool
	codec  stream.Codec
	name   string
	st     *stream.Stream
	memory *buf.Pool
	client Client
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // one slot: queue, ended or closed has changed
	done   chan struct{} // closed when all goroutines have ended
	placed bool          // the decoder has a place; for run

	discarded atomic.Uint64 // chunks

	mu            sync.Mutex
	queue         []*chunk // fed and not yet written to ffmpeg
	writing       *chunk   // taken off the queue and not yet written
	pending       []*chunk // written, but not decoded yet
	skipping      bool     // chunks up to the next key frame are discarded
	regions       bool     // a frame had a region: from now on whole pictures are decoded at full size
	ended         bool     // no further chunk will be fed
	closed        bool
	parameterSets []byte         // separately sent parameter sets
	parameterInfo video.Chunk    // parsed from parameterSets
	requestedAt   stream.Instant // when a key frame was last requested
	retryAt       stream.Instant // ffmpeg is not started before this time
	backoff       backoff.Backoff
	ffmpeg        *video.Decoder // the process that pending was written to
}

// Codec returns the codec of the chunks.
func (d *Decoder) Codec() stream.Codec { return d.codec }

// Configure takes parameter sets sent separately from the chunks. For H.264 the sets are put in front of key frames;
// the other codecs need no parameter sets.
func (d *Decoder) Configure(sets []byte) error {
	if len(sets) > maxParameterSets {
		return stream.Errorf(stream.TooLarge, "payload", "parameter sets of %d bytes: want at most %d", len(sets),
			maxParameterSets)
	}
	if d.codec != stream.H264 {
		return nil
	}
	info, err := video.ParseChunk(d.name, sets)
	if err == nil && info.Width == 0 {
		err = fmt.Errorf("it has no sequence parameter set")
	}
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "payload", "is not a codec configuration of h264: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parameterSets, d.parameterInfo = append([]byte(nil), sets...), info
	return nil
}

// Feed takes one chunk, received at now, with its bytes in f.Payload, and takes over f.Lease. Feed does not block.
// The frame's ending goes to the stream, or to Client.Refused.
func (d *Decoder) Feed(f stream.Frame, now stream.Instant) {
	c := &chunk{at: now, data: f.Payload, lease: f.Lease}
	f.Payload, f.Lease = nil, nil
	c.frame = f
	info, err := video.ParseChunk(d.name, c.data)
	if name := codec.Container(c.data); name != "" {
		err = errors.New(codec.ContainerHint(name))
	}
	if err != nil {
		d.discard(c, "", stream.Errorf(stream.InvalidArgument, "frame", "is not a chunk of %s: %w", d.name, err))
		d.SkipToKeyFrame()
		return
	}
	c.info = info
	d.mu.Lock()
	if info.Key && info.Width == 0 {
		c.info.Width, c.info.Height = d.parameterInfo.Width, d.parameterInfo.Height
	}
	if d.closed || d.ended {
		d.mu.Unlock()
		d.discard(c, stream.Closed, nil)
		return
	}
	small := c.frame.Region != (stream.Region{}) && !d.regions && d.ffmpeg != nil
	d.regions = d.regions || c.frame.Region != (stream.Region{})
	late := d.takeLate(now)
	switch size := c.info.Width * c.info.Height; {
	case info.Key && size == 0 && d.ffmpeg == nil:
		err = stream.Errorf(stream.InvalidArgument, "frame", "is a key frame without parameter sets, and none were "+
			"sent before: send them in front of it, or as a message of kind 2")
	case d.pool.opts.MaxPixels > 0 && size > d.pool.opts.MaxPixels:
		err = stream.Errorf(stream.TooLarge, "frame", "has %d x %d pixels: at most %d are allowed (limits.max_pixels)",
			c.info.Width, c.info.Height, d.pool.opts.MaxPixels)
	case info.Key && d.pool.opts.Pictures().TooFewBytes(c.info.Width, c.info.Height, len(c.data)):
		err = stream.Errorf(stream.TooLarge, "frame", "is a key frame of %d x %d pixels in %d bytes: at most %d "+
			"pixels a byte are allowed (limits.max_pixels_per_byte)", c.info.Width, c.info.Height, len(c.data),
			d.pool.opts.MaxPerByte)
	case info.Key:
		c.parameterSets = d.parameterSets
		// The lost frames have ended already, but earlier frames may still be in flight: the discontinuity keeps the
		// stream from assembling earlier frames with this frame.
		c.frame.Discontinuity = f.Discontinuity || d.skipping
		d.skipping = false
	case f.Discontinuity:
		d.skipping = true
	}
	why := stream.Undecoded
	if err == nil && d.client.Account.MayDecode(now) != nil {
		d.skipping, why = true, stream.OverQuota // already fed chunks are decoded and charged
	}
	d.skipping = d.skipping || err != nil
	lost := d.skipping
	data, sets, lease := c.data, c.parameterSets, c.lease
	recorded := !lost && d.client.Clips != nil
	if recorded && lease != nil {
		lease.Retain() // the decoder releases the chunk soon
	}
	if !lost {
		d.queue = append(d.queue, c)
		d.signal()
	}
	d.mu.Unlock()
	if recorded {
		d.client.Clips.Chunk(&f, info, sets, data, now)
		lease.Release()
	}
	for _, l := range late {
		d.discard(l, stream.Undecoded, nil)
	}
	if lost {
		d.discard(c, why, err)
	}
	if lost && why != stream.OverQuota || small {
		d.requestKeyFrame()
	}
}

// need returns the size to which ffmpeg scales pictures: the size needed by the model, or the full size after a
// request for a region of a picture.
func (d *Decoder) need() video.TargetSize {
	d.mu.Lock()
	regions := d.regions
	d.mu.Unlock()
	if regions {
		return video.TargetSize{}
	}
	return sources.NeedOf(d.st.Model())
}

// takeLate removes late chunks from the queue and returns the chunks: the chunks before the newest key frame, or all
// chunks when the key frame is too late as well. mu is held.
func (d *Decoder) takeLate(now stream.Instant) (late []*chunk) {
	if len(d.queue) == 0 || len(d.queue) < maxWaiting && (d.st.Policy().Mode == stream.Every ||
		now.Sub(d.queue[0].at) < maxLag) {
		return nil
	}
	key := len(d.queue) - 1
	for key > 0 && !d.queue[key].info.Key {
		key--
	}
	if key == 0 || now.Sub(d.queue[key].at) >= maxLag {
		late, d.queue = d.queue, nil
		d.skipping = true
		return late
	}
	late, d.queue = d.queue[:key:key], d.queue[key:]
	d.queue[0].frame.Discontinuity = true
	return late
}

// Flush ends all undecoded frames as flushed. Their chunks are still decoded, because later chunks need them.
func (d *Decoder) Flush() {
	var all []*chunk
	d.mu.Lock()
	for _, list := range [][]*chunk{d.pending, {d.writing}, d.queue} {
		for _, c := range list {
			if c != nil && !c.ended {
				c.ended = true
				all = append(all, c)
			}
		}
	}
	d.mu.Unlock()
	for _, c := range all {
		d.endFrame(c, stream.Flushed, nil)
	}
}

// End means that no further chunk will be fed. Chunks already fed are decoded.
func (d *Decoder) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.signal()
}

// Finished is closed after the decoder was closed or has ended, and every frame not returned by Close has been passed
// to the stream.
func (d *Decoder) Finished() <-chan struct{} { return d.done }

// Close stops decoding and returns the undecoded frames. The caller has to end these frames: Close does not call
// Client.Refused. Close does not block.
func (d *Decoder) Close() (left []stream.Frame) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.pending {
		if !c.ended {
			left = append(left, c.frame)
		}
	}
	if c := d.writing; c != nil && !c.ended {
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

// discard ends a chunk that is not in any list.
func (d *Decoder) discard(c *chunk, why stream.Reason, err error) {
	d.discarded.Add(1)
	c.lease.Release()
	c.lease, c.data = nil, nil
	d.mu.Lock()
	ended := c.ended
	c.ended = true
	if d.writing == c {
		d.writing = nil
	}
	d.mu.Unlock()
	if !ended {
		d.endFrame(c, why, err)
	}
}

// Discarded returns how many chunks were discarded since the decoder was opened.
func (d *Decoder) Discarded() uint64 { return d.discarded.Load() }

// endFrame passes the ending of a chunk's frame to the stream, or to the client when
// the stream has closed.
func (d *Decoder) endFrame(c *chunk, why stream.Reason, err error) {
	if e := d.st.SubmitEnded(c.frame, c.at, why, err); e != nil {
		d.client.Refused(&c.frame, e)
	}
}

// SkipToKeyFrame discards the chunks up to the next key frame, and requests a key frame. Call SkipToKeyFrame also
// when a chunk was lost before Feed: later chunks cannot be decoded without the lost chunk.
func (d *Decoder) SkipToKeyFrame() {
	d.skip()
	d.requestKeyFrame()
}

// skip discards the chunks fed from now on up to the next key frame.
func (d *Decoder) skip() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.skipping = true
}

// requestKeyFrame asks the client for a key frame, at most once in a short interval.
func (d *Decoder) requestKeyFrame() {
	now := stream.Now()
	d.mu.Lock()
	due := d.requestedAt == 0 || now.Sub(d.requestedAt) >= keyFrameInterval
	if due {
		d.requestedAt = now
	}
	d.mu.Unlock()
	if due {
		d.client.KeyFrame()
	}
}
