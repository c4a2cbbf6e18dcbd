package play

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"millrace/client"
	"millrace/internal/video"
	"millrace/stream"
)

// Options say what to play to whom. Client, Model and Source are needed.
type Options struct {
	Client         *client.Client
	Model, Version string
	Source         string  // a file, a device or an address, see internal/video; a picture, from http too, is one frame
	FPS            float64 // at most so many frames a second; 0 = all
	Fast           bool    // files go as fast as they are read, not as they play
	Loop           bool    // files start over at their end
	Width, Height  int     // of the frames as sent; 0 = what the model needs
	Limit          time.Duration
	Policy         stream.Policy // zero fields are the model's

	// Next, when set, gives frames that are encoded already in place of those of Source, which is then but a name: each is
	// sent as it is at its time, or with Fast at once, until io.EOF. Its memory may be used again at the next call. Codec is
	// theirs, "" = recognised by content; rgb24 and nv12 need Width and Height. No overlay is drawn.
	Next  func() (frame []byte, at time.Duration, err error)
	Codec string

	// Window is how many frames may be on their way: the next one waits until one has ended. 0 = as many as the stream takes,
	// which with the policy "every" is its own window and what the connection holds.
	Window int

	// Overlay is a file for the video with what the model answered drawn over it, Picture one for the frame with the
	// most boxes; "" = none. Every frame sent is once in the video, at its time: one that was dropped or failed shows the
	// newest result before it and says so. For a picture Overlay is a picture too. Frames wait in memory for their
	// endings, 512 frames or 64 MiB at most; past that, sending waits.
	Overlay, Picture string

	// OnSend sees each frame as it goes, before any reply to it, with its number and its place in the video. The frame's
	// memory is used again when it returns. It is called from one goroutine, not OnReply's.
	OnSend   func(seq uint64, pts time.Duration, frame []byte)
	OnReply  func(Reply)    // from one goroutine; must not block for long
	OnSecond func(Progress) // after each second, from one goroutine
}

// Reply is the ending of a frame with its place in the video.
type Reply struct {
	client.Reply
	PTS time.Duration // presentation time, from 0
}

const (
	// drainWait bounds the wait for the last replies; drainStopped when the user
	// has already asked for the end.
	drainWait    = 30 * time.Second
	drainStopped = 3 * time.Second

	giveUp = 30 * time.Second // when there is no connection any more
)

// Run plays until the source or ctx ends. The end of ctx is no error. When the
// source or the server fails the summary holds what came before. Run may be
// called concurrently.
func Run(ctx context.Context, o Options) (Summary, error) {
	p := &player{o: o, acc: newAccount(o.Source, o.Model), pts: map[uint64]time.Duration{}}
	if o.Window > 0 {
		p.room = make(chan struct{}, o.Window)
	}
	if o.Next != nil {
		p.rec = newRecorder(ctx, "", "", 0)
		return p.play(ctx, o.Policy, func() error { return p.frames(ctx, o.Next, !o.Fast) })
	}
	meta, err := o.Client.Metadata(ctx, o.Model, o.Version)
	if err != nil {
		return Summary{}, err
	}
	picture, err := readPicture(ctx, o.Source)
	if err != nil {
		return Summary{}, err
	}
	film, still, err := o.recording(picture != nil)
	if err != nil {
		return Summary{}, err
	}
	p.acc.files(film, still)
	if picture != nil {
		o.Policy.Mode = stream.Every
		p.rec = newRecorder(ctx, film, still, 0)
		return p.play(ctx, o.Policy, func() error { return p.send(ctx, picture, 0) })
	}
	r, err := o.open(ctx, meta)
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return p.acc.summary(), err
	}
	defer func() { _ = r.Close() }()
	info := r.Info()
	p.acc.video(info.Width, info.Height, info.FPS)
	p.rec = newRecorder(ctx, film, still, info.FPS)
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

// open opens the video in the size that the model needs.
func (o *Options) open(ctx context.Context, meta client.Metadata) (*video.Reader, error) {
	scheme, err := video.ClassifyURL(o.Source)
	if err != nil {
		return nil, err
	}
	v := video.Options{
		URL: o.Source, Encoded: video.MJPEG, Quality: 90, FPS: o.FPS, Width: o.Width, Height: o.Height,
		Loop: o.Loop && scheme == video.SchemeFile,
	}
	if w, h := wanted(meta); v.Width == 0 && v.Height == 0 && w > 0 {
		if scheme == video.SchemeFile {
			info, err := video.Probe(ctx, v)
			if err != nil {
				return nil, err
			}
			v.Width, v.Height = cover(info.Width, info.Height, w, h)
		} else {
			v.Height = h + h%2 // a camera is not opened twice, to ask for its size
		}
	}
	return video.Open(ctx, v)
}

