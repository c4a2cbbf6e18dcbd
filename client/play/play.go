package play

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"millrace/client"
	"millrace/internal/openapi"
	"millrace/internal/video"
	"millrace/stream"
)

// Options are the options of Run. Client, Model and Source are required.
type Options struct {
	Client         *client.Client
	Model, Version string
	Source         string        // a file, a device or an address, see internal/video; a picture is one frame
	FPS            float64       // most frames per second; 0 = all
	Fast           bool          // send files without waiting for the frames' times
	Loop           bool          // start files again at their end
	Width, Height  int           // of the frames as sent; 0 = as the model needs
	Limit          time.Duration // how much of the video to send; 0 = all
	Policy         stream.Policy // zero fields are the model's

	// Next, if set, returns encoded frames, and Source is only a name. Each frame is sent unchanged at its time, or
	// with Fast at once, until Next returns io.EOF. A frame's memory may be reused at the next call. Codec is the
	// codec of these frames, "" = recognised by content; rgb24 and nv12 need Width and Height. No overlay is drawn.
	Next  func() (frame []byte, at time.Duration, err error)
	Codec string

	// Window is the most frames in flight: sending waits until a frame has ended. 0 = bounded only by the stream and
	// the connection.
	Window int

	// Overlay is a file for the video with results drawn over the frames, and Picture a file for the frame with the
	// most boxes; "" = none. The video contains every sent frame, at its time: a frame without a result shows the
	// newest earlier result, and the caption says so. The overlay of a picture is a picture. Frames wait in memory
	// for their endings, at most 512 frames or 64 MiB; beyond the bound, sending waits.
	Overlay, Picture string

	// OnSend is called before each frame is sent, with the frame's number and its time in the video. The frame's
	// memory is reused when OnSend returns. A single goroutine calls OnSend, not the goroutine that calls OnReply.
	OnSend   func(seq uint64, pts time.Duration, frame []byte)
	OnReply  func(Reply)    // called from a single goroutine; must not block for long
	OnSecond func(Progress) // called after each second, from a single goroutine
}

// Reply is the ending of a frame, with the frame's time in the video.
type Reply struct {
	client.Reply
	PTS time.Duration // presentation time, from 0
}

const (
	// drainTimeout bounds the wait for the last replies, and canceledDrainTimeout does when
	// the context has ended.
	drainTimeout         = 30 * time.Second
	canceledDrainTimeout = 3 * time.Second

	giveUp = 30 * time.Second // of reconnecting
)

// Run sends frames until the source or ctx ends. The end of ctx is not an error. When the
// source or the server fails, the summary has the frames before. Run may be called
// concurrently.
func Run(ctx context.Context, o Options) (Summary, error) {
	p := &player{o: o, counts: newCounter(video.Redact(o.Source), o.Model), pts: map[uint64]time.Duration{}}
	if o.Window > 0 {
		p.slots = make(chan struct{}, o.Window)
	}
	if o.Next != nil {
		p.overlay = newPainter(ctx, "", "", 0, 1)
		return p.play(ctx, o.Policy, func() error { return p.frames(ctx, o.Next, !o.Fast) })
	}
	if _, err := o.Client.Metadata(ctx, o.Model, o.Version); err != nil {
		return Summary{}, err
	}
	picture, err := readPicture(ctx, o.Source)
	if err != nil {
		return Summary{}, err
	}
	if err := o.effective(picture != nil); err != nil {
		return Summary{}, err
	}
	videoFile, pictureFile, err := o.overlayFiles(picture != nil)
	if err != nil {
		return Summary{}, err
	}
	p.counts.files(videoFile, pictureFile)
	if picture != nil {
		o.Policy.Mode = stream.Every
		p.overlay = newPainter(ctx, videoFile, pictureFile, 0, 1)
		return p.play(ctx, o.Policy, func() error { return p.send(ctx, picture, 0) })
	}
	r, err := o.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return p.counts.summary(), err
	}
	defer func() { _ = r.Close() }()
	info := r.Info()
	p.counts.video(info.Width, info.Height, info.FPS)
	p.overlay = newPainter(ctx, videoFile, pictureFile, info.FPS, o.frameAspect(info))
	var buf []byte
	next := func() ([]byte, time.Duration, error) {
		f, err := r.Next(buf)
		if err == nil {
			buf = f.Data
		}
		return f.Data, f.PTS, err
	}
	scheme, _ := video.ClassifyURL(o.Source)
	return p.play(ctx, o.Policy, func() error { return p.frames(ctx, next, scheme == video.SchemeFile && !o.Fast) })
}

