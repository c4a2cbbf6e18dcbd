package video

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/child"
)

const (
	// stopGrace is how long ffmpeg may take to end. Its pipe is closed before, so that it need not wait.
	stopGrace = 500 * time.Millisecond
	// exitTimeout is how long ffmpeg may take from closing its output to its exit.
	exitTimeout = 5 * time.Second
)

// Frame is one frame.
type Frame struct {
	// Index counts from 0.
	Index int
	// PTS is the presentation time on the source's own clock, from 0 near its beginning. It is exact: the container's
	// time, not a count of frames. With Loop it continues to rise.
	PTS time.Duration
	// Data is the frame's data, in the memory given to Next (or, for a JPEG that did not fit, in new memory).
	Data []byte
}

// Reader reads frames of one source. Next is for one goroutine at a time; Close and Info may be called by any.
type Reader struct {
	opts    Options
	scheme  string
	src     source
	info    Info
	ctx     context.Context
	cancel  context.CancelCauseFunc // called with an error of the route, or by Close
	from    *route
	ffmpeg  *child.Process
	program *child.Process // the program of an exec source
	nut     *nutReader
	size    int // bytes of a raw frame; 0 for JPEG

	index   int
	lastPTS time.Duration
	first   bool  // the first frame has not arrived: StartTimeout applies
	err     error // what Next returns from now on

	cutShort  atomic.Bool
	closed    atomic.Bool
	closeOnce sync.Once
}

// Open opens a source and waits for its first frame. ctx governs the whole life of the Reader: when it ends,
// ffmpeg is stopped and Next returns ctx's error. The error is an *Error, ctx's, or one about the options. After success
// the caller must Close.
func Open(ctx context.Context, o Options) (*Reader, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	src := newSource(o.URL)
	scheme, target, err := parseSource(o.URL)
	if err != nil {
		return nil, src.fail(Unsupported, err.Error(), err)
	}
	deadline := time.Now().Add(o.StartTimeout)
	r := &Reader{opts: o, scheme: scheme, first: true, info: Info{HasVideo: true}}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.from, err = newRoute(r.ctx, &o, &src, scheme, target, r.cancel)
	r.src = src
	if err == nil && (scheme == SchemeFile || isNetwork(scheme) && !o.NoProbe) {
		r.info, err = src.probe(r.ctx, &o, r.from, deadline)
	}
	if err == nil {
		err = r.launch()
	}
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	_ = r.ffmpeg.Stdout.SetReadDeadline(deadline)
	if err := r.nut.start(); err != nil {
		err = r.failure(err)
		if err == io.EOF {
			err = src.fail(NotVideo, "ffmpeg found no frame in it", nil)
		}
		_ = r.Close()
		return nil, err
	}
	r.info.Width, r.info.Height = r.nut.width, r.nut.height
	if o.FPS > 0 {
		r.info.FPS = min(r.info.FPS, o.FPS)
	}
	if o.Encoded == "" {
		r.size = o.Format.size(r.info.Width, r.info.Height)
	}
	return r, nil
}

// launch starts ffmpeg, and the program of an exec source.
func (r *Reader) launch() error {
	o := &r.opts
	w, h := o.Width, o.Height
	if w == 0 && h == 0 {
		// Fix the size, so that frames are scaled when the source changes its size.
		w, h = r.info.Width, r.info.Height
	}
	spec := child.Spec{
		Path: o.FFmpeg, Args: o.ffmpegArgs(r.from, w, h),
		PipeSize: pipeSize(o, w, h),
		OnStderr: logger(o.Log, r.src.red, &r.cutShort),
	}
	if r.scheme == SchemeExec {
		words, err := splitCommand(r.from.target)
		if err != nil {
			return r.src.fail(Unsupported, err.Error(), err)
		}
		r.program, err = child.Start(r.ctx, child.Spec{Path: words[0], Args: words[1:], Grace: stopGrace, PipeSize: child.MaxPipeSize, OnStderr: logger(o.Log, r.src.red, nil)})
		if err != nil {
			if r.ctx.Err() != nil {
				return context.Cause(r.ctx)
			}
			return r.src.fail(NotFound, "the program cannot be started: "+r.src.red.text(err.Error()), err)
		}
		spec.StdinFile = r.program.Stdout
	}
	p, err := r.from.start(r.ctx, o, r.src, spec)
	if r.program != nil {
		// ffmpeg has the pipe now. With this end closed, the program is ended by SIGPIPE when ffmpeg has ended.
		_ = r.program.Stdout.Close()
	}
	if err != nil {
		return err
	}
	r.ffmpeg, r.nut = p, newNutReader(p.Stdout)
	return nil
}

