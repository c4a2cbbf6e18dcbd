package video

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/child"
	"millrace/internal/confine"
)

const (
	// stopGrace is how long ffmpeg may take to end. The pipe is closed first, so ffmpeg does not block on writing.
	stopGrace = 500 * time.Millisecond
	// describeTimeout bounds the wait for ffmpeg's messages about the input. The messages precede the first frame.
	describeTimeout = 2 * time.Second
	// exitTimeout is how long ffmpeg may take from closing its output to its exit.
	exitTimeout = 5 * time.Second
)

// Frame is a frame.
type Frame struct {
	// Index counts from 0.
	Index int
	// PTS is the presentation time on the source's own clock, from 0 near the beginning. PTS is exact: the
	// container's time, not a count of frames. With Loop, PTS continues to rise.
	PTS time.Duration
	// Width and Height are the frame's size in pixels: the size in Info, or less by Options.Needs.
	Width, Height int
	// Data is the frame's data, in the memory given to Next (or in new memory, for a frame too large for the given
	// memory).
	Data []byte
}

// Reader reads frames of a source. Next, Wait and Fill must not run concurrently; Close, Info and Resize may be
// called by any goroutine.
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
	said    *messages
	nut     *nutReader
	waiting *waiting
	packets *packets // nil without Options.Packets
	// nil with DecodeAll
	pictures *pictureCount
	size     int // bytes of a raw frame of full size; 0 for JPEG
	scale    resizer
	unsized  bool   // ffmpeg was started without a size
	rebuilt  uint32 // of messages, when the resizer was last told the size of the source
	prefix   []byte // first bytes of the last Wait's frame, number of bytes after the prefix, and time
	rest     int
	pts      time.Duration
	now      size    // of the last Wait's frame
	matrix   *matrix // changes NV12 frames to BT.601; nil = they are

	hardware       string // method of decoding; "" is software
	hardwareFailed bool

	index   int
	lastPTS time.Duration
	late    bool
	fresh   *freshness // nil unless the source is live
	opened  time.Time
	origin  time.Duration // time of the first frame of an RTSP source; may be far from 0
	first   bool          // the first frame has not arrived: StartTimeout applies
	err     error         // error of all further calls of Next

	measured atomic.Uint64 // frame rate, as the bits of a float64; see measure
	rateAt   int           // index of the first frame with a certain time
	rateFrom time.Duration // time of frame rateAt

	closed    atomic.Bool
	closeOnce sync.Once
}

