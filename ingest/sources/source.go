package sources

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/video"
	"millrace/stream"
)

// maxPause is the longest time between two frames of a paced source that is taken
// for one, unless they all are so far apart.
const maxPause = 10 * time.Second

// Options are what a source is made with. Open, Address and Frame are needed.
type Options struct {
	Open    func(context.Context) (Reader, error) // called again after each failure
	Address string                                // for messages, which leave its passwords out

	// Frame takes each frame over, its lease included. Seq counts from 0 over all
	// openings. A live source must not be held up: Frame returns at once, and a
	// stream in Latest keeps the newest. Of a video with an end, Frame may take its
	// time.
	Frame func(stream.Frame)
	// Opened is told what was opened, before its first frame; nil for nobody.
	Opened func(Info)
	// Failed is told of each failure, without passwords; nil for nobody.
	Failed func(error)
	// Unreadable is told of a frame that cannot be read, which has its Seq and CaptureUS
	// only; nil for nobody.
	Unreadable func(f stream.Frame, err error)
	// Lost is told of a frame for which there was no memory; nil for nobody.
	Lost func(seq uint64)
	// May is asked before each opening whether the source may be opened now: an
	// error of it is a failure like others, except that PermissionDenied and
	// InvalidArgument are final. nil allows.
	May func(context.Context) error
	// Paced gives the frames of a source with an end at the speed at which it plays. A
	// jump of its times is not waited for.
	Paced bool

	MinWait time.Duration // before the second opening; 0.5 s
	MaxWait time.Duration // 30 s
	Steady  time.Duration // frames for so long make the next wait a short one again; 10 s
}

// Source keeps one source going. Run runs it once; Status may be called by
// anybody, at any time.
type Source struct {
	opts    Options
	backoff backoff.Backoff

	mu     sync.Mutex
	status Status
}

// New makes a source that does nothing until Run.
func New(o Options) *Source {
	for _, d := range []struct {
		p *time.Duration
		v time.Duration
	}{{&o.MinWait, 500 * time.Millisecond}, {&o.MaxWait, 30 * time.Second}, {&o.Steady, 10 * time.Second}} {
		if *d.p <= 0 {
			*d.p = d.v
		}
	}
	return &Source{
		opts: o, backoff: backoff.Backoff{Min: o.MinWait, Max: o.MaxWait},
		status: Status{State: Connecting, Since: time.Now()},
	}
}

// Status reads what the source is doing.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Run opens the source, reads it all the time, and opens it again when it fails,
// until ctx ends or the video does. It returns nil at the end of a file or of a
// video whose length was known, ctx's cause, or the error for which it can never
// work; a file that breaks off is not read again. No child is left behind.
func (s *Source) Run(ctx context.Context) error {
	for {
		s.setState(Connecting, time.Time{})
		steady, err := s.once(ctx)
		switch {
		case ctx.Err() != nil:
			s.setState(Ended, time.Time{})
			return context.Cause(ctx)
		case err == io.EOF:
			s.setState(Ended, time.Time{})
			return nil
		case isFinal(err):
			s.fail(err)
			s.setState(Failed, time.Time{})
			return err
		}
		s.fail(err)
		if !s.wait(ctx, s.pause(steady, err)) {
			s.setState(Ended, time.Time{})
			return context.Cause(ctx)
		}
	}
}

// final is an error after which trying again is of no use.
type final struct{ error }

// Unwrap returns the error.
func (f final) Unwrap() error { return f.error }

// isFinal says that trying again is of no use: not the source is wrong, but what
// was asked for, or what there was of it has been read.
func isFinal(err error) bool {
	if _, is := err.(final); is {
		return true
	}
	if k := video.KindOf(err); k != "" {
		return k == video.Forbidden
	}
	switch stream.CodeOf(err) {
	case stream.InvalidArgument, stream.PermissionDenied, stream.Internal:
		return true
	}
	return false
}

