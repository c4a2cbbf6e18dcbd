package decoders

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"millrace/internal/codec"
	"millrace/internal/video"
	"millrace/stream"
)

// run is the decoder's own goroutine: it writes chunks to ffmpeg, and starts one
// where the video begins or changes its size.
func (d *Decoder) run() {
	defer d.pool.group.Done()
	defer close(d.gone)
	defer d.pool.running.Add(-1) // who sees it gone finds its place free
	defer d.cancel()
	defer d.recovered()
	var r *running
	for {
		c, ok := d.take()
		if r.over() {
			r = nil
		}
		if !ok {
			r.finish()
			return
		}
		if c.says.Key && c.says.Width > 0 && (r == nil || c.says.Width != r.width || c.says.Height != r.height) {
			r.finish()
			r = d.start(c)
		}
		if r == nil {
			d.lose(c, stream.Undecoded, nil)
			d.skip()
			continue
		}
		r.write(c)
	}
}

// take waits for the next chunk; false when none comes any more.
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
			d.hand = c
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

// roomFor says whether a chunk may be written. mu is held.
func (d *Decoder) roomFor(c *chunk) bool {
	n := len(d.pending)
	return n < mostAhead || n < mostWritten && (c.says.Key || d.st.Policy().Mode == stream.Every)
}

// running is one ffmpeg.
type running struct {
	d             *Decoder
	dec           *video.Decoder
	width, height int // as the key frame says it
	next          uint64
	since         stream.Instant
	finishing     bool          // nothing more is written; under d.mu
	done          chan struct{} // its reader has ended
}

// start starts ffmpeg for a key frame; nil when it is too soon for that after a
// failure, or it fails.
func (d *Decoder) start(c *chunk) *running {
	d.mu.Lock()
	soon := d.notUntil > stream.Now()
	d.mu.Unlock()
	if soon {
		return nil
	}
	dec, err := video.NewDecoder(d.ctx, video.DecoderOptions{
		Codec: d.name, Width: c.says.Width, Height: c.says.Height, MaxPixels: d.pool.opts.MaxPixels,
		Log: func(line string) { d.pool.opts.Log.Debug("ffmpeg", "codec", d.name, "says", line) },
	})
	if err != nil {
		d.failed(err)
		return nil
	}
	r := &running{d: d, dec: dec, width: c.says.Width, height: c.says.Height, since: stream.Now(), done: make(chan struct{})}
	d.mu.Lock()
	d.on = dec
	d.mu.Unlock()
	d.pool.group.Add(1)
	go r.read()
	return r
}

// over says whether its ffmpeg has ended by itself.
func (r *running) over() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// finish has what was written decoded, and waits for the end.
func (r *running) finish() {
	if r != nil {
		r.d.mu.Lock()
		r.finishing = true
		r.dec.SetDeadline(time.Now().Add(patience)) // its end is waited for too
		r.d.mu.Unlock()
		r.dec.Finish()
		<-r.done
	}
}

// write hands a chunk to ffmpeg. When that has failed, its reader ends the chunk.
func (r *running) write(c *chunk) {
	d := r.d
	c.n = r.next
	r.next++
	d.mu.Lock()
	if d.closed || d.on != r.dec { // Close or the reader's end came first: it has not seen this one
		gone := d.closed
		d.mu.Unlock()
		why := stream.Undecoded
		if gone {
			why = stream.Closed
		}
		d.lose(c, why, nil)
		return
	}
	if len(d.pending) == 0 { // else one is awaited already, and later ones give it no more time
		r.dec.SetDeadline(time.Now().Add(patience))
	}
	d.pending, d.hand = append(d.pending, c), nil
	data, lease, sets := c.data, c.lease, c.sets
	c.data, c.lease, c.sets = nil, nil, nil
	d.mu.Unlock()
	_ = r.dec.Write(sets, data)
	lease.Release()
}

// read is the goroutine that takes the frames.
func (r *running) read() {
	d := r.d
	defer d.pool.group.Done()
	defer close(r.done)
	defer d.recovered()
	err := r.dec.Start()
	for err == nil {
		err = r.frame()
	}
	_ = r.dec.Close()
	d.mu.Lock()
	left := d.pending
	d.pending, d.on = nil, nil
	closed := d.closed
	if stream.Now().Sub(r.since) >= lastWait {
		d.backoff.Reset() // it has worked for a while
	}
	d.signal()
	d.mu.Unlock()
	if closed {
		return
	}
	var why error
	if video.KindOf(err) == video.Unsupported {
		why = stream.Errorf(stream.InvalidArgument, "frame", "the video cannot be decoded: %w", err)
	}
	for _, c := range left {
		d.lose(c, stream.Undecoded, why)
	}
	if err != io.EOF {
		d.failed(err)
	} else if len(left) > 0 {
		d.ask()
	}
}

// frame takes one frame from ffmpeg and hands it to the stream.
func (r *running) frame() error {
	n, err := r.dec.Next()
	if err != nil {
		return err
	}
	d := r.d
	c, lost := r.match(n)
	for _, l := range lost {
		d.lose(l, stream.Undecoded, nil)
	}
	if len(lost) > 0 {
		d.ask() // it goes on, with pictures that may be damaged
	}
	if c == nil {
		return r.dec.Skip()
	}
	size := codec.NV12.Size(r.dec.Width, r.dec.Height)
	lease, err := d.memory.Lease(size)
	if err != nil {
		d.lose(c, stream.Memory, nil)
		return r.dec.Skip()
	}
	lease.Resize(size)
	if err := r.dec.Frame(lease.Bytes()); err != nil {
		lease.Release()
		d.lose(c, stream.Undecoded, nil)
		return err
	}
	f := c.frame
	f.Codec, f.Width, f.Height = stream.NV12, r.dec.Width, r.dec.Height
	f.Payload, f.Lease = lease.Bytes(), lease
	if err := d.st.SubmitAt(f, c.at); err != nil {
		d.client.Refused(&c.frame, err)
	}
	return nil
}

// match returns the chunk of a frame, and those before it, of which no frame came.
func (r *running) match(n uint64) (c *chunk, lost []*chunk) {
	d := r.d
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
	if len(d.pending) > 0 || r.finishing {
		until = time.Now().Add(patience)
	}
	r.dec.SetDeadline(until)
	d.signal()
	return c, lost
}

// failed notes that ffmpeg failed: it is started anew with a key frame, not at
// once.
func (d *Decoder) failed(err error) {
	if d.ctx.Err() != nil {
		return // it was closed meanwhile
	}
	level := slog.LevelWarn
	if video.KindOf(err) == video.Unsupported {
		level = slog.LevelDebug // what a client sends is no fault of the server
	}
	d.pool.opts.Log.Log(d.ctx, level, "a video's decoder failed", "codec", d.name, "model", d.st.Model().Name, "error", err)
	d.mu.Lock()
	d.notUntil = stream.Now().Add(d.backoff.Next(rand.Float64()))
	d.mu.Unlock()
	d.skip()
}

// recovered keeps a panic from ending the server. What is left of the video ends
// with the stream.
func (d *Decoder) recovered() {
	if x := recover(); x != nil {
		d.pool.opts.Log.Error("a panic ended the decoding of a video", "panic", x, "stack", string(debug.Stack()))
		d.cancel()
	}
}
