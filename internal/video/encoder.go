package video

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"syscall"
	"time"

	"millrace/internal/child"
)

const (
	// GroupLength is the time from key frame to key frame of an Encoder.
	GroupLength = time.Second
	// encodeTimeout bounds the encoding of one picture. The first picture includes the start of ffmpeg.
	encodeTimeout = 10 * time.Second
	// maxEncodedPixels bounds the encoded pictures; larger pictures are scaled down. Few players decode more.
	maxEncodedPixels = 4096 * 2304
	// bitsPerPixel bounds the rate of a video in software: bits for each pixel of 30 pictures.
	bitsPerPixel     = 6
	minBits, maxBits = 500_000, 20_000_000
)

// EncoderOptions configure an Encoder. Width and Height are required.
type EncoderOptions struct {
	Width, Height int
	// Hardware, if set, encodes the video where possible.
	Hardware *Hardware
	// Sandbox confines ffmpeg, unless Hardware is used: no access to files or network.
	Sandbox bool
	// Log, if set, gets each line of ffmpeg's messages. Log must not block.
	Log func(line string)
	// FFmpeg is the program; "" means "ffmpeg" in PATH.
	FFmpeg string
}

// Encoder encodes pictures to H.264 with one ffmpeg, and returns the fragment of a picture before the next picture is
// written: no picture waits in the Encoder. The methods are for one goroutine.
type Encoder struct {
	// Name is ffmpeg's name of the encoder.
	Name string

	o      EncoderOptions
	width  int // of the encoded pictures
	height int
	method string // of hardware, "" is software
	ffmpeg *child.Process
	out    *bufio.Reader
	header *MP4Header
	began  bool
	first  time.Duration // the first picture's time
	last   int64         // the newest picture's time in ticks
	length int64
	number uint32 // of the newest fragment
	data   []byte
	tag    []byte
}

// NewEncoder starts ffmpeg. The end of ctx, at any time, stops the Encoder. After success the caller must Close.
func NewEncoder(ctx context.Context, o EncoderOptions) (*Encoder, error) {
	return newEncoder(ctx, o, o.Hardware.encoding(ctx))
}

func newEncoder(ctx context.Context, o EncoderOptions, method string) (*Encoder, error) {
	if o.FFmpeg == "" {
		o.FFmpeg = "ffmpeg"
	}
	if o.Width < 1 || o.Width > maxSide || o.Height < 1 || o.Height > maxSide {
		return nil, fmt.Errorf("video: EncoderOptions has a picture of %d x %d pixels; want 1 to %d a side", o.Width,
			o.Height, maxSide)
	}
	e := &Encoder{o: o, method: method, Name: hardwareEncoders[method].name}
	e.width, e.height = encodedSize(o.Width, o.Height)
	limits := ffmpegLimits(o.Width*o.Height, method)
	limits.Nice = ClientNice
	spec := child.Spec{Path: o.FFmpeg, Args: e.args(), Env: Environment(), Grace: stopGrace, Stdin: true,
		Limits: limits, OnStderr: logger(o.Log, newRedactor(""))}
	if o.Sandbox && method == "" {
		spec.Sandbox = NewSandbox(o.FFmpeg)
	}
	var err error
	if e.ffmpeg, err = child.Start(ctx, spec); err != nil {
		return nil, source{}.startError(o.FFmpeg, err)
	}
	e.out = bufio.NewReaderSize(e.ffmpeg.Stdout, 64<<10)
	// The pipe has room: writing fails only when ffmpeg has ended, and then the first picture fails, too.
	_ = e.ffmpeg.Write(appendIVFHeader(nil, rgb24, o.Width, o.Height, ivfTick))
	return e, nil
}

// rgb24 is ffmpeg's tag of raw RGB.
const rgb24 = "RGB\x18"

