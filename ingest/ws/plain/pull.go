package plain

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"millrace/ingest"
	"millrace/ingest/sources"
	"millrace/ingest/ws/conn"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// PullLimits bounds the videos pulled concurrently over all connections. PullLimits is safe for concurrent use.
type PullLimits struct {
	Max          int             // videos at once (limits.max_pulls)
	MaxPixels    int             // largest width times height of a video (limits.max_pixels); 0 = no limit
	AllowPrivate bool            // allow pulls from private addresses and from this machine (sources.allow_private)
	Hardware     *video.Hardware // hardware decoding where possible (sources.hwaccel); nil = software
	Sandbox      bool            // confines ffmpeg (sandbox)
	// most processor time of ffmpeg without a picture (limits.max_decode_time); 0 = no limit
	MaxTime time.Duration
	Log     *slog.Logger // receives ffmpeg's reports on failed videos

	running atomic.Int64
	tooSlow atomic.Uint64
}

// Running returns how many videos are pulled.
func (l *PullLimits) Running() int { return int(l.running.Load()) }

// TooSlow returns how many videos were ended because ffmpeg used MaxTime without a picture.
func (l *PullLimits) TooSlow() uint64 { return l.tooSlow.Load() }

// pullOrder is a request to pull a video.
type pullOrder struct {
	URL     string
	Model   string
	Version string
	Call    callID
	Count   uint64 // frames after which the video ends; 0 = at its own end
}

// videoInfo describes the video in a reply.
type videoInfo struct {
	Width, Height int    // of the video's pictures; 0 = not known
	Call          callID // pullOrder.Call
}

// encodePulled encodes a result of a pulled video, as encodeResult does.
type encodePulled func(e *conn.Encoder, r *stream.Result, from *videoInfo) (msg []byte, isBinary bool, err error)

// puller pulls the videos of one connection. Only the reader goroutine calls the methods.
type puller struct {
	conn   *conn.Conn
	client *ingest.Client
	limits *PullLimits
	policy stream.Policy       // mode "" means latest for a live video and every for another
	trace  stream.TraceContext // of the video's frames
	traced bool                // see sink
	result encodePulled

	current *videoPull
}

// running reports whether a video is pulled.
func (p *puller) running() bool { return p.current != nil && !p.current.freed.Load() }

// stop ends the video. The client receives the end.
func (p *puller) stop() error {
	if !p.running() {
		return stream.Errorf(stream.Conflict, "stop", "nothing is being pulled")
	}
	p.current.stopped.Store(true)
	p.current.cancel()
	return nil
}

// close ends the current video, if any, and waits for the video's goroutine.
func (p *puller) close() {
	if p.current != nil {
		p.current.cancel()
		<-p.current.gone
	}
}

// account is the client's account, or nil.
func (p *puller) account() *stream.Account { return p.client.Core() }

// start pulls a video. The client receives the end of the video, whatever the reason.
func (p *puller) start(o pullOrder) error {
	if p.running() {
		return stream.Errorf(stream.Conflict, "url", `a video is being pulled already: send {"stop":true} first`)
	}
	if p.current != nil {
		<-p.current.gone // the end is being sent
	}
	if err := sources.Check("url", o.URL); err != nil {
		return err
	}
	if err := p.account().MayDecode(stream.Now()); err != nil {
		return err
	}
	if p.limits.running.Add(1) > int64(p.limits.Max) {
		p.limits.running.Add(-1)
		return stream.Errorf(stream.Overloaded, "limits.max_pulls",
			"%d videos are being pulled already: try later, or raise the setting", p.limits.Max)
	}
	if err := p.account().Hold(stream.QuotaPulledVideos); err != nil {
		p.limits.running.Add(-1)
		return err
	}
	v := &videoPull{puller: p, order: o, gone: make(chan struct{})}
	v.sink = newSink(p.conn, o.Call, v.encode, v.streamDone)
	v.sink.traced = p.traced
	var ctx context.Context
	ctx, v.cancel = context.WithCancel(context.Background())
	p.current = v
	p.conn.Busy(true)
	if !p.conn.Run("pull", func() { v.run(ctx) }, p.conn.Fault) {
		v.finish()
		return ingest.ErrDraining
	}
	return nil
}

