package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"millrace/internal/child"
)

// DecoderOptions configure a Decoder. Codec, Width and Height are required.
type DecoderOptions struct {
	Codec         string // H264, VP8, VP9 or AV1
	Width, Height int    // pixels, by the first chunk
	// Need is the size to which ffmpeg scales frames. The zero Need keeps the decoded size: Width x Height unless the
	// chunk's header is wrong.
	Need TargetSize
	// MaxPixels bounds each picture, also the pictures of later chunks; 0 = no limit.
	MaxPixels int
	// Hardware, if set, decodes the video where possible. See HardwareFailed.
	Hardware *Hardware
	// Sandbox confines ffmpeg, unless Hardware is used: no access to files or network. child.SandboxError reports
	// whether the machine supports the sandbox.
	Sandbox bool
	// Nice is how much less important than this process ffmpeg is to the scheduler (nice(2)).
	Nice int
	// MaxTime and Used are as for a Reader.
	MaxTime time.Duration
	Used    func(time.Duration)
	// Log, if set, gets each line of ffmpeg's messages. Log must not block.
	Log func(line string)
	// FFmpeg is the program; "" means "ffmpeg" in PATH.
	FFmpeg string

	space uint64 // of ffmpeg's addresses, for tests; 0 = by the size
}

// fourccs are the codecs' names in IVF. ffmpeg reads IVF chunk by chunk, and writes a frame without waiting for the
// next chunk.
var fourccs = map[string]string{H264: "H264", VP8: "VP80", VP9: "VP90", AV1: "AV01"}

// ivfTick is the time base of IVF timestamps: 1/1000 s. The timestamps hold the chunks' numbers.
const ivfTick = 1000

// Decoder decodes chunks of inter-coded video into NV12 frames, with one ffmpeg per Decoder. Chunks are numbered from
// 0, and each frame has the number of its chunk; an undecodable chunk has no frame. Chunks must come in presentation
// order, without B-frames.
//
// Write is for one goroutine, Start and Next for another; SetDeadline and Close may be called by any goroutine.
type Decoder struct {
	// Width and Height are the size of frames in pixels, valid after Start.
	Width, Height int
	// SourceWidth and SourceHeight are the size of the picture before scaling; both 0 when frames are not scaled.
	SourceWidth, SourceHeight int

	codec     string
	maxPixels int
	ffmpeg    *child.Process
	nut       *nutReader
	waiting   *waiting
	next      uint64 // number of the next chunk
	size      int    // of a frame
	last      int64  // number of the newest frame
	head      [12]byte
	parts     [][]byte // of a Write, reused

	device         *Hardware
	hardware       string // method of decoding; "" is software
	hardwareFailed bool
}

// NewDecoder starts ffmpeg. The end of ctx, at any time, stops the Decoder. The error is an *Error, the error of ctx,
// or an error about the options. After success the caller must Close.
func NewDecoder(ctx context.Context, o DecoderOptions) (*Decoder, error) {
	fourcc, ok := fourccs[o.Codec]
	switch {
	case !ok:
		return nil, fmt.Errorf("video: DecoderOptions.Codec is %q; want h264, vp8, vp9 or av1", o.Codec)
	case o.Width < 1 || o.Width > maxSide || o.Height < 1 || o.Height > maxSide:
		return nil, fmt.Errorf("video: DecoderOptions has a picture of %d x %d pixels; want 1 to %d a side", o.Width,
			o.Height, maxSide)
	case o.MaxPixels > 0 && o.Width*o.Height > o.MaxPixels:
		return nil, &Error{Kind: TooLarge, URL: o.Codec, Detail: tooLarge(o.Width, o.Height)}
	case o.FFmpeg == "":
		o.FFmpeg = "ffmpeg"
	}
	red := newRedactor("")
	w, h := o.Need.In(o.Width, o.Height)
	method := o.Hardware.method(ctx)
	limits := ffmpegLimits(o.Width*o.Height, method)
	limits.AddressSpace, limits.Nice = cmp.Or(o.space, limits.AddressSpace), o.Nice
	var sandbox *child.Sandbox
	if o.Sandbox && method == "" {
		sandbox = NewSandbox(o.FFmpeg)
	}
	p, err := child.Start(ctx, child.Spec{
		Limits: limits, Sandbox: sandbox,
		Path: o.FFmpeg, Args: o.args(method), Env: Environment(), Grace: stopGrace, Stdin: true,
		PipeSize: pipeSize(&Options{Format: NV12}, w, h), OnStderr: logger(o.Log, red),
	})
	if err != nil {
		return nil, source{}.startError(o.FFmpeg, err)
	}
	waiting := newWaiting(p, o.MaxTime, 0, o.Used)
	d := &Decoder{codec: o.Codec, maxPixels: o.MaxPixels, ffmpeg: p, nut: newNutReader(waiting), waiting: waiting,
		last: -1, device: o.Hardware, hardware: method}
	if w != o.Width || h != o.Height {
		d.SourceWidth, d.SourceHeight = o.Width, o.Height
	}
	head := appendIVFHeader(nil, fourcc, o.Width, o.Height, ivfTick)
	if err := p.Write(head); err != nil { // the pipe has room: writing fails only when ffmpeg has ended
		_ = d.Close()
		return nil, d.fail(err)
	}
	return d, nil
}