// wanted reads the size of pictures off a model's first input, 0 when it shows
// none.
func wanted(meta client.Metadata) (w, h int) {
	if len(meta.Inputs) == 0 {
		return 0, 0
	}
	s := meta.Inputs[0].Shape
	if len(s) == 4 {
		s = s[1:]
	}
	if len(s) != 3 {
		return 0, 0
	}
	switch channels := func(n int) bool { return n == 1 || n == 3 }; {
	case channels(s[2]):
		h, w = s[0], s[1]
	case channels(s[0]):
		h, w = s[1], s[2]
	}
	if w < 1 || h < 1 {
		return 0, 0
	}
	return w, h
}

// cover is the smallest even size of the same form as the source's that is not
// smaller than w x h on either side, and never larger than the source.
func cover(srcW, srcH, w, h int) (int, int) {
	if srcW <= w || srcH <= h {
		return 0, 0
	}
	even := func(n int) int { return n + n%2 }
	if srcW*h > srcH*w { // wider than wanted: the height decides
		return even((srcW*h + srcH - 1) / srcH), even(h)
	}
	return even(w), even((srcH*w + srcW - 1) / srcW)
}

type player struct {
	o   Options
	s   *client.Stream
	acc *account
	rec *recorder
	seq uint64 // of the next frame

	room chan struct{} // has one for each frame on its way; nil = no window

	mu  sync.Mutex
	pts map[uint64]time.Duration // of frames on their way
}

// play opens the stream, feeds it, and waits for the last replies.
func (p *player) play(ctx context.Context, policy stream.Policy, feed func() error) (Summary, error) {
	// The stream outlives ctx: after Ctrl-C the frames on their way still end.
	opts := client.StreamOptions{Version: p.o.Version, Policy: policy, OnReply: p.reply}
	if p.o.Codec != "" {
		opts.Codec, opts.Width, opts.Height = p.o.Codec, p.o.Width, p.o.Height
	}
	session, err := p.o.Client.Session(context.WithoutCancel(ctx), client.SessionOptions{GiveUp: giveUp, OnConnection: p.acc.connection})
	if err == nil {
		defer func() { _ = session.Close() }()
		p.s, err = session.Open(ctx, p.o.Model, opts)
	}
	if err != nil {
		_ = p.rec.finish()
		return p.acc.summary(), err
	}
	stop := p.everySecond()
	p.acc.start(time.Now())
	err = feed()
	wait := drainWait
	if ctx.Err() != nil {
		wait = drainStopped
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	unsettled := p.s.Drain(last)
	if unsettled == nil {
		unsettled = p.s.Err()
	}
	p.acc.end(time.Now())
	_ = session.Close()
	stop()
	if err == nil {
		err = unsettled
	}
	if ctx.Err() != nil {
		err = nil
	}
	if drawn := p.rec.finish(); drawn != nil {
		p.acc.files("", "")
		if err == nil {
			err = drawn
		}
	}
	return p.acc.summary(), err
}

// everySecond reports progress until the function that it returns is called.
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
				p.o.OnSecond(p.acc.progress(now))
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// frames sends the frames that next gives, paced: each when it is due.
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

// send sends one frame, whose number is known before, so that it is noted before
// any reply to it can come.
func (p *player) send(ctx context.Context, frame []byte, pts time.Duration) error {
	seq := p.seq
	if p.room != nil {
		select {
		case p.room <- struct{}{}:
		case <-p.s.Done(): // sending says why
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := p.rec.hold(ctx, p.s.Done(), seq, frame, pts); err != nil {
		return err
	}
	p.seq++
	p.acc.sent()
	p.mu.Lock()
	p.pts[seq] = pts
	p.mu.Unlock()
	if p.o.OnSend != nil {
		p.o.OnSend(seq, pts, frame)
	}
	_, err := p.s.Send(ctx, client.Frame{Data: frame})
	if err != nil && ctx.Err() != nil { // while it waited for its turn
		p.acc.unsent()
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
	p.acc.reply(&r)
	p.rec.ending(&r)
	if p.room != nil && !r.Partial {
		<-p.room
	}
	if p.o.OnReply != nil {
		p.o.OnReply(Reply{r, pts})
	}
}