// pipeSize is about one raw frame: a larger pipe would only hold older frames.
func pipeSize(o *Options, w, h int) int {
	size := 256 << 10
	if o.Encoded == "" && w > 0 && h > 0 {
		for size = 64 << 10; size < o.Format.size(w, h) && size < child.MaxPipeSize; size *= 2 {
		}
	}
	return size
}

// Info describes the source and the frames.
func (r *Reader) Info() Info { return r.info }

// FrameSize is the number of bytes that Next needs for a raw frame; 0 for JPEG, whose size varies.
func (r *Reader) FrameSize() int { return r.size }

// Next reads exactly one frame into dst and waits for it, at most StallTimeout. A raw frame needs FrameSize bytes; too
// short a dst is an error and consumes no frame. A JPEG uses dst up to its capacity, or new memory when it does not fit:
// pass the last Frame.Data to reuse it.
//
// At the end of the video the error is io.EOF; after Close, ErrClosed; after the context's end, its error; else an
// *Error. Every error but the one about dst is final.
func (r *Reader) Next(dst []byte) (Frame, error) {
	switch {
	case r.err != nil:
		return Frame{}, r.err
	case r.closed.Load():
		return Frame{}, ErrClosed
	case len(dst) < r.size:
		return Frame{}, fmt.Errorf("video: Next got %d bytes of memory; a frame of %d x %d %s needs %d", len(dst), r.info.Width, r.info.Height, r.opts.Format, r.size)
	}
	switch {
	case r.first: // Open's deadline still applies
		r.first = false
	case r.opts.StallTimeout > 0:
		_ = r.ffmpeg.Stdout.SetReadDeadline(time.Now().Add(r.opts.StallTimeout))
	default:
		_ = r.ffmpeg.Stdout.SetReadDeadline(time.Time{})
	}
	f, err := r.read(dst)
	if err != nil {
		r.err = r.failure(err)
		return Frame{}, r.err
	}
	return f, nil
}

func (r *Reader) read(dst []byte) (Frame, error) {
	pts, prefix, size, err := r.nut.next()
	if err != nil {
		return Frame{}, err
	}
	total := len(prefix) + size
	if r.size > 0 {
		if total != r.size {
			return Frame{}, r.src.fail(Unsupported, fmt.Sprintf("the picture changed its size: a frame of %d bytes after frames of %d", total, r.size), nil)
		}
		dst = dst[:r.size]
	} else {
		if total > r.opts.MaxFrameBytes {
			return Frame{}, r.src.fail(Unsupported, fmt.Sprintf("a JPEG of %d bytes; Options.MaxFrameBytes allows %d", total, r.opts.MaxFrameBytes), nil)
		}
		if cap(dst) < total {
			dst = make([]byte, total, total+total/4)
		}
		dst = dst[:total]
	}
	copy(dst, prefix)
	if _, err := io.ReadFull(r.nut.r, dst[len(prefix):]); err != nil {
		return Frame{}, unexpectedEOF(err)
	}
	if r.size == 0 && !wholeJPEG(dst) {
		return Frame{}, r.src.fail(EndedEarly, "ffmpeg wrote an incomplete JPEG", nil)
	}
	f := Frame{Index: r.index, PTS: pts, Data: dst}
	r.index++
	r.lastPTS = pts
	return f, nil
}

// wholeJPEG reports whether b begins and ends with the markers of a JPEG.
func wholeJPEG(b []byte) bool {
	n := len(b)
	return n >= 4 && b[0] == 0xFF && b[1] == 0xD8 && b[n-2] == 0xFF && b[n-1] == 0xD9
}

// Close stops ffmpeg, waits until it has ended, and frees everything; a Next in progress returns ErrClosed. It is
// idempotent and always returns nil.
func (r *Reader) Close() error {
	r.closed.Store(true)
	r.closeOnce.Do(func() {
		if r.ffmpeg != nil {
			_ = r.ffmpeg.Stop(stopGrace)
		}
		if r.program != nil {
			_ = r.program.Stop(stopGrace)
		}
		r.from.close()
		r.cancel(nil)
	})
	return nil
}

// failure returns why reading from ffmpeg failed; io.EOF is a regular end.
func (r *Reader) failure(err error) error {
	if err = r.classify(err); r.scheme == SchemeV4L2 {
		return r.cameraError(err)
	}
	return err
}

