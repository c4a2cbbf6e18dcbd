package video

import (
	"fmt"
	"net/netip"
	"time"

	"millrace/internal/confine"
)

const (
	// DefaultStartTimeout bounds the time from Open to the first frame.
	DefaultStartTimeout = 10 * time.Second
	// DefaultStallTimeout bounds the time that Next waits for one frame.
	DefaultStallTimeout = 10 * time.Second
	// DefaultMaxFrameBytes bounds one encoded picture.
	DefaultMaxFrameBytes = 16 << 20

	maxSide  = 16384
	maxFrame = 1 << 30
)

// Format is the layout of raw frames. All are tightly packed, rows top to bottom.
type Format string

const (
	// RGB24: height x width x 3 bytes, R first.
	RGB24 Format = "rgb24"
	// Gray: height x width bytes, full range.
	Gray Format = "gray"
	// NV12: height x width bytes of luma, then ceil(height/2) x ceil(width/2) pairs of U and V, BT.601 limited range.
	NV12 Format = "nv12"
)

// size returns the bytes of one frame.
func (f Format) size(w, h int) int {
	switch f {
	case Gray:
		return w * h
	case NV12:
		return w*h + 2*((w+1)/2)*((h+1)/2)
	}
	return w * h * 3
}

// MJPEG is the only value of Options.Encoded besides "".
const MJPEG = "mjpeg"

// Options describe the source and its frames. Only URL is required.
type Options struct {
	// URL is a file, device, command or address, in one of the forms of ClassifyURL.
	URL string
	// Width and Height scale every frame inside ffmpeg; they take the place of the source's size. Both 0 keeps that (after
	// its rotation); one 0 keeps the aspect ratio, rounded to an even number.
	Width, Height int
	// Needs, if any, reduce frames inside ffmpeg to the largest size that one of them needs. Reader.Resize changes them. Not
	// with Encoded.
	Needs []Need
	// Format of raw frames; "" means RGB24. Not with Encoded.
	Format Format
	// Encoded, if MJPEG, makes every frame one whole JPEG picture instead of raw pixels.
	Encoded string
	// Quality of the JPEG pictures, 1 to 100; 0 means 80.
	Quality int
	// MaxFrameBytes bounds one JPEG picture; 0 means DefaultMaxFrameBytes.
	MaxFrameBytes int
	// FPS is the maximum frame rate: frames beyond it are dropped, none is repeated, and each keeps its own time; 0 keeps
	// all.
	FPS float64
	// Poll, if set, requests an HTTP address so often, which answers with one JPEG picture each time.
	Poll time.Duration
	// Realtime reads a file at its playback speed.
	Realtime bool
	// Loop restarts a file at its end, for ever; times continue to rise.
	Loop bool
	// OneThread is asked, when ffmpeg is started, whether one thread decodes a file that is not read at its playback
	// speed; nil is no. ffmpeg decodes it with several otherwise, and every other source with one: each more delays
	// frames by one, needs memory for some, and takes more processor time for a frame.
	OneThread func() bool
	// Hardware, if set, decodes the video where it can; otherwise, and when it fails at the start, ffmpeg decodes in
	// software.
	Hardware *Hardware
	// Nice is how much less important than this process ffmpeg is to the scheduler (nice(2)).
	Nice int
	// MaxTime bounds the processor time that ffmpeg may use without a frame (limits.max_decode_time), and a second more before
	// the first one, of RTSP besides StartTimeout; 0 = no limit. With FPS below 1 it is for each second. Afterwards the error is TooSlow.
	MaxTime time.Duration
	// Used, if set, is told the processor time that ffmpeg has used since the last call: with each frame, sometimes without
	// one, and when it has ended. It may be called by any goroutine, by one at a time, and must not block.
	Used func(time.Duration)
	// KeyFrames decodes only frames that depend on no other, which is cheap.
	KeyFrames bool
	// MaxPixels bounds the source's picture; 0 = no limit. Pictures of more than about twice as many are refused before
	// memory is taken for them, except those of an rtmp or rtmps address with a secret.
	MaxPixels int
	// StartTimeout bounds the time until the first frame; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// StallTimeout bounds the wait for each later frame; 0 means DefaultStallTimeout, negative means no bound.
	StallTimeout time.Duration
	// Allow, if set, is called with every network address after its name was looked up and before a connection is made:
	// for the source itself, its redirects and its playlists. An error refuses the address and ends the source with
	// Forbidden. It is for http, https, rtsp and rtsps only, may be called concurrently, and disables proxies of the
	// environment. An RTSP redirect is always refused.
	Allow func(netip.Addr) error
	// Sandbox confines ffmpeg and ffprobe, but for devices: they read no other files than the folder of a file, write none, and
	// connect only where Allow is asked. It needs what child.SandboxError looks for.
	Sandbox bool
	// Programs confines the program of an exec source; nil does not.
	Programs *confine.Programs
	// Protocols replaces the protocols that ffmpeg may use; see the function Protocols.
	Protocols []string
	// InputArgs are pairs of arguments of ffmpeg and ffprobe for the input, such as "-rtsp_transport", "udp". They must
	// not come from a request.
	InputArgs []string
	// Log, if set, gets each line that ffmpeg reports, without secrets. It must not block.
	Log func(line string)
	// FFmpeg and FFprobe are the programs; "" looks them up in PATH. Of a Reader's sources only files need FFprobe.
	FFmpeg, FFprobe string
}

