package ws

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
)

// pull is one video that the server reads on behalf of a session. It has a lane
// and a stream of its own; seq counts its frames from 0.
type pull struct {
	s      *session
	lane   *lane
	model  string
	url    string
	cancel context.CancelFunc
	stop   atomic.Bool   // the client asked for the end
	freed  atomic.Bool   // there is room for another, or for frames
	over   chan struct{} // nothing of it is left

	source  source
	ended   atomic.Pointer[stream.CloseReason] // its stream ended by itself
	dropped atomic.Uint64
}

// running says whether it still has something to do.
func (p *pull) running() bool { return !p.freed.Load() }

// done is called when the pull's stream has ended, with its lock held.
func (p *pull) done(why stream.CloseReason) {
	p.ended.Store(&why)
	p.cancel()
}

// obey does what a text message asks for.
func (s *session) obey(o order) error {
	busy := s.puller != nil && s.puller.running()
	if o.Stop {
		if !busy {
			return stream.Errorf(stream.Conflict, "stop", "nothing is being pulled")
		}
		s.puller.stop.Store(true)
		s.puller.cancel()
		return nil
	}
	if busy {
		return stream.Errorf(stream.Conflict, "url", `a video is being pulled already: send {"stop":true} first`)
	}
	if s.puller != nil {
		<-s.puller.over // it is telling its end
	}
	if s.query.region != (stream.Region{}) {
		return stream.Errorf(stream.Unsupported, "roi", "is for pictures that are sent: a pulled video is scaled before it is here")
	}
	if err := sources.Check("url", o.URL); err != nil {
		return err
	}
	if s.a.pulls.Add(1) > int64(s.a.opts.MaxPulls) {
		s.a.pulls.Add(-1)
		return stream.Errorf(stream.Overloaded, "limits.max_pulls", "%d videos are being pulled already: try later, or raise the setting", s.a.opts.MaxPulls)
	}
	p := &pull{s: s, model: o.Model, url: o.URL, over: make(chan struct{})}
	if p.model == "" {
		p.model = s.model
	}
	p.source.id = o.id
	p.lane = newLane(s)
	p.lane.pulled = p
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	s.puller = p
	s.pulling.Store(true)
	if !s.a.group.run("pull", func() { p.run(ctx) }, s.fault) {
		p.finish()
		return stream.Errorf(stream.Draining, "", "the server is shutting down")
	}
	return nil
}

// free makes room for the next pull, or for frames. Only the first call counts.
func (p *pull) free() {
	if p.freed.Load() {
		return
	}
	p.cancel()
	p.s.pulling.Store(false)
	p.s.a.pulls.Add(-1)
	p.freed.Store(true)
}

func (p *pull) finish() {
	p.free()
	close(p.over)
}

// run is the pull's goroutine. It tells the client of the end, whatever it is.
func (p *pull) run(ctx context.Context) {
	defer p.finish()
	defer p.closeStream()
	err := p.pull(ctx)
	p.closeStream()
	p.free() // before the client is told: it may go on at once
	if p.s.over() {
		return // the session tells why
	}
	if err != nil && !p.stop.Load() {
		p.s.sayTo(p.source.id, err)
		return
	}
	text := append(appendID([]byte{'{'}, p.source.id), `"done":true,"frames":`...)
	text = strconv.AppendUint(text, p.lane.seq, 10)
	text = strconv.AppendUint(append(text, `,"drops":`...), p.dropped.Load(), 10)
	p.s.tell(append(text, '}'))
}

// closeStream has every frame end, those in flight in their own time.
func (p *pull) closeStream() {
	if st := p.lane.stream; st != nil {
		st.Close(stream.SourceEnded)
		<-st.Finished()
	}
}

func (p *pull) pull(ctx context.Context) error {
	model, _, err := p.s.backend.Models().Model(p.model, p.version())
	if err != nil {
		return err
	}
	if model.Image == nil && !model.Any {
		return stream.Errorf(stream.Unsupported, "model", "model %s takes tensors, not pictures", p.model)
	}
	r, live, err := p.open(ctx, model)
	if err != nil {
		return p.failed(err)
	}
	defer r.Close()
	policy := p.s.query.policy
	if policy.Mode == "" {
		policy.Mode = stream.Every
		if live {
			policy.Mode = stream.Latest
		}
	}
	st, err := p.s.backend.Open(p.model, p.version(), stream.Options{Policy: policy}, p.lane)
	if err != nil {
		return err
	}
	p.lane.opened(st)
	err = p.feed(ctx, r)
	if err == io.EOF {
		// Closing the stream would drop what waits.
		p.lane.wait(1, ctx.Done())
		err = nil
	}
	if err != nil || ctx.Err() != nil || p.ended.Load() != nil { // ended is set a moment before ctx ends
		return p.failed(errors.Join(err, ctx.Err()))
	}
	return nil
}

// version is the path's, for the path's model only.
func (p *pull) version() string {
	if p.model == p.s.model {
		return p.s.version
	}
	return ""
}

// open starts reading. Frames are scaled on the way to what the model takes;
// live sources, whose end is not known, are read as they come.
func (p *pull) open(ctx context.Context, m *stream.Model) (r *video.Reader, live bool, err error) {
	o := video.Options{URL: p.url, Format: video.RGB24, FPS: p.s.query.policy.MaxFPS}
	if !p.s.a.opts.AllowPrivateURLs {
		o.Allow = sources.Public
	}
	if m.Image != nil && m.Image.Fit != "letterbox" {
		o.Width, o.Height = m.Image.Width, m.Image.Height
	}
	r, err = video.Open(ctx, o)
	if err != nil {
		return nil, false, err
	}
	info := r.Info()
	p.source.width, p.source.height, p.source.pulled = info.SourceWidth, info.SourceHeight, true
	return r, info.Duration == 0, nil
}

// feed submits the video's frames until it ends, which is io.EOF.
func (p *pull) feed(ctx context.Context, r *video.Reader) error {
	frames := sources.NewFrames(r, p.s.backend.Memory())
	for {
		if p.lane.full() && !p.lane.wait(p.lane.window, ctx.Done()) {
			return ctx.Err()
		}
		f, err := frames.Next()
		if err != nil {
			return err
		}
		f.Seq = p.lane.take()
		if f.Lease == nil {
			p.lane.stream.MarkDiscontinuity()
			p.lane.drop(f.Seq, stream.Memory)
			continue
		}
		p.lane.submit(f)
		if p.ended.Load() != nil {
			return ctx.Err()
		}
	}
}

// failed gives the end of a pull its code.
func (p *pull) failed(err error) error {
	if why := p.ended.Load(); why != nil {
		if e, ok := doneEnding(*why, p.model); ok {
			return e.err
		}
	}
	return stream.Errorf(sources.Code(err), "url", "%s", video.Redact(err.Error()))
}
