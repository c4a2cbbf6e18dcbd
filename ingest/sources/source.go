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

// maxPause is the longest time between two frames of a paced source that is kept,
// unless all of its frames are so far apart.
const maxPause = 10 * time.Second

// Options are what a source is made from. Open, Address and Frame are needed.
type Options struct {
	Open    func(context.Context) (Reader, error) // called again after each failure
	Address string                                // for messages, without its passwords

	// Frame takes over each frame, its lease included. Seq counts from 0 over all
	// openings. For a live source Frame must return at once; a stream in Latest keeps
	// the newest frame. For a video with an end Frame may block.
	Frame func(stream.Frame)
	// Opened is called with what was opened, before the first frame; or nil.
	Opened func(Info)
	// Failed is called with each failure, without passwords; or nil.
	Failed func(error)
	// Unreadable is called with a frame that cannot be read, which has only Seq and
	// CaptureUS; or nil.
	Unreadable func(f stream.Frame, err error)
	// Lost is called for a frame for which there was no memory; or nil.
	Lost func(seq uint64)
	// May is called before each opening and may refuse it. Its error is a failure like
	// others, except that PermissionDenied and InvalidArgument are final. nil allows
	// every opening.
	May func(context.Context) error
	// Paced reads a source with an end at the speed at which it plays. A jump of its
	// times causes no wait.
	Paced bool

	MinWait time.Duration // before the second opening; default 0.5 s
	MaxWait time.Duration // default 30 s
	Steady  time.Duration // after frames for so long, the next wait is MinWait again; default 10 s
}

// Source keeps one source open. Run may be called once; Status by any goroutine, at any
// time.
type Source struct {
	opts    Options
	backoff backoff.Backoff

	mu     sync.Mutex
	status Status
}

// New returns a source that does nothing until Run.
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

// Status returns a snapshot of the source's state.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Run opens the source, reads it, and opens it again when it fails, until ctx or the
// video ends. It returns nil at the end of a file or of a video whose length was known,
// ctx's cause, or an error that is final; a file that breaks off is not read again. It
// leaves no child process.
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

// final is an error after which another attempt cannot succeed.
type final struct{ error }

// Unwrap returns the error.
func (f final) Unwrap() error { return f.error }

// isFinal reports whether another attempt cannot succeed: the request is wrong, or
// everything that there was of the source has been read.
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

// pause returns how long to wait. After an error that probably stays, it is the longest
// wait.
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

// once opens the source and reads it to its end or failure. steady says that it worked
// for a while.
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
		// The source had not declared an end: the camera, or a server in front of it,
		// ended it.
		err = &video.Error{Kind: video.EndedEarly, URL: video.Redact(s.opts.Address), Detail: "its server ended it"}
	}
	return time.Since(begun) >= s.opts.Steady, err
}

func (s *Source) read(ctx context.Context, r Reader, paced bool) error {
	pause := maxPause
	if fps := r.Info().FPS; fps != 0 {
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
		if begun.IsZero() {
			begun, first, last = time.Now(), f.CaptureUS, f.CaptureUS
		}
		if step := f.CaptureUS - last; step > pause.Microseconds() {
			first += step
		}
		last = f.CaptureUS
		due := time.Duration(f.CaptureUS-first) * time.Microsecond
		if ctx.Err() != nil || paced && !sleep(ctx, due-time.Since(begun)) {
			f.Lease.Release()
			return context.Cause(ctx)
		}
		lost := unreadable == nil && f.Lease == nil
		f.Seq = s.count(lost) // from here on the frame is counted
		switch {
		case lost:
			if s.opts.Lost != nil {
				s.opts.Lost(f.Seq)
			}
		case unreadable != nil:
			if s.opts.Unreadable != nil {
				s.opts.Unreadable(f, unreadable.Err)
			}
		default:
			s.opts.Frame(f)
		}
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

// fail records a failure, without passwords.
func (s *Source) fail(err error) {
	kind := video.KindOf(err)
	var own *video.Error
	if !errors.As(err, &own) { // its text has no passwords
		err = stream.Errorf(stream.CodeOf(err), "", "%s", video.Redact(err.Error()))
	}
	s.mu.Lock()
	s.status.Kind, s.status.Err = kind, err
	s.mu.Unlock()
	if s.opts.Failed != nil {
		s.opts.Failed(err)
	}
}