// withDefaults checks the options and fills in defaults.
func (o Options) withDefaults() (Options, error) {
	bad := func(field string, value any, want string) (Options, error) {
		return o, fmt.Errorf("video: Options.%s is %v; want %s", field, value, want)
	}
	switch o.Format {
	case "":
		o.Format = RGB24
	case RGB24, Gray, NV12:
	default:
		return bad("Format", fmt.Sprintf("%q", string(o.Format)), "rgb24, gray or nv12")
	}
	switch {
	case o.Width < 0 || o.Width > maxSide:
		return bad("Width", o.Width, fmt.Sprintf("0 to %d pixels", maxSide))
	case o.Height < 0 || o.Height > maxSide:
		return bad("Height", o.Height, fmt.Sprintf("0 to %d pixels", maxSide))
	case !(o.FPS >= 0 && o.FPS <= 1000):
		return bad("FPS", o.FPS, "0 (all) to 1000 frames a second")
	case o.Encoded != "" && o.Encoded != MJPEG:
		return bad("Encoded", fmt.Sprintf("%q", o.Encoded), `"" or "mjpeg"`)
	case o.Quality < 0 || o.Quality > 100:
		return bad("Quality", o.Quality, "1 to 100, or 0 for 80")
	case o.MaxFrameBytes < 0 || o.MaxFrameBytes > maxFrame:
		return bad("MaxFrameBytes", o.MaxFrameBytes, fmt.Sprintf("0 to %d", maxFrame))
	case o.Encoded != "" && len(o.Needs) > 0:
		return bad("Needs", o.Needs, "none with Encoded")
	case o.MaxPixels < 0:
		return bad("MaxPixels", o.MaxPixels, "0 (no limit) or more")
	case o.Poll < 0:
		return bad("Poll", o.Poll, "0, or a positive time")
	case o.StartTimeout < 0:
		return bad("StartTimeout", o.StartTimeout, "0 for the default, or a positive time")
	}
	if o.Quality == 0 {
		o.Quality = 80
	}
	if o.MaxFrameBytes == 0 {
		o.MaxFrameBytes = DefaultMaxFrameBytes
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = DefaultStallTimeout
	}
	if o.FFmpeg == "" {
		o.FFmpeg = "ffmpeg"
	}
	if o.FFprobe == "" {
		o.FFprobe = "ffprobe"
	}
	return o, nil
}