// pause returns how long to wait. What will not mend by itself is asked for as
// seldom as possible.
func (s *Source) pause(steady bool, err error) time.Duration {
	if steady {
		s.backoff.Reset()
	}
	if k := video.KindOf(err); k != "" && !k.Retry() {
		half := s.opts.MaxWait / 2
		return half + time.Duration(rand.Float64()*float64(half))
	}
	return s.backoff.Next(rand.Float64())
}

func (s *Source) wait(ctx context.Context, d time.Duration) bool {
	s.setState(Waiting, time.Now().Add(d))
	if !sleep(ctx, d) {
		return false
	}
	s.mu.Lock()
	s.status.Restarts++
	s.mu.Unlock()
	return true
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once opens the source and reads it to its end or failure. steady says that it
// went well for a while.
func (s *Source) once(ctx context.Context) (steady bool, err error) {
	if s.opts.May != nil {
		if err := s.opts.May(ctx); err != nil {
			return false, err
		}
	}
	r, err := s.opts.Open(ctx)
	if err != nil {
		return false, err
	}
	defer r.Close()
	info := r.Info()
	s.mu.Lock()
	s.status.Info = info
	s.mu.Unlock()
	if s.opts.Opened != nil {
		s.opts.Opened(info)
	}
	s.setState(Running, time.Time{})
	begun := time.Now()
	err = s.read(ctx, r, info.Timed || s.opts.Paced && info.Ends)
	if err == io.EOF && !info.Ends {
		// Nobody said that it would end: a camera, or the server in front of it, did.
		err = &video.Error{Kind: video.EndedEarly, URL: video.Redact(s.opts.Address), Detail: "its server ended it"}
	}
	return time.Since(begun) >= s.opts.Steady, err
}

func (s *Source) read(ctx context.Context, r Reader, paced bool) error {
	pause := maxPause
	if fps := r.Info().FPS; fps > 0 {
		pause = max(pause, time.Duration(2/fps*float64(time.Second)))
	}
	var (
		begun       time.Time
		first, last int64 // times of frames; first moves with each jump
	)
	for {
		f, err := r.Next()
		var unreadable *Unreadable
		if err != nil && !errors.As(err, &unreadable) {
			return err
		}
		if unreadable == nil && f.Lease == nil {
			f.Seq = s.count(true)
			if s.opts.Lost != nil {
				s.opts.Lost(f.Seq)
			}
			continue
		}
		if begun.IsZero() {
			begun, first, last = time.Now(), f.CaptureUS, f.CaptureUS
		}
		if step := f.CaptureUS - last; step > pause.Microseconds() {
			first += step
		}
		last = f.CaptureUS
		due := time.Duration(f.CaptureUS-first) * time.Microsecond
		if paced && !sleep(ctx, due-time.Since(begun)) {
			f.Lease.Release()
			return context.Cause(ctx)
		}
		f.Seq = s.count(false) // from here on somebody accounts for it
		if unreadable != nil {
			if s.opts.Unreadable != nil {
				s.opts.Unreadable(f, unreadable.Err)
			}
			continue
		}
		s.opts.Frame(f)
	}
}

// count counts a frame and returns its number.
func (s *Source) count(lost bool) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Frames++
	if lost {
		s.status.Lost++
	}
	return s.status.Frames - 1
}

func (s *Source) setState(st State, retry time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.State, s.status.Since, s.status.Retry = st, time.Now(), retry
}

// fail keeps a failure, without what it may tell of passwords.
func (s *Source) fail(err error) {
	kind := video.KindOf(err)
	var own *video.Error
	if !errors.As(err, &own) { // those are redacted already
		err = stream.Errorf(stream.CodeOf(err), "", "%s", video.Redact(err.Error()))
	}
	s.mu.Lock()
	s.status.Kind, s.status.Err = kind, err
	s.mu.Unlock()
	if s.opts.Failed != nil {
		s.opts.Failed(err)
	}
}