// videoPull is one pulled video with its own stream; seq counts the frames from 0.
type videoPull struct {
	puller *puller
	order  pullOrder
	sink   *sink
	source atomic.Pointer[videoInfo] // set before the first frame
	memory int64                     // bytes charged for ffmpeg
	times  frameTimes

	cancel  context.CancelFunc
	stopped atomic.Bool                        // stopped by the client
	freed   atomic.Bool                        // there is room for another video, or for frames
	gone    chan struct{}                      // closed at the end of the goroutine
	ended   atomic.Pointer[stream.CloseReason] // set when the stream ended by itself
}

func (v *videoPull) encode(e *conn.Encoder, r *stream.Result) ([]byte, bool, error) {
	return v.puller.result(e, r, v.source.Load())
}

// streamDone is called after the end of the stream, with the stream's lock held.
func (v *videoPull) streamDone(why stream.CloseReason) {
	v.ended.Store(&why)
	v.cancel()
}

// free makes room for the next video, or for frames. Only the first call has an effect.
func (v *videoPull) free() {
	if v.freed.Load() {
		return
	}
	v.cancel()
	v.puller.conn.Busy(false)
	v.puller.limits.running.Add(-1)
	v.puller.account().Release(stream.QuotaPulledVideos)
	v.freed.Store(true)
}

func (v *videoPull) finish() {
	v.free()
	close(v.gone)
}

// run is the goroutine of the video. run sends the client the end, whatever the reason.
func (v *videoPull) run(ctx context.Context) {
	defer v.finish()
	defer v.closeStream()
	err := v.pull(ctx)
	v.closeStream()
	v.free() // before the client is told, since the client may continue at once
	c := v.puller.conn
	switch {
	case c.Ended(): // the connection sends the reason
	case err != nil && !v.stopped.Load():
		c.Push(conn.Entry{Text: errorText(v.order.Call, err)})
	default:
		c.Push(conn.Entry{Text: doneText(v.order.Call, v.sink.frames(), v.sink.dropped.Load())})
	}
}

// closeStream waits until every frame has ended; frames in flight take their own time.
func (v *videoPull) closeStream() {
	if st := v.sink.stream; st != nil {
		st.Close(stream.SourceEnded)
		<-st.Finished()
	}
}

func (v *videoPull) pull(ctx context.Context) error {
	p, o := v.puller, &v.order
	model, _, err := p.client.Models().Model(o.Model, o.Version)
	if err != nil {
		return err
	}
	if model.Image == nil && !model.AcceptsAnyInput {
		return stream.Errorf(stream.Unsupported, "model", "model %s takes tensors, not pictures", o.Model)
	}
	if err := v.charge(0); err != nil { // the size is not known yet
		return err
	}
	defer func() { v.videoMemory().Refund(v.memory) }()
	r, live, err := v.open(ctx, model)
	if err != nil {
		return v.failed(err)
	}
	defer func() {
		if r != nil {
			_ = r.Close()
		}
	}()
	if err := v.chargeFor(r); err != nil {
		return err
	}
	policy := p.policy
	if policy.Mode == "" {
		policy.Mode = stream.Every
		if live {
			policy.Mode = stream.Latest
		}
	}
	st, err := p.client.Open(o.Model, o.Version, stream.Options{Policy: policy, Protocol: "ws", Trace: p.trace}, v.sink)
	if err != nil {
		return err
	}
	v.sink.opened(st)
	closes := live && st.Policy().Mode == stream.Latest && isCamera(o.URL)
	for err = v.feed(ctx, r, closes); err == errOverQuota; {
		_ = r.Close()
		if r, err = v.openAgain(ctx, model); err == nil {
			err = v.feed(ctx, r, closes)
		}
	}
	if err == io.EOF {
		// Closing the stream would drop waiting frames.
		v.sink.waitUntilWritten(ctx.Done())
		err = nil
	}
	if err != nil || ctx.Err() != nil || v.ended.Load() != nil { // ended is set a moment before ctx ends
		return v.failed(errors.Join(err, ctx.Err()))
	}
	return nil
}

// chargeFor charges the memory budget for an open video.
func (v *videoPull) chargeFor(r *video.Reader) error {
	info := r.Info()
	return v.charge(info.SourceWidth * info.SourceHeight)
}