// Open opens a source and waits for the first frame. The end of ctx, at any time, stops ffmpeg, and Next then returns
// ctx's error. The error of Open is an *Error, ctx's, or an error about the options. After success the caller must
// Close.
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
	r := &Reader{opts: o, scheme: scheme, first: true, info: Info{HasVideo: true}, hardware: o.Hardware.method(ctx)}
	if err = r.open(ctx, src, target); err != nil && r.hardwareFailed {
		r = &Reader{opts: o, scheme: scheme, first: true, info: Info{HasVideo: true}}
		err = r.open(ctx, src, target)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// open opens the source, and closes r on failure.
func (r *Reader) open(ctx context.Context, src source, target string) (err error) {
	o := &r.opts
	deadline := time.Now().Add(o.StartTimeout)
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.from, err = newRoute(r.ctx, o, &src, r.scheme, target, r.cancel)
	r.src = src
	if err == nil && r.scheme == SchemeFile {
		r.info, err = src.probe(r.ctx, o, r.from, deadline)
	}
	if err == nil {
		err = r.refuseLarge(r.info.SourceWidth, r.info.SourceHeight)
	}
	var full, first size
	if err == nil {
		full, first, err = r.launch(deadline)
	}
	if err != nil {
		_ = r.Close()
		return err
	}
	r.waiting.setDeadline(deadline)
	if err := r.begin(); err != nil {
		_ = r.Close()
		return err
	}
	if first == (size{}) { // the first frame reveals the unknown size
		full = size{r.nut.width, r.nut.height}
		first, r.unsized = full, true
		if err := r.refuseLarge(full.w, full.h); err != nil {
			_ = r.Close()
			return err
		}
	}
	r.from.recordFirstFrame()
	if r.info.Arrival = r.from.arrival(); o.Poll > 0 {
		r.info.FPS = float64(time.Second) / float64(o.Poll)
	}
	r.info.Width, r.info.Height = full.w, full.h
	r.scale.start(full, first)
	r.Resize(o.Needs)
	if o.FPS > 0 {
		r.info.FPS = min(r.info.FPS, o.FPS)
	}
	if isLive(r.scheme) && r.info.Duration == 0 {
		r.fresh, r.opened = newFreshness(r.info.FPS, r.newer), time.Now()
	}
	if o.Encoded == "" {
		r.size = o.Format.size(r.info.Width, r.info.Height)
	}
	return nil
}

// begin waits until ffmpeg writes frames. ffmpeg's messages then describe sources that were not probed.
func (r *Reader) begin() error {
	err := r.waiting.until(r.nut)
	if err == nil {
		err = r.nut.start()
	}
	if err != nil {
		if err = r.failure(err); err == io.EOF {
			err = r.src.fail(NotVideo, "ffmpeg found no frame in it", nil)
		}
		return err
	}
	if r.scheme == SchemeFile {
		return nil
	}
	// ffmpeg has written its messages before the frames, but on another pipe.
	r.said.waitForSize(describeTimeout, r.ffmpeg.Done())
	if why := r.said.noVideo(); why != "" {
		return r.src.fail(NotVideo, why, nil)
	}
	// a program's output and a device are endless, whatever they declare
	if r.info = r.said.info(); !isNetwork(r.scheme) {
		r.info.Duration, r.info.videoLength = 0, 0
	}
	if r.from.secret && r.rtsp() || r.from.arrival() {
		r.info.FPS = 0 // a guess from a single packet
	}
	return nil
}

// refuseLarge returns an error for a picture larger than Options.MaxPixels.
func (r *Reader) refuseLarge(w, h int) error {
	if r.opts.MaxPixels == 0 || w*h <= r.opts.MaxPixels {
		return nil
	}
	return r.src.fail(TooLarge, tooLarge(w, h), nil)
}

// fullSize returns the size of frames before reduction, for a source of size s; zero if s is zero: the size is then
// unknown before the first frame.
func (o *Options) fullSize(s size) size {
	switch {
	case o.Width > 0 && o.Height > 0:
		return size{o.Width, o.Height}
	case s.w == 0 || s.h == 0:
		return size{}
	// As evenSide.
	case o.Width > 0:
		return size{o.Width, max(2*((o.Width*s.h+s.w)/(2*s.w)), 2)}
	case o.Height > 0:
		return size{max(2*((o.Height*s.w+s.h)/(2*s.h)), 2), o.Height}
	}
	return s
}

// launch starts ffmpeg, and the program of an exec source. full is the size of frames before reduction, first the
// size of the first frame; both are zero if the size is unknown before the first frame.
func (r *Reader) launch(deadline time.Time) (full, first size, err error) {
	o := &r.opts
	full = o.fullSize(size{r.info.Width, r.info.Height})
	w, h := o.Width, o.Height
	if full != (size{}) {
		// Fix the size, so that frames are scaled when the source changes its size.
		first.w, first.h = Largest(full.w, full.h, o.Needs)
		w, h = first.w, first.h
	}
	if r.scheme == SchemeExec {
		if err := r.startProgram(deadline); err != nil {
			return full, first, err
		}
	}
	r.said = newMessages(o.Log, r.src.red)
	r.said.script = r.from.secret && r.rtsp() || r.from.arrival()
	args := o.ffmpegArgs(r.from, r.hardware, w, h)
	var files []*os.File
	if o.Packets != nil {
		if r.packets, err = newPackets(o.Packets); err != nil {
			return full, first, err
		}
		r.packets.waits.Store(r.rtsp())
		args = append(args, packetArgs(r.from.nextDescriptor())...)
		files = append(files, r.packets.out)
	}
	if o.Decode.skipFrame() != "" {
		if r.pictures, err = newPictureCount(); err != nil {
			return full, first, err
		}
		args = append(args, pictureArgs(r.from.nextDescriptor()+len(files))...)
		files = append(files, r.pictures.out)
	}
	spec := child.Spec{
		Path: o.FFmpeg, Args: args, Stdin: o.commands(),
		PipeSize: pipeSize(o, w, h),
		OnStderr: r.said.line, ExtraFiles: files,
	}
	if isNetwork(r.scheme) { // the operator chose the other sources, and files may need several threads
		spec.Limits = ffmpegLimits(o.MaxPixels, r.hardware)
	}
	spec.Limits.Nice = o.Nice
	p, err := r.from.start(r.ctx, o, r.src, spec, o.Sandbox && r.hardware == "") // drivers of devices need more
	if err != nil {
		return full, first, err
	}
	r.ffmpeg, r.waiting = p, newWaiting(p, o.MaxTime, o.FPS, o.Used)
	if r.packets != nil {
		r.packets.start(r.packets.read, o.Log)
	}
	if r.pictures != nil {
		r.pictures.start(r.pictures.read, o.Log)
	}
	r.nut = newNutReader(r.waiting)
	r.waiting.start = startTime(r.scheme, o.StartTimeout)
	r.scale.format, r.scale.grow = o.Format, func(bytes int) { p.GrowPipe(pipeFor(bytes)) }
	if p.Stdin != nil {
		r.scale.commands = p.Stdin
	}
	return full, first, nil
}

// startProgram starts the program of an exec source; a feed passes the program's output to ffmpeg. startProgram waits
// for the first bytes, because they show whether the pictures have times. When ffmpeg has ended, the feed closes the
// pipe, and SIGPIPE ends the program.
func (r *Reader) startProgram(deadline time.Time) error {
	o := &r.opts
	words, err := splitCommand(r.from.target)
	if err != nil {
		return r.src.fail(Unsupported, err.Error(), err)
	}
	program := child.Spec{Path: words[0], Args: words[1:], Grace: stopGrace, PipeSize: child.MaxPipeSize,
		OnStderr: logger(o.Log, r.src.red)}
	o.Programs.Apply(&program, confine.Arguments(&program)...)
	if r.program, err = child.Start(r.ctx, program); err != nil {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		return r.src.fail(NotFound, "the program cannot be started: "+r.src.red.text(err.Error()), err)
	}
	_ = r.program.Stdout.SetReadDeadline(deadline)
	is, out := sniff(r.program.Stdout)
	_ = r.program.Stdout.SetReadDeadline(time.Time{})
	if !time.Now().Before(deadline) {
		return r.src.fail(Timeout, fmt.Sprintf("waited %v for output of the program", o.StartTimeout),
			os.ErrDeadlineExceeded)
	}
	r.from.feed, err = newFeed(r.ctx, is, out, o.MaxFrameBytes)
	return err
}

// Resize changes Options.Needs. Frames have the new size within a few frame intervals, and none is lost.
func (r *Reader) Resize(needs []TargetSize) {
	if r.opts.commands() {
		var to size
		to.w, to.h = Largest(r.info.Width, r.info.Height, needs)
		r.scale.resize(to)
	}
}

// pipeSize is about one raw frame: a larger pipe would only hold older frames.
func pipeSize(o *Options, w, h int) int {
	if o.Encoded == "" && w > 0 && h > 0 {
		return pipeFor(o.Format.size(w, h))
	}
	return 256 << 10
}

func pipeFor(bytes int) int {
	size := 64 << 10
	for size < bytes && size < child.MaxPipeSize {
		size *= 2
	}
	return size
}

// Info describes the source and the frames. A frame rate not declared by the source becomes known rateFrames frames
// after the first frame with a certain time.
func (r *Reader) Info() Info {
	i := r.info
	if i.FPS == 0 {
		i.FPS = math.Float64frombits(r.measured.Load())
	}
	return i
}

// uncertainFrames is the number of frames of an RTSP source ignored in measuring the rate.
const uncertainFrames = 3

// rateFrames is the number of intervals for measuring an undeclared frame rate.
const rateFrames = 10

// measure measures the frame rate of a source that declares no rate, rounded to 0.1.
func (r *Reader) measure(pts time.Duration) {
	switch {
	case r.info.FPS != 0:
	case r.index == r.rateAt:
		r.rateFrom = pts
	case r.index == r.rateAt+rateFrames && pts > r.rateFrom:
		r.measured.Store(math.Float64bits(math.Round(10*rateFrames/(pts-r.rateFrom).Seconds()) / 10))
	}
}

// FrameSize is the number of bytes that Next needs for a raw frame of the size in Info; 0 for JPEG, because sizes
// vary.
func (r *Reader) FrameSize() int { return r.size }

// Next waits for a frame, at most StallTimeout, and reads exactly one frame into dst. A raw frame needs FrameSize
// bytes; a shorter dst is an error and consumes no frame. A JPEG, or a raw frame of a source that has grown, uses dst
// up to its capacity, or new memory when larger than the capacity: pass the last Frame.Data to reuse the memory.
//
// At the end of the video the error is io.EOF; after Close, ErrClosed; after the context's end, the context's error;
// else an *Error. Every error but the error about dst is final.
func (r *Reader) Next(dst []byte) (Frame, error) {
	switch {
	case r.err != nil:
		return Frame{}, r.err
	case r.closed.Load():
		return Frame{}, ErrClosed
	case len(dst) < r.size:
		return Frame{}, fmt.Errorf("video: Next got %d bytes of memory; a frame of %d x %d %s needs %d", len(dst),
			r.info.Width, r.info.Height, r.opts.Format, r.size)
	}
	f, n, err := r.Wait()
	if err != nil {
		return Frame{}, err
	}
	if cap(dst) < n {
		dst = make([]byte, n, n+n/4)
	}
	f.Data = dst[:n]
	return f, r.Fill(f.Data)
}

// Wait waits for a frame, at most StallTimeout, and returns the frame without its data, and the length of the data in
// bytes. The caller must then call Fill. Errors are as for Next.
func (r *Reader) Wait() (f Frame, bytes int, err error) {
	switch {
	case r.err != nil:
		return Frame{}, 0, r.err
	case r.closed.Load():
		return Frame{}, 0, ErrClosed
	case r.first: // Open's deadline still applies
		r.first = false
	case r.opts.StallTimeout > 0:
		r.waiting.setDeadline(time.Now().Add(r.opts.StallTimeout))
	default:
		r.waiting.setDeadline(time.Time{})
	}
	if f, bytes, err = r.wait(); err != nil {
		r.err = r.failure(err)
		return Frame{}, 0, r.err
	}
	return f, bytes, nil
}

func (r *Reader) rtsp() bool { return r.from.rtsp() }

func (r *Reader) wait() (f Frame, bytes int, err error) {
	if err = r.waiting.until(r.nut); err != nil {
		return f, 0, err
	}
	pts, prefix, rest, err := r.nut.next()
	if err != nil {
		return f, 0, err
	}
	r.waiting.frame()
	if r.index == 0 && r.opts.Encoded == "" && r.opts.Format == NV12 {
		r.ffmpeg.ReadStderr() // the message comes on another pipe, but before the frame
		name, ok := r.said.frameMatrix()
		if !ok {
			return f, 0, r.src.fail(Unsupported, "ffmpeg did not name the colour matrix of the frames", nil)
		}
		r.matrix = matrixFrom(name)
	}
	if r.rtsp() {
		// The first frames may have no certain times, see route.startArgs: their distances are assumed.
		if r.index == 0 {
			r.origin, r.rateAt = pts, uncertainFrames
			r.packets.began(pts)
		}
		pts -= r.origin
	}
	if err = r.followSource(); err != nil {
		return f, 0, err
	}
	r.prefix, r.rest, r.pts = prefix, rest, pts
	bytes = len(prefix) + rest
	f = Frame{Index: r.index, PTS: pts, Width: r.info.Width, Height: r.info.Height}
	if r.size == 0 {
		if bytes > r.opts.MaxFrameBytes {
			return f, 0, r.src.fail(Unsupported, fmt.Sprintf("a JPEG of %d bytes; Options.MaxFrameBytes allows %d",
				bytes, r.opts.MaxFrameBytes), nil)
		}
		return f, bytes, nil
	}
	now, ok, err := r.scale.frame(bytes)
	switch {
	case !ok:
		return f, 0, r.src.fail(Unsupported, fmt.Sprintf("the picture changed its size: a frame of %d bytes after "+
			"frames of %d", bytes, r.size), nil)
	case err != nil && r.opts.Log != nil:
		r.opts.Log(err.Error())
	}
	f.Width, f.Height, r.now = now.w, now.h, now
	return f, bytes, nil
}

// followSource refuses a source that has become larger than Options.MaxPixels. If ffmpeg was started without a size,
// because the size was unknown, followSource tells the resizer when ffmpeg has rebuilt its filters after a change of
// the source's size, and fails when the length of a frame no longer determines the frame's size, as after a turn from
// landscape to portrait.
func (r *Reader) followSource() error {
	follow := r.unsized && r.size > 0
	if follow {
		r.ffmpeg.ReadStderr() // the message comes on another pipe, but before the frame
	}
	n := r.said.rebuilt.Load()
	if n == r.rebuilt {
		return nil
	}
	r.rebuilt = n
	source := r.said.latestSize()
	if err := r.refuseLarge(source.w, source.h); err != nil {
		return err
	}
	to := r.opts.fullSize(source)
	if !follow || r.scale.rebuilt(to) {
		return nil
	}
	why := fmt.Sprintf("the picture changed its size to %d x %d pixels", to.w, to.h)
	if r.endless() {
		return r.src.fail(EndedEarly, why+": it is opened again", nil)
	}
	return r.src.fail(Unsupported, why, nil)
}

// endless reports whether the source has no known end, so that reopening repeats nothing.
func (r *Reader) endless() bool { return !r.info.File && r.info.Duration == 0 }

// Fill reads the data of the last Wait's frame into dst; len(dst) must be the length from Wait. Errors are as for
// Next.
func (r *Reader) Fill(dst []byte) error {
	err := r.fill(dst)
	if err != nil {
		r.err = r.failure(err)
	}
	return r.err
}

func (r *Reader) fill(dst []byte) error {
	n := copy(dst, r.prefix)
	if _, err := io.ReadFull(r.nut.r, dst[n:n+r.rest]); err != nil {
		return unexpectedEOF(err)
	}
	if r.size == 0 && !wholeJPEG(dst) {
		return r.src.fail(EndedEarly, "ffmpeg wrote an incomplete JPEG", nil)
	}
	if r.matrix != nil {
		r.matrix.apply(dst, r.now.w, r.now.h)
	}
	r.measure(r.pts)
	if r.fresh != nil { // otherwise frames and packets are read as fast as possible, each through its own pipe
		r.packets.follow(r.pts)
	}
	r.index++
	r.lastPTS = r.pts
	r.late = r.fresh != nil && r.fresh.late(r.pts, time.Since(r.opened))
	return nil
}

// Late reports whether the frame of the last Next or Fill, of a live source, is late: a newer frame is ready. Late
// frames come at the beginning, and after a pause of the source. Only the goroutine of Next may call Late.
func (r *Reader) Late() bool { return r.late }

// newer waits for the beginning of a frame.
func (r *Reader) newer(d time.Duration) bool {
	_ = r.ffmpeg.Stdout.SetReadDeadline(time.Now().Add(d)) // each Next sets a new deadline
	_, err := r.nut.r.Peek(1)
	return err == nil
}

// wholeJPEG reports whether b begins and ends with the markers of a JPEG.
func wholeJPEG(b []byte) bool {
	n := len(b)
	return n >= 4 && b[0] == 0xFF && b[1] == 0xD8 && b[n-2] == 0xFF && b[n-1] == 0xD9
}

// Close stops ffmpeg, waits for its exit, and frees everything; a Next in progress returns ErrClosed. Close is
// idempotent and always returns nil.
func (r *Reader) Close() error {
	r.closed.Store(true)
	r.closeOnce.Do(func() {
		if r.ffmpeg != nil {
			_ = r.ffmpeg.Stop(stopGrace)
			r.waiting.report()
		}
		if r.program != nil {
			_ = r.program.Stop(stopGrace)
		}
		if r.packets != nil {
			r.packets.close()
		}
		if r.pictures != nil {
			r.pictures.close()
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
	case (err == errProcessorTime || errors.Is(err, os.ErrDeadlineExceeded)) && r.ffmpeg.NearLimit():
		return r.src.fail(TooLarge, needsMemory, err)
	case err == errProcessorTime:
		return r.src.fail(TooSlow, r.waiting.processorTimeDetail(), err)
	case errors.Is(err, os.ErrDeadlineExceeded) && r.index == 0:
		r.hardwareFailed = r.opts.Hardware.detectHang(r.hardware, r.ffmpeg)
		return r.src.failAfter(r.said.warnings(), Timeout, r.waited(r.opts.StartTimeout), err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.hardwareFailed = r.opts.Hardware.detectHang(r.hardware, r.ffmpeg)
		return r.src.failAfter(r.said.warnings(), Stalled, r.waited(r.opts.StallTimeout), err)
	case errors.Is(err, errNut):
		return r.src.fail(Unsupported, "ffmpeg's output cannot be read: "+err.Error(), err)
	}
	exit := waitForExit(r.ffmpeg)
	switch {
	case r.closed.Load():
		return ErrClosed
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	case r.pictures != nil:
		r.pictures.close()
		r.pictures.over = true
	}
	stderr := r.said.warnings()
	program := r.programError()
	if program == nil {
		if err := r.from.feed.reason(r.src, r.progress()); err != nil {
			return err
		}
	}
	r.hardwareFailed = r.opts.Hardware.failed(r.hardware, stderr, r.src.red, exit)
	if program != nil {
		return r.src.failAfter(program.LastLines, EndedEarly, "after "+r.progress()+": the program ended: "+
			program.Description(), exit)
	}
	switch {
	case killedFromOutside(exit):
		return r.src.failAfter(stderr, Killed, "after "+r.progress(), exit)
	case exit == nil && err == io.EOF && r.index == 0 && !r.said.cutShort():
		return io.EOF
	case exit == nil && err == io.EOF && !r.truncated(stderr):
		return io.EOF
	case r.index > 0 || exit == nil:
		return r.src.failAfter(stderr, EndedEarly, "after "+r.progress()+joined(endOf(lastLines(stderr, r.src.red))),
			exit)
	}
	if why := r.said.noVideo(); why != "" {
		return r.src.fail(NotVideo, why, exit)
	}
	kind, detail := explain(stderr, "")
	return r.src.failAfter(stderr, kind, detail, exit)
}

// programError returns the failure of the program of an exec source; nil after success or while the program runs.
func (r *Reader) programError() *child.ExitError {
	if r.program == nil {
		return nil
	}
	select {
	case <-r.program.Done():
	default:
		return nil
	}
	var exit *child.ExitError
	if err := r.program.Wait(); !errors.As(err, &exit) || exit.Signal == syscall.SIGPIPE {
		return nil // SIGPIPE is a consequence of ffmpeg's end
	}
	return exit
}

// waited is the detail of the error after the time-out d.
func (r *Reader) waited(d time.Duration) string {
	if busy := r.waiting.extension(); busy > 0 {
		return fmt.Sprintf("waited %v after %s, because ffmpeg waited for a processor", d+busy, r.progress())
	}
	return fmt.Sprintf("waited %v after %s", d, r.progress())
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

// truncated reports whether a video was truncated; ffmpeg's exit status is then 0 too. The evidence is ffmpeg's
// message about truncation, or any warning of ffmpeg when more than a second of the video is missing.
func (r *Reader) truncated(stderr string) bool {
	if r.said.cutShort() {
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

// waitForExit waits for a child with closed output, and stops the child after exitTimeout.
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

// killedFromOutside reports whether a signal not sent by Stop or a context ended the child.
func killedFromOutside(exit error) bool {
	var e *child.ExitError
	return errors.As(exit, &e) && e.Signal != 0 && !e.Stopped
}

// logger returns the handler of messages of ffprobe and other programs, nil if none is needed.
func logger(log func(string), red redactor) func([]byte) {
	if log == nil {
		return nil
	}
	return func(line []byte) { log(red.text(component.ReplaceAllString(namesRefused(string(line)), ""))) }
}