func (r *Reader) classify(err error) error {
	var own *Error
	switch {
	case r.closed.Load():
		return ErrClosed
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	case errors.As(err, &own):
		return own
	case errors.Is(err, os.ErrDeadlineExceeded) && r.index == 0:
		return r.src.fail(Timeout, r.waited(r.opts.StartTimeout), err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r.src.fail(Stalled, r.waited(r.opts.StallTimeout), err)
	case errors.Is(err, errNut):
		return r.src.fail(Unsupported, "ffmpeg's output cannot be read: "+err.Error(), err)
	}
	exit := waitForExit(r.ffmpeg)
	switch {
	case r.closed.Load():
		return ErrClosed
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	}
	stderr := r.ffmpeg.Stderr()
	detail := detailFrom(stderr, r.src.red)
	if why := r.programError(); why != "" {
		return r.src.fail(EndedEarly, "after "+r.progress()+": "+why, exit)
	}
	switch {
	case killedFromOutside(exit):
		return r.src.fail(Killed, "after "+r.progress(), exit)
	case exit == nil && err == io.EOF && r.index == 0 && !r.cutShort.Load():
		return io.EOF
	case exit == nil && err == io.EOF && !r.truncated(stderr):
		return io.EOF
	case r.index > 0 || exit == nil:
		return r.src.fail(EndedEarly, "after "+r.progress()+joined(detail), exit)
	}
	kind, ok := kindFromText(stderr)
	if !ok {
		kind = Unsupported
	}
	return r.src.fail(kind, detail, exit)
}

// programError returns how the program of an exec source failed; "" if it did not, or still runs.
func (r *Reader) programError() string {
	if r.program == nil {
		return ""
	}
	select {
	case <-r.program.Done():
	default:
		return ""
	}
	var exit *child.ExitError
	if err := r.program.Wait(); !errors.As(err, &exit) || exit.Signal == syscall.SIGPIPE {
		return "" // SIGPIPE is a consequence of ffmpeg's end
	}
	return r.src.red.text(exit.Error())
}

func (r *Reader) waited(d time.Duration) string {
	return fmt.Sprintf("waited %v after %s", d, r.progress()) + joined(detailFrom(r.ffmpeg.Stderr(), r.src.red))
}

func (r *Reader) progress() string {
	if r.index == 1 {
		return "1 frame"
	}
	return fmt.Sprintf("%d frames, %v", r.index, r.lastPTS.Round(time.Millisecond))
}

func joined(detail string) string {
	if detail == "" {
		return ""
	}
	return ": " + detail
}

// truncated reports whether a video was truncated: ffmpeg ends with status 0 in that case too. It was when ffmpeg
// reported it, or when ffmpeg reported anything and more than a second is missing.
func (r *Reader) truncated(stderr string) bool {
	if r.cutShort.Load() {
		return true
	}
	missing := r.info.videoLength - r.lastPTS
	return r.info.videoLength > 0 && missing > time.Second+r.interval() && stderr != "" && len(r.opts.InputArgs) == 0
}

// interval is twice the average time between frames.
func (r *Reader) interval() time.Duration {
	if r.info.FPS <= 0 {
		return time.Second
	}
	return time.Duration(2 / r.info.FPS * float64(time.Second))
}

// waitForExit waits for a child that has closed its output, and stops it after exitTimeout.
func waitForExit(p *child.Process) error {
	t := time.NewTimer(exitTimeout)
	defer t.Stop()
	select {
	case <-p.Done():
		return p.Wait()
	case <-t.C:
		return p.Stop(stopGrace)
	}
}

// killedFromOutside reports whether a signal ended the child that Stop or a context did not send.
func killedFromOutside(exit error) bool {
	var e *child.ExitError
	return errors.As(exit, &e) && e.Signal != 0 && !e.Stopped
}

// environment is that of this process, with variables that make ffmpeg's messages plain English, and more.
func environment(more ...string) []string {
	more = append([]string{"AV_LOG_FORCE_NOCOLOR=1", "LC_ALL=C"}, more...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { // of two equal names the first would be used
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(more, func(m string) bool { return strings.HasPrefix(m, name+"=") })
	})
	return append(env, more...)
}

// logger returns the handler of ffmpeg's messages, nil where none is needed.
func logger(log func(string), red redactor, cut *atomic.Bool) func([]byte) {
	if log == nil && cut == nil {
		return nil
	}
	return func(line []byte) {
		s := string(line)
		if cut != nil && reportsCutShort(s) {
			cut.Store(true)
		}
		if log != nil {
			log(red.text(component.ReplaceAllString(s, "")))
		}
	}
}
