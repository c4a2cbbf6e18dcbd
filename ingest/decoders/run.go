package decoders

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"millrace/ingest"
	"millrace/internal/codec"
	"millrace/internal/video"
	"millrace/stream"
)

// run is the decoder's goroutine. run writes chunks to ffmpeg. run starts an ffmpeg at a key frame: at the beginning
// of the video, and when the size of the video or the needed size has changed.
func (d *Decoder) run() {
	defer close(d.done)
	defer func() {
		if d.placed { // the place is free when Finished is closed
			d.pool.places.release(d.client.Account)
		}
	}()
	defer d.cancel() // also after a panic: the remaining frames end with the stream
	var r *process
	for {
		c, ok := d.take()
		if r.ended() {
			r = nil
		}
		if !ok {
			r.finish()
			return
		}
		why, refused := stream.Undecoded, error(nil)
		if need := d.need(); c.info.Key && c.info.Width > 0 && !r.decodes(c, need) {
			r.finish()
			if r, refused = nil, d.takePlace(); refused == nil {
				r, why = d.start(c, need)
			}
		}
		if r == nil {
			d.skip()
			d.discard(c, why, refused)
			d.requestKeyFrame()
			continue
		}
		r.write(c)
	}
}

// takePlace takes a place unless d has a place. The error is Overloaded.
func (d *Decoder) takePlace() error {
	if d.placed {
		return nil
	}
	err := d.pool.places.take(d.client.Account)
	d.placed = err == nil
	return err
}

// take waits for the next chunk, and returns false when no more chunks come.
func (d *Decoder) take() (*chunk, bool) {
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return nil, false
		}
		if len(d.queue) > 0 && d.roomFor(d.queue[0]) {
			c := d.queue[0]
			d.queue[0] = nil
			d.queue = d.queue[1:]
			d.writing = c
			d.mu.Unlock()
			return c, true
		}
		over := d.ended && len(d.queue) == 0
		d.mu.Unlock()
		if over {
			return nil, false
		}
		<-d.wake
	}
}

// roomFor reports whether a chunk may be written now. mu is held.
func (d *Decoder) roomFor(c *chunk) bool {
	n := len(d.pending)
	return n < maxAhead || n < maxWritten && (c.info.Key || d.st.Policy().Mode == stream.Every)
}

// process is an ffmpeg process.
type process struct {
	d             *Decoder
	dec           *video.Decoder
	width, height int // of the key frame
	need          video.TargetSize
	memory        int64 // charged for the process
	next          uint64
	since         stream.Instant
	finishing     bool          // no more writes to the process; under d.mu
	done          chan struct{} // the reader has ended
}

// start starts ffmpeg for a key frame. If starting fails, or a recent failure forbids a new start, start returns nil
// and the reason for the ending of the key frame.
func (d *Decoder) start(c *chunk, need video.TargetSize) (*process, stream.Reason) {
	d.mu.Lock()
	tooSoon := d.retryAt > stream.Now()
	d.mu.Unlock()
	if tooSoon {
		return nil, stream.Undecoded
	}
	memory := video.Memory(c.info.Width * c.info.Height)
	if err := d.videoMemory().Charge(memory); err != nil {
		return nil, stream.Memory
	}
	dec, err := video.NewDecoder(d.ctx, video.DecoderOptions{
		Codec: d.name, Width: c.info.Width, Height: c.info.Height, Need: need, MaxPixels: d.pool.opts.MaxPixels,
		Hardware: d.pool.opts.Hardware, Sandbox: d.pool.opts.Sandbox, Nice: video.ClientNice,
		MaxTime: d.pool.opts.MaxDecodeTime, Used: ingest.ChargeDecoding(d.client.Account),
		Log: func(line string) { d.pool.opts.Log.Debug("ffmpeg", "codec", d.name, "says", line) },
	})
	if err != nil {
		d.videoMemory().Refund(memory)
		d.failed(err)
		return nil, stream.Undecoded
	}
	r := &process{d: d, dec: dec, memory: memory, width: c.info.Width, height: c.info.Height, need: need,
		since: stream.Now(), done: make(chan struct{})}
	d.mu.Lock()
	d.ffmpeg = dec
	d.mu.Unlock()
	broken := func() { d.cancel(); _ = dec.Close() }
	if !d.pool.group.Go("decoder_reader", r.read, broken) { // the pool is closed
		broken()
		d.videoMemory().Refund(memory)
		return nil, stream.Undecoded
	}
	return r, ""
}

// videoMemory returns the accounts charged for the memory of ffmpeg.
func (d *Decoder) videoMemory() ingest.VideoMemory {
	return ingest.VideoMemory{Pool: d.memory, Share: d.client.Share, Account: d.client.Account}
}

// ended reports whether ffmpeg has ended by itself. Once the reader accepts no more chunks, ended waits for the end of
// the reader: the next chunk may be the key frame requested by the reader.
func (p *process) ended() bool {
	if p == nil {
		return false
	}
	p.d.mu.Lock()
	running := p.d.ffmpeg == p.dec
	p.d.mu.Unlock()
	if running {
		return false
	}
	<-p.done
	return true
}

// decodes reports whether frames from the key frame c on come from p in the needed size.
func (p *process) decodes(c *chunk, need video.TargetSize) bool {
	return p != nil && p.width == c.info.Width && p.height == c.info.Height && p.need == need
}

// finish lets ffmpeg decode all written chunks, and waits for the end of ffmpeg.
func (p *process) finish() {
	if p != nil {
		p.d.mu.Lock()
		p.finishing = true
		p.dec.SetDeadline(time.Now().Add(chunkTimeout)) // the time-out also applies to the end of ffmpeg
		p.d.mu.Unlock()
		p.dec.Finish()
		<-p.done
	}
}