// args is the command line. One thread decodes and one thread encodes: each further thread would delay a frame.
func (o *DecoderOptions) args(hardware string) []string {
	args := []string{"-nostdin", "-hide_banner", "-nostats", "-loglevel", "warning", "-protocol_whitelist", "pipe",
		"-format_whitelist", "ivf", "-codec_whitelist", chunkDecoders[o.Codec]}
	if o.MaxPixels > 0 {
		// Codecs pad pictures, so Start checks the exact size. -max_pixels bounds ffmpeg's allocation before Start.
		args = append(args, "-max_pixels", fmt.Sprint(min(2*o.MaxPixels+1<<16, math.MaxInt32)))
	}
	filter := "scale=" + toBT601
	if w, h := o.Need.In(o.Width, o.Height); w != o.Width || h != o.Height {
		filter = fmt.Sprintf("scale=w=%d:h=%d:flags=area:%s", w, h, toBT601)
	}
	args = append(args, hardwareArgs(hardware)...)
	return append(args, "-threads", "1", "-probesize", "32", "-analyzeduration", "0", "-f", "ivf", "-i", "pipe:0",
		"-map", "0:v:0", "-fps_mode", "passthrough", "-copyts", "-filter_threads", "1",
		// Convert from the frame's own matrix and range to BT.601 limited range, the meaning of NV12 here.
		"-vf", filter,
		"-c:v", "rawvideo", "-pix_fmt", "nv12", "-threads", "1", "-enc_time_base", "-1", "-flush_packets", "1", "-f",
		"nut", "pipe:1")
}

// Write writes one chunk to ffmpeg, and blocks while ffmpeg is busy with earlier chunks. An error means that ffmpeg
// has ended: Next returns the reason.
func (d *Decoder) Write(parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if uint64(n) > math.MaxInt32 {
		return fmt.Errorf("video: a chunk of %d bytes", n)
	}
	putIVFFrame(d.head[:], n, d.next)
	d.next++
	d.parts = append(append(d.parts[:0], d.head[:]), parts...)
	defer clear(d.parts)              // the caller's memory
	return d.ffmpeg.Write(d.parts...) // with one system call: ffmpeg wakes up once
}

// Finish ends the input: Next returns the remaining frames, then io.EOF.
func (d *Decoder) Finish() { _ = d.ffmpeg.Stdin.Close() }

// SetDeadline sets the deadline of Next, also of a call in progress; the zero time removes the deadline. After the
// deadline Next always fails with os.ErrDeadlineExceeded. The deadline is extended by up to 50 s while ffmpeg waits
// for a processor.
func (d *Decoder) SetDeadline(t time.Time) { d.waiting.setDeadline(t) }