// encodedSize returns the size of encoded pictures: even sides, and at most maxEncodedPixels.
func encodedSize(w, h int) (int, int) {
	scale := min(1, math.Sqrt(float64(maxEncodedPixels)/float64(w*h)))
	even := func(n int) int { return max(2, 2*int(math.Round(float64(n)*scale/2))) }
	return even(w), even(h)
}

// args is the command line. The output is FLV: ffmpeg writes the data of a picture at once, with its length, while the
// muxer of fragmented MP4 waits for the next picture.
func (e *Encoder) args() []string {
	hardware := hardwareEncoders[e.method]
	filter := fmt.Sprintf("scale=%d:%d:out_color_matrix=bt709:out_range=tv,format=%s", e.width, e.height,
		hardware.format)
	args := strings.Fields("-nostdin -hide_banner -nostats -loglevel error -protocol_whitelist pipe -probesize 32 " +
		"-analyzeduration 0 " + hardware.device)
	args = append(args, "-threads", "1", "-c:v", "rawvideo", "-f", "ivf", "-i", "pipe:0", "-an", "-fps_mode",
		"passthrough", "-copyts", "-enc_time_base", fmt.Sprintf("1/%d", ivfTick), "-filter_threads", "1", "-vf", filter)
	args = append(args, strings.Fields(hardware.options)...)
	if e.method == "" {
		rate := min(max(bitsPerPixel*e.width*e.height, minBits), maxBits)
		// By the clock of the pictures, libx264 would expect 1000 pictures a second.
		args = append(args, "-x264-params", "fps=30", "-maxrate", fmt.Sprint(rate), "-bufsize", fmt.Sprint(rate))
	}
	return append(args, "-c:v", hardware.name, "-threads", "1", "-bf", "0", "-g", "100000",
		"-force_key_frames", fmt.Sprintf("expr:isnan(prev_forced_t)+gte(t,prev_forced_t+%g)", GroupLength.Seconds()),
		"-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv",
		"-map_metadata", "-1", "-flush_packets", "1", "-flvflags", "no_duration_filesize+no_sequence_end", "-f", "flv",
		"pipe:1")
}

// Encode encodes a picture of Width x Height pixels, packed RGB, at a time that rises from picture to picture. The
// fragment's Data is valid until the next call, the fragment's times begin at 0. After an error the Encoder must be
// closed.
func (e *Encoder) Encode(rgb []byte, at time.Duration) (Fragment, error) {
	if n := 3 * e.o.Width * e.o.Height; len(rgb) != n {
		return Fragment{}, fmt.Errorf("video: a picture of %d bytes for an encoder of %d", len(rgb), n)
	}
	limit := time.AfterFunc(encodeTimeout, func() { _ = e.ffmpeg.Signal(syscall.SIGKILL) })
	f, err := e.encode(rgb, at)
	if !limit.Stop() && err != nil {
		err = fmt.Errorf("video: ffmpeg has not encoded a picture of %d x %d within %v", e.o.Width, e.o.Height,
			encodeTimeout)
		e.o.Hardware.encodingFailed(e.method, err)
		return f, err
	}
	if err != nil {
		return f, e.fail(err)
	}
	return f, nil
}