// charge replaces the charge to the memory budget by the charge for an ffmpeg with pictures of so many pixels.
func (v *videoPull) charge(pixels int) error {
	n := video.Memory(pixels)
	if err := v.videoMemory().Charge(n - v.memory); err == buf.ErrShare {
		return err
	} else if err != nil {
		return stream.Errorf(stream.Overloaded, "memory.budget",
			"has no room for decoding a video, which needs %d MiB: try later, or raise the setting", n>>20)
	}
	v.memory = n
	return nil
}

// videoMemory returns the accounts charged for ffmpeg's memory.
func (v *videoPull) videoMemory() ingest.VideoMemory {
	p := v.puller
	return ingest.VideoMemory{Pool: p.client.Memory(), Share: p.conn.Share(), Account: p.account()}
}

// open opens the video. Frames are scaled to the model's input size; live sources, without a known end, are read at
// their own rate.
func (v *videoPull) open(ctx context.Context, m *stream.Model) (r *video.Reader, live bool, err error) {
	o := video.Options{
		URL: v.order.URL, Format: video.NV12, FPS: v.puller.policy.MaxFPS,
		Needs: []video.TargetSize{sources.NeedOf(m)}, MaxPixels: v.puller.limits.MaxPixels,
		Hardware: v.puller.limits.Hardware, Sandbox: v.puller.limits.Sandbox, Nice: video.ClientNice,
		MaxTime: v.puller.limits.MaxTime, Used: ingest.ChargeDecoding(v.puller.account()),
	}
	if !v.puller.limits.AllowPrivate {
		o.Allow = sources.Public
	}
	r, err = video.Open(ctx, o)
	if err != nil {
		return nil, false, err
	}
	info := r.Info()
	v.source.Store(&videoInfo{Width: info.Width, Height: info.Height, Call: v.order.Call})
	return r, info.Duration == 0, nil
}

// feed submits the video's frames until the end of the video (io.EOF). Over the client's decoding quota, feed waits,
// so that ffmpeg blocks on the pipe; with closes, feed instead drops a frame and returns errOverQuota.
func (v *videoPull) feed(ctx context.Context, r *video.Reader, closes bool) error {
	frames := sources.NewFrames(r, v.puller.client.Memory())
	for first := true; ; first = false {
		if v.sink.full() && !v.sink.waitForRoom(ctx.Done()) || !closes && !v.awaitQuota(ctx) {
			return ctx.Err()
		}
		f, err := frames.Next()
		if err != nil {
			return err
		}
		if v.order.Count > 0 && v.sink.frames() >= v.order.Count {
			f.Lease.Release()
			return io.EOF
		}
		f.CaptureUS = v.times.of(f.CaptureUS, stream.Now())
		f.Seq = v.sink.take()
		if closes && !first && v.owes() {
			v.sink.stream.MarkDiscontinuity()
			f.Lease.Release()
			v.sink.drop(f.Seq, stream.OverQuota)
			return errOverQuota
		}
		if f.Lease == nil {
			v.sink.stream.MarkDiscontinuity()
			v.sink.drop(f.Seq, stream.Memory)
			continue
		}
		if f.Late && v.sink.stream.Policy().Mode != stream.Every {
			v.sink.stream.MarkDiscontinuity()
			f.Lease.Release()
			v.sink.drop(f.Seq, stream.Superseded)
			continue
		}
		v.sink.submit(f)
		if v.ended.Load() != nil {
			return ctx.Err()
		}
	}
}

// failed returns the coded error for the end of a video.
func (v *videoPull) failed(err error) error {
	if video.KindOf(err) == video.TooSlow {
		v.puller.limits.tooSlow.Add(1)
	}
	if why := v.ended.Load(); why != nil {
		if err := ingest.ClosedError(*why, v.order.Model); err != nil {
			return err
		}
	}
	if said := video.OutputOf(err); said != "" { // bad input of a client is not a fault of the server
		v.puller.limits.Log.Debug("a pulled video failed", "error", err, "detail", said)
	}
	return stream.Errorf(stream.CodeOf(err), "url", "%s", video.Redact(err.Error()))
}