// Start waits for the first frame and sets Width and Height.
func (d *Decoder) Start() error {
	err := d.waiting.until(d.nut)
	if err == nil {
		err = d.nut.start()
	}
	if err != nil {
		return d.fail(err)
	}
	d.Width, d.Height = d.nut.width, d.nut.height
	d.size = NV12.size(d.Width, d.Height)
	if d.maxPixels > 0 && d.Width*d.Height > d.maxPixels { // of scaled frames, this was checked before
		return &Error{Kind: TooLarge, URL: d.codec, Detail: tooLarge(d.Width, d.Height)}
	}
	return nil
}

// FrameSize is the size of a frame in bytes.
func (d *Decoder) FrameSize() int { return d.size }

// Next waits for a frame and returns its chunk's number. The caller must then read the frame with Frame or discard
// the frame with Skip. The error is io.EOF at the end, else os.ErrDeadlineExceeded or an *Error.
func (d *Decoder) Next() (chunk uint64, err error) {
	if err := d.waiting.until(d.nut); err != nil {
		return 0, d.fail(err)
	}
	pts, prefix, size, err := d.nut.next()
	if err != nil {
		return 0, d.fail(err)
	}
	d.waiting.frame()
	if len(prefix)+size != d.size || len(prefix) > 0 {
		return 0, &Error{Kind: Unsupported, URL: d.codec, Detail: fmt.Sprintf("a frame of %d bytes after frames of %d",
			len(prefix)+size, d.size)}
	}
	n := int64((pts + time.Second/ivfTick/2) / (time.Second / ivfTick))
	if n <= d.last {
		return 0, &Error{Kind: Unsupported, URL: d.codec,
			Detail: "its frames are not in presentation order: encode without B-frames"}
	}
	d.last = n
	return uint64(n), nil
}

// Frame reads the frame announced by the last Next into dst; len(dst) must be FrameSize.
func (d *Decoder) Frame(dst []byte) error {
	if _, err := io.ReadFull(d.nut.r, dst[:d.size]); err != nil {
		return d.fail(unexpectedEOF(err))
	}
	return nil
}

// Skip discards the frame of the last Next.
func (d *Decoder) Skip() error {
	if _, err := d.nut.r.Discard(d.size); err != nil {
		return d.fail(unexpectedEOF(err))
	}
	return nil
}

// HardwareFailed reports whether Start or Next failed because of the device; a new Decoder then uses software. Only
// the goroutine of Start and Next may call HardwareFailed.
func (d *Decoder) HardwareFailed() bool { return d.hardwareFailed }

// Close stops ffmpeg and waits for its exit.
func (d *Decoder) Close() error {
	_ = d.ffmpeg.Stop(stopGrace)
	d.waiting.report()
	return nil
}

// fail returns the reason why reading failed.
func (d *Decoder) fail(err error) error {
	switch {
	case (err == errProcessorTime || errors.Is(err, os.ErrDeadlineExceeded)) && d.ffmpeg.NearLimit():
		return &Error{Kind: TooLarge, URL: d.codec, Detail: needsMemory, Err: err}
	case err == errProcessorTime:
		return &Error{Kind: TooSlow, URL: d.codec, Detail: d.waiting.processorTimeDetail(), Err: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		d.hardwareFailed = d.device.detectHang(d.hardware, d.ffmpeg)
		return err
	case errors.Is(err, errNut):
		return &Error{Kind: Unsupported, URL: d.codec, Detail: "ffmpeg's output cannot be read: " + err.Error(),
			Err: err}
	}
	exit := waitForExit(d.ffmpeg)
	if exit == nil && err == io.EOF && d.last >= 0 {
		return io.EOF
	}
	stderr, red := d.ffmpeg.Stderr(), newRedactor("")
	d.hardwareFailed = d.device.failed(d.hardware, stderr, red, exit)
	kind, detail := explain(stderr, "")
	switch {
	case killedFromOutside(exit):
		kind = Killed
	case kind != TooLarge:
		kind = Unsupported
	}
	return &Error{Kind: kind, URL: d.codec, Detail: detail, Output: lastLines(stderr, red), Err: exit}
}