// write writes a chunk to ffmpeg. If writing fails, the reader ends the chunk.
func (p *process) write(c *chunk) {
	d := p.d
	c.n = p.next
	p.next++
	d.mu.Lock()
	if d.closed || d.ffmpeg != p.dec { // Close, or the end of the reader, came first and has not ended this chunk
		closed := d.closed
		d.mu.Unlock()
		why := stream.Undecoded
		if closed {
			why = stream.Closed
		}
		d.discard(c, why, nil)
		return
	}
	if len(d.pending) == 0 { // otherwise the time-out of an earlier chunk is running already
		p.dec.SetDeadline(time.Now().Add(chunkTimeout))
	}
	d.pending, d.writing = append(d.pending, c), nil
	data, lease, sets := c.data, c.lease, c.parameterSets
	c.data, c.lease, c.parameterSets = nil, nil, nil
	d.mu.Unlock()
	_ = p.dec.Write(sets, data)
	lease.Release()
}

// read is the goroutine that reads decoded frames.
func (p *process) read() {
	d := p.d
	defer close(p.done)
	defer d.videoMemory().Refund(p.memory)
	err := p.dec.Start()
	for err == nil {
		err = p.frame()
	}
	_ = p.dec.Close()
	d.mu.Lock()
	left := d.pending
	d.pending, d.ffmpeg = nil, nil
	// Before the endings: a client may send a key frame as soon as the client knows of an ending.
	d.skipping = d.skipping || err != io.EOF
	closed := d.closed
	if stream.Now().Sub(p.since) >= maxBackoff {
		d.backoff.Reset() // ffmpeg has worked for a while
	}
	d.signal()
	d.mu.Unlock()
	if closed {
		return
	}
	var why error
	device := p.dec.HardwareFailed() // the next ffmpeg decodes in software
	switch kind := video.KindOf(err); {
	case device:
	case kind == video.Unsupported:
		why = stream.Errorf(stream.InvalidArgument, "frame", "the video cannot be decoded: %w", err)
	case kind == video.TooLarge:
		why = stream.Errorf(stream.TooLarge, "frame", "the video cannot be decoded: %w", err)
	case kind == video.TooSlow:
		d.pool.tooSlow.Add(1)
		why = stream.Errorf(stream.Timeout, "frame", "the video cannot be decoded: %w", err)
	}
	for _, c := range left {
		d.discard(c, stream.Undecoded, why)
	}
	if !device && err != io.EOF {
		d.failed(err)
	}
	if err != io.EOF || len(left) > 0 {
		d.requestKeyFrame()
	}
}

// frame reads one frame from ffmpeg and submits the frame to the stream.
func (p *process) frame() error {
	n, err := p.dec.Next()
	if err != nil {
		return err
	}
	d := p.d
	c, lost := p.match(n)
	for _, l := range lost {
		d.discard(l, stream.Undecoded, nil)
	}
	if len(lost) > 0 {
		d.requestKeyFrame() // decoding continues, but pictures may be damaged
	}
	if c == nil {
		return p.dec.Skip()
	}
	size := codec.NV12.Size(p.dec.Width, p.dec.Height)
	lease, err := d.memory.Lease(size)
	if err != nil {
		d.discard(c, stream.Memory, nil)
		return p.dec.Skip()
	}
	lease.Resize(size)
	if err := p.dec.Frame(lease.Bytes()); err != nil {
		lease.Release()
		d.discard(c, stream.Undecoded, nil)
		return err
	}
	f := c.frame
	f.Codec, f.Width, f.Height = stream.NV12, p.dec.Width, p.dec.Height
	f.SourceWidth, f.SourceHeight = p.dec.SourceWidth, p.dec.SourceHeight
	f.Payload, f.Lease = lease.Bytes(), lease
	d.client.Clips.Frame(&f)
	if err := d.st.SubmitAt(f, c.at); err != nil {
		d.client.Refused(&c.frame, err)
	}
	return nil
}

// match returns the chunk of a frame, and the earlier chunks that were not decoded.
func (p *process) match(n uint64) (c *chunk, lost []*chunk) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	i := 0
	for i < len(d.pending) && d.pending[i].n < n {
		i++
	}
	lost = append(lost, d.pending[:i]...)
	if i < len(d.pending) && d.pending[i].n == n {
		if c = d.pending[i]; c.ended { // flushed
			c = nil
		}
		i++
	}
	d.pending = slices.Delete(d.pending, 0, i)
	until := time.Time{}
	if len(d.pending) > 0 || p.finishing {
		until = time.Now().Add(chunkTimeout)
	}
	p.dec.SetDeadline(until)
	d.signal()
	return c, lost
}

// failed records a failure of ffmpeg. After a wait, a key frame starts ffmpeg again.
func (d *Decoder) failed(err error) {
	if d.ctx.Err() != nil {
		return // closed in between
	}
	level := slog.LevelWarn
	switch video.KindOf(err) {
	case video.Unsupported, video.TooLarge, video.TooSlow:
		level = slog.LevelDebug // bad input of a client is not a fault of the server
	}
	d.pool.opts.Log.Log(d.ctx, level, "a video's decoder failed", "codec", d.name, "model", d.st.Model().Name, "error",
		err, "detail", video.OutputOf(err))
	d.mu.Lock()
	d.retryAt = stream.Now().Add(d.backoff.Next(rand.Float64()))
	d.mu.Unlock()
}