// effective returns an error for an option without effect on the kind of source.
func (o *Options) effective(picture bool) error {
	scheme, _ := video.ClassifyURL(o.Source)
	live := scheme != video.SchemeFile
	for _, option := range []struct {
		name          string
		given, effect bool
	}{
		{"loop", o.Loop, !picture && !live},
		{"realtime", o.Fast, !picture && !live},
		{"fps", o.FPS != 0, !picture},
		{"duration", o.Limit != 0, !picture},
		{"width", o.Width != 0, !picture},
		{"height", o.Height != 0, !picture},
		{"policy", o.Policy.Mode == stream.Latest, !picture},
	} {
		switch {
		case !option.given || option.effect:
		case picture:
			return stream.Errorf(stream.InvalidArgument, option.name,
				"has no effect on a picture, which is sent once and as it is: leave it out")
		default:
			return stream.Errorf(stream.InvalidArgument, option.name,
				"is for files, and %s is a live source: leave it out", video.Redact(o.Source))
		}
	}
	return nil
}

// open opens the video, scaled to the size needed by the model.
func (o *Options) open(ctx context.Context) (*video.Reader, error) {
	scheme, err := video.ClassifyURL(o.Source)
	if err != nil {
		return nil, err
	}
	v := video.Options{
		URL: o.Source, Encoded: video.MJPEG, Quality: 90, FPS: o.FPS, Width: o.Width, Height: o.Height,
		Loop: o.Loop && scheme == video.SchemeFile,
	}
	w, h, err := o.neededSize(ctx)
	if err != nil {
		return nil, err
	}
	if w > 0 {
		if scheme == video.SchemeFile {
			info, err := video.Probe(ctx, v)
			if err != nil {
				return nil, err
			}
			v.Width, v.Height = cover(info.Width, info.Height, w, h)
		} else {
			v.Height = h + h%2 // the size of a camera is unknown: probing would open the camera a second time
		}
	}
	return video.Open(ctx, v)
}

// frameAspect returns the ratio of width to height of a pixel, as in a video player; 1 = square or unknown.
func (o *Options) frameAspect(i video.Info) float64 {
	if o.Width > 0 && o.Height > 0 {
		return 1
	}
	return cmp.Or(i.FrameAspect(), 1)
}

// neededSize returns the frame size needed by the model when the options have no size; 0, 0 = the size of the source.
func (o *Options) neededSize(ctx context.Context) (w, h int, err error) {
	if o.Width > 0 || o.Height > 0 {
		return 0, 0, nil
	}
	document, err := o.Client.OpenAPI(ctx)
	if err != nil {
		return 0, 0, err
	}
	takes, err := openapi.InputRulesOf(document, o.Model, o.Version)
	if p := takes.Picture; p != nil && !p.Whole {
		w, h = p.Width, p.Height
	}
	return w, h, err
}

// cover returns the smallest even size with the source's aspect ratio that is at least w x h; 0 = the source's size
// is not larger.
func cover(srcW, srcH, w, h int) (int, int) {
	if srcW <= w || srcH <= h {
		return 0, 0
	}
	even := func(n int) int { return n + n%2 }
	if srcW*h > srcH*w { // wider than needed: the height decides
		return even((srcW*h + srcH - 1) / srcH), even(h)
	}
	return even(w), even((srcH*w + srcW - 1) / srcW)
}

