package sources

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/ctxio"
	"millrace/internal/video"
	"millrace/stream"
)

// maxPause is the longest time observed between two frames of a paced source, unless the rate of the source is lower.
const maxPause = 10 * time.Second

// Options configure a source. Open, Address and Frame are needed.
type Options struct {
	Open    func(context.Context) (Reader, error) // called again after each failure
	Address string                                // for messages, without passwords

	// Frame takes over each frame, including the lease. Seq counts from 0 over all openings. For a live source Frame
	// must return at once; a stream in Latest keeps the newest frame. For a video with an end Frame may block. After
	// a panic, Frame has not taken over the frame.
	Frame func(stream.Frame)
	// Opened is called with the Info of the opened source, before the first frame; or nil.
	Opened func(Info)
	// Failed is called with each failure, without passwords; or nil.
	Failed func(error)
	// Unreadable is called with an unreadable frame; only Seq and CaptureUS are set; or nil.
	Unreadable func(f stream.Frame, err error)
	// Lost is called for a frame lost for lack of memory, without payload; or nil.
	Lost func(stream.Frame)
	// Skipped is called with the number of pictures skipped since the last call, as in Skipper; or nil.
	Skipped func(n uint64)
	// Packet is called with each compressed picture of a video, from another goroutine than the other callbacks, and
	// must return at once; nil = not wanted.
	Packet func(Fragment)
	// Allow is called before each opening and may refuse the opening. A refusal counts as a failure; PermissionDenied
	// and InvalidArgument are final. nil allows every opening.
	Allow func(context.Context) error
	// Enter waits until the source may be opened; leave is called after the first frame or the failure of the
	// attempt. nil = open at once.
	Enter func(context.Context) (leave func(), err error)
	// Paced is called for each frame: while Paced returns true, a source with an end is read at playing speed. A jump
	// of the times causes no wait. nil = never paced.
	Paced func() bool

	MinWait    time.Duration // before the second opening; default 0.5 s
	MaxWait    time.Duration // default 30 s
	ResetAfter time.Duration // a source open for this time resets the wait to MinWait; default 10 s

	reading *atomic.Int64 // counts open sources and sources being opened; or nil
	// first values of the counts of Status
	frames, lost, skipped, restarts uint64
}

// Fragment is a compressed picture of an opening of a source. A source that is opened anew has larger numbers, another
// header and other times. Packets of two openings may alternate for a short time.
type Fragment struct {
	video.Fragment
	Opening uint64
}

// Source keeps one source open. Run may be called once; any goroutine may call Status at any time.
type Source struct {
	opts    Options
	backoff backoff.Backoff
	reopen  chan struct{} // capacity 1; see Reopen

	mu     sync.Mutex
	status Status
	needs  []video.TargetSize // nil until Resize
	reader Resizer            // nil while none is open
}

// New returns a source, idle until Run.
func New(o Options) *Source {
	for _, d := range []struct {
		p *time.Duration
		v time.Duration
	}{{&o.MinWait, 500 * time.Millisecond}, {&o.MaxWait, 30 * time.Second}, {&o.ResetAfter, 10 * time.Second}} {
		if *d.p <= 0 {
			*d.p = d.v
		}
	}
	return &Source{
		opts: o, reopen: make(chan struct{}, 1), backoff: backoff.Backoff{Min: o.MinWait, Max: o.MaxWait},
		status: Status{State: Connecting, Since: time.Now(), Frames: o.frames, Lost: o.lost,
			Skipped: o.skipped, Restarts: o.restarts},
	}
}

// Status returns a snapshot of the source's state.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Resize changes the needed frame sizes of the present and later Readers. Any goroutine may call Resize. A Reader
// that is no Resizer ignores the sizes.
func (s *Source) Resize(needs []video.TargetSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs = needs
	if s.reader != nil {
		s.reader.Resize(needs)
	}
}

// Needs returns the sizes of the last call of Resize.
func (s *Source) Needs() []video.TargetSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.needs
}

// setPaced replaces Options.Paced. Only Options.Opened may call setPaced.
func (s *Source) setPaced(paced func() bool) { s.opts.Paced = paced }

// setOpen sets the open Reader, or nil.
func (s *Source) setOpen(r Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader, _ = r.(Resizer); s.reader != nil && s.needs != nil {
		s.reader.Resize(s.needs) // the needs may have changed since the opening
	}
}