func (e *Encoder) encode(rgb []byte, at time.Duration) (Fragment, error) {
	if !e.began {
		e.began, e.first, e.last = true, at, -1
	}
	ticks := max((at - e.first).Milliseconds(), e.last+1)
	if e.last >= 0 {
		e.length = ticks - e.last
	} else {
		e.length = 40 // until the next picture is known
	}
	e.last = ticks
	var head [12]byte
	putIVFFrame(head[:], len(rgb), uint64(ticks))
	if err := e.ffmpeg.Write(head[:], rgb); err != nil {
		return Fragment{}, err
	}
	for {
		name, time, err := e.read()
		if err != nil {
			return Fragment{}, err
		}
		switch {
		case name == flvHeader:
			if e.header, err = newMP4Header(e.width, e.height, e.tag); err != nil {
				return Fragment{}, err
			}
		case name == flvPicture && e.header == nil:
			return Fragment{}, fmt.Errorf("%w: a picture before its header", errFLV)
		case name == flvPicture:
			if int64(time) != ticks&math.MaxInt32 {
				return Fragment{}, fmt.Errorf("%w: a picture at %d ms in place of %d", errFLV, time, ticks)
			}
			// The length is a guess: the next picture is not known.
			length := min(e.length, GroupLength.Milliseconds())
			f := Fragment{Header: e.header, Key: e.key(), Ticks: ticks, PTS: e.header.Duration(ticks),
				DTS: e.header.Duration(ticks), Length: e.header.Duration(length)}
			e.number++
			e.data = append(beginFragment(e.data, e.number, ticks, length, f.Key), e.tag...)
			endFragment(e.data)
			f.Data, f.at = e.data, fragmentTimeAt
			return f, nil
		}
	}
}

// key reports whether the picture in e.tag is an IDR picture.
func (e *Encoder) key() bool {
	for b := e.tag; len(b) > 4; {
		n := int(binary.BigEndian.Uint32(b))
		if b[4]&0x1F == nalIDR {
			return true
		}
		if n > len(b)-4 {
			return false
		}
		b = b[4+n:]
	}
	return false
}

// Parts of FLV that ffmpeg writes for one video (Adobe Flash Video File Format, version 10.1, annex E).
const (
	flvOther = iota
	flvHeader
	flvPicture

	flvVideo    = 9  // type of a tag
	flvTagHead  = 11 // bytes
	flvAVC      = 7  // codec
	flvPrevious = 4  // bytes: the size of the tag before
)

var errFLV = errors.New("malformed FLV")

// read reads one tag of FLV, with the content in e.tag.
func (e *Encoder) read() (kind int, ms uint32, err error) {
	if e.header == nil && e.tag == nil {
		var begin [9]byte
		if _, err := io.ReadFull(e.out, begin[:]); err != nil {
			return 0, 0, err
		}
		if string(begin[:3]) != "FLV" {
			return 0, 0, errFLV
		}
	}
	var head [flvPrevious + flvTagHead]byte
	if _, err := io.ReadFull(e.out, head[:]); err != nil {
		return 0, 0, err
	}
	h := head[flvPrevious:]
	size := int(h[1])<<16 | int(h[2])<<8 | int(h[3])
	ms = uint32(h[7])<<24 | uint32(h[4])<<16 | uint32(h[5])<<8 | uint32(h[6])
	if cap(e.tag) < size {
		e.tag = make([]byte, size)
	}
	e.tag = e.tag[:size]
	if _, err := io.ReadFull(e.out, e.tag); err != nil {
		return 0, 0, unexpectedEOF(err)
	}
	if h[0] != flvVideo {
		return flvOther, ms, nil
	}
	if size < 5 || e.tag[0]&0xF != flvAVC || e.tag[1] > 1 {
		return 0, 0, errFLV
	}
	kind, e.tag = flvHeader+int(e.tag[1]), e.tag[5:]
	return kind, ms, nil
}

// fail returns the reason of a failure.
func (e *Encoder) fail(err error) error {
	if errors.Is(err, errFLV) {
		return fmt.Errorf("video: ffmpeg's output cannot be read: %w", err)
	}
	exit := waitForExit(e.ffmpeg)
	said := lastLines(e.ffmpeg.Stderr(), newRedactor(""))
	if strings.Contains(said, "Unknown encoder") {
		said = "install an ffmpeg with " + e.Name + ": " + said
	}
	err = fmt.Errorf("video: the encoder %s has ended%s", e.Name, joined(said))
	if exit != nil {
		err = fmt.Errorf("%w: %w", err, exit)
	}
	e.o.Hardware.encodingFailed(e.method, err)
	return err
}

// Close stops ffmpeg and waits for its exit.
func (e *Encoder) Close() { _ = e.ffmpeg.Stop(0) }