type player struct {
	o       Options
	s       *client.Stream
	counts  *counter
	overlay *painter
	seq     uint64 // of the next frame

	slots chan struct{} // has an item for each frame in flight; nil = no window

	mu  sync.Mutex
	pts map[uint64]time.Duration // of frames in flight
}

// play opens the stream, calls send, which sends the frames, and waits for the last replies.
func (p *player) play(ctx context.Context, policy stream.Policy, send func() error) (Summary, error) {
	// The stream does not end with ctx: after Ctrl-C the frames in flight still end.
	opts := client.StreamOptions{Version: p.o.Version, Policy: policy, OnReply: p.reply}
	if p.o.Codec != "" {
		opts.Codec, opts.Width, opts.Height = p.o.Codec, p.o.Width, p.o.Height
	}
	session, err := p.o.Client.Session(context.WithoutCancel(ctx),
		client.SessionOptions{GiveUp: giveUp, OnConnection: p.counts.connection})
	if err == nil {
		defer func() { _ = session.Close() }()
		p.s, err = session.Open(ctx, p.o.Model, opts)
	}
	if err != nil {
		_ = p.overlay.finish()
		return p.counts.summary(), err
	}
	stop := p.everySecond()
	p.counts.start(time.Now())
	err = send()
	wait := drainTimeout
	if ctx.Err() != nil {
		wait = canceledDrainTimeout
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	streamErr := p.s.Drain(last)
	if streamErr == nil {
		streamErr = p.s.Err()
	}
	p.counts.end(time.Now())
	_ = session.Close()
	stop()
	if err == nil {
		err = streamErr
	}
	if ctx.Err() != nil {
		err = nil
	}
	if drawErr := p.overlay.finish(); drawErr != nil {
		p.counts.files("", "")
		if err == nil {
			err = drawErr
		}
	}
	return p.counts.summary(), err
}

// everySecond reports progress until a call of the returned function.
func (p *player) everySecond() (stop func()) {
	if p.o.OnSecond == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case now := <-t.C:
				p.o.OnSecond(p.counts.progress(now))
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// frames sends the frames returned by next; if paced, each when due.
func (p *player) frames(ctx context.Context, next func() ([]byte, time.Duration, error), paced bool) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var begin time.Time
	for {
		frame, at, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case p.o.Limit > 0 && at >= p.o.Limit:
			return nil
		}
		if begin.IsZero() {
			begin = time.Now().Add(-at)
		}
		if wait := time.Until(begin.Add(at)); paced && wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-p.s.Done():
			}
		}
		if err := p.send(ctx, frame, at); err != nil {
			return err
		}
	}
}

// send sends one frame. send records the frame before sending, since the reply may arrive before Send returns.
func (p *player) send(ctx context.Context, frame []byte, pts time.Duration) error {
	seq := p.seq
	if p.slots != nil {
		select {
		case p.slots <- struct{}{}:
		case <-p.s.Done(): // Send returns the reason
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := p.overlay.add(ctx, p.s.Done(), seq, frame, pts); err != nil {
		return err
	}
	p.seq++
	p.counts.sent()
	p.mu.Lock()
	p.pts[seq] = pts
	p.mu.Unlock()
	if p.o.OnSend != nil {
		p.o.OnSend(seq, pts, frame)
	}
	_, err := p.s.Send(ctx, client.Frame{Data: frame})
	if err != nil && ctx.Err() != nil { // not sent
		p.counts.unsent()
	}
	return err
}

func (p *player) reply(r client.Reply) {
	p.mu.Lock()
	pts := p.pts[r.Seq]
	if !r.Partial {
		delete(p.pts, r.Seq)
	}
	p.mu.Unlock()
	p.counts.reply(&r)
	p.overlay.ending(&r)
	if p.slots != nil && !r.Partial {
		<-p.slots
	}
	if p.o.OnReply != nil {
		p.o.OnReply(Reply{r, pts})
	}
}