// Run opens and reads the source, and reopens the source after failures, until the end of ctx or of the video. Run
// returns nil at the end of a file or of a video of known length; otherwise ctx's cause or a final error. A truncated
// file is not read again. Run leaves no child process.
func (s *Source) Run(ctx context.Context) error {
	for {
		s.setState(Connecting, time.Time{})
		steady, err := s.runOnce(ctx)
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

// final is an error that another attempt cannot mend.
type final struct{ error }

// Unwrap returns the error.
func (f final) Unwrap() error { return f.error }

// isFinal reports whether another attempt cannot succeed: the request is wrong, or the source has been read
// completely.
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

// pause returns the time to wait. After an error that probably persists, pause returns the longest wait.
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
	if !ctxio.Sleep(ctx, d) {
		return false
	}
	s.mu.Lock()
	s.status.Restarts++
	s.mu.Unlock()
	return true
}

// runOnce opens the source and reads to the end or failure. steady says that the source worked for a while.
func (s *Source) runOnce(ctx context.Context) (steady bool, err error) {
	if s.opts.Allow != nil {
		if err := s.opts.Allow(ctx); err != nil {
			return false, err
		}
	}
	r, leave, err := s.open(context.WithCancel(ctx))
	defer func() { leave() }()
	if err != nil {
		return false, err
	}
	begun := time.Now()
	var info Info
	for r != nil {
		select {
		case <-s.reopen: // discards a request from before this opening
		default:
		}
		if info, r, err = s.use(ctx, r, leave); err == errNoSuccessor && ctx.Err() == nil {
			if r, leave, err = s.open(context.WithCancel(ctx)); err != nil {
				return false, err
			}
		}
	}
	if err == io.EOF && !info.Ends {
		// The source had not declared an end: the camera or a server ended the connection.
		err = &video.Error{Kind: video.EndedEarly, URL: video.Redact(s.opts.Address), Detail: "its server ended it"}
	}
	return time.Since(begun) >= s.opts.ResetAfter, err
}

// open waits for Enter and opens a Reader with a context of its own. leave may be called several times.
func (s *Source) open(ctx context.Context, cancel context.CancelFunc) (r *cancelReader, leave func(), err error) {
	leave = func() {}
	if s.opts.Enter != nil {
		if leave, err = s.opts.Enter(ctx); err != nil {
			cancel()
			return nil, func() {}, err
		}
	}
	s.countOpen(1)
	opened, err := s.opts.Open(ctx)
	if err != nil {
		s.countOpen(-1)
		cancel()
		return nil, leave, err
	}
	return &cancelReader{opened, cancel, func() { s.countOpen(-1) }}, leave, nil
}

// use reads a Reader to the end or failure, or until its successor is ready, and then closes the Reader, even after a
// panic in a callback.
func (s *Source) use(ctx context.Context, r *cancelReader, leave func()) (info Info, next *cancelReader, err error) {
	defer func() {
		s.setOpen(nil)
		_ = r.Close()
	}()
	info = s.opened(r)
	next, err = s.read(ctx, r, leave)
	return info, next, err
}

func (s *Source) countOpen(n int64) {
	if s.opts.reading != nil {
		s.opts.reading.Add(n)
	}
}

// opened reports a Reader about to be read.
func (s *Source) opened(r Reader) Info {
	s.setOpen(r)
	info := r.Info()
	s.mu.Lock()
	s.status.Info = info
	s.mu.Unlock()
	if s.opts.Opened != nil {
		s.opts.Opened(info)
	}
	s.setState(Running, time.Time{})
	return info
}

// Reopen opens a second Reader of a source without an end, beside the present Reader. Once the new Reader has a
// frame, the new Reader replaces the present Reader without a pause. If the second opening fails, the present Reader
// is closed first: a camera may allow only one connection. Without a Reader, Reopen does nothing; Opened may call
// Reopen for the Reader about to be read.
func (s *Source) Reopen() {
	select {
	case s.reopen <- struct{}{}:
	default: // asked for already
	}
}

// errNoSuccessor is the end of a Reader after its successor failed to open beside it.
var errNoSuccessor = errors.New("the source cannot be opened twice")

func noSuccessor(next *cancelReader) error {
	if next == nil {
		return errNoSuccessor
	}
	return nil
}

// succeed opens a successor beside r when Reopen asks for a successor, and then ends r, whose Next may block for
// long. ready returns the successor, or nil without a successor; discard closes a successor not taken from ready.
func (s *Source) succeed(ctx context.Context, r *cancelReader) (ready chan *cancelReader, discard func()) {
	ctx, cancel := context.WithCancel(ctx)
	ready = make(chan *cancelReader, 1)
	go func() {
		select {
		case <-s.reopen:
		case <-ctx.Done():
			ready <- nil
			return
		}
		next, leave, _ := s.open(ctx, cancel)
		leave()
		ready <- next
		r.cancel()
	}()
	return ready, func() {
		cancel()
		if next := <-ready; next != nil {
			_ = next.Close()
		}
	}
}

// cancelReader is a Reader with a context of its own; cancelling the context ends the Reader.
type cancelReader struct {
	Reader
	cancel context.CancelFunc
	closed func()
}

// Resize implements Resizer.
func (r *cancelReader) Resize(needs []video.TargetSize) {
	if z, ok := r.Reader.(Resizer); ok {
		z.Resize(needs)
	}
}

// Skipped implements Skipper.
func (r *cancelReader) Skipped() uint64 {
	if k, ok := r.Reader.(Skipper); ok {
		return k.Skipped()
	}
	return 0
}

// Close implements Reader.
func (r *cancelReader) Close() error {
	err := r.Reader.Close()
	r.cancel()
	r.closed()
	return err
}

// read reads a Reader to the end or failure, or until its successor is ready.
func (s *Source) read(ctx context.Context, r *cancelReader, leave func()) (next *cancelReader, err error) {
	info := r.Info()
	paced := info.Timed
	pause := maxPause
	if info.FPS != 0 {
		pause = max(pause, time.Duration(2/info.FPS*float64(time.Second)))
	}
	var (
		begun       time.Time
		first, last int64 // times of frames; first moves with each jump
		ready       chan *cancelReader
		rated       = info.FPS != 0 // otherwise the rate may be measured
		skipped     uint64          // pictures
	)
	if !info.Ends {
		var discard func()
		ready, discard = s.succeed(ctx, r)
		defer func() {
			if next == nil && err != errNoSuccessor {
				discard()
			}
		}()
	}
	for {
		select {
		case next = <-ready:
			return next, noSuccessor(next)
		default:
		}
		f, err := r.Next()
		leave()
		if n := r.Skipped(); n > skipped {
			s.countSkipped(n - skipped)
			skipped = n
		}
		var unreadable *Unreadable
		if err != nil && !errors.As(err, &unreadable) {
			select {
			case next = <-ready: // the successor has ended r
				return next, noSuccessor(next)
			default:
				return nil, err
			}
		}
		if play := info.Timed || info.Ends && s.opts.Paced != nil && s.opts.Paced(); play != paced {
			paced, begun = play, time.Time{}
		}
		if begun.IsZero() {
			begun, first, last = time.Now(), f.CaptureUS, f.CaptureUS
		}
		if step := f.CaptureUS - last; step > pause.Microseconds() {
			first += step
		}
		last = f.CaptureUS
		due := time.Duration(f.CaptureUS-first) * time.Microsecond
		if ctx.Err() != nil || paced && !ctxio.Sleep(ctx, due-time.Since(begun)) {
			f.Lease.Release()
			return nil, context.Cause(ctx)
		}
		if !rated {
			if i := r.Info(); i.FPS != 0 {
				rated = true
				s.mu.Lock()
				s.status.Info = i
				s.mu.Unlock()
			}
		}
		lost := unreadable == nil && f.Lease == nil
		f.Seq = s.count(lost) // from here on the frame is counted
		switch {
		case lost:
			if s.opts.Lost != nil {
				s.opts.Lost(f)
			}
		case unreadable != nil:
			if s.opts.Unreadable != nil {
				s.opts.Unreadable(f, unreadable.Err)
			}
		default:
			give(s.opts.Frame, f)
		}
	}
}

// give passes a frame to a callback, and releases the frame after a panic.
func give(to func(stream.Frame), f stream.Frame) {
	taken := false
	defer func() {
		if !taken {
			f.Lease.Release()
		}
	}()
	to(f)
	taken = true
}

// count counts a frame and returns the frame's number.
func (s *Source) count(lost bool) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Frames++
	if lost {
		s.status.Lost++
	}
	return s.status.Frames - 1
}

func (s *Source) countSkipped(n uint64) {
	s.mu.Lock()
	s.status.Skipped += n
	s.mu.Unlock()
	if s.opts.Skipped != nil {
		s.opts.Skipped(n)
	}
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
	if !errors.As(err, &own) { // the text of a *video.Error has no passwords
		err = stream.Errorf(stream.CodeOf(err), "", "%s", video.Redact(err.Error()))
	}
	s.mu.Lock()
	s.status.Kind, s.status.Err = kind, err
	s.mu.Unlock()
	if s.opts.Failed != nil {
		s.opts.Failed(err)
	}
}
