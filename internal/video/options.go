package video

import (
	"fmt"
	"net/netip"
	"time"

	"millrace/internal/confine"
)

const (
	// DefaultStartTimeout bounds the time from Open to the first frame. Each time-out is extended by up to 50 s while
	// ffmpeg waits for a processor.
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

// size returns the bytes of a frame.
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
	// URL is a file, device, command or address, in a form of ClassifyURL.
	URL string
	// Width and Height scale every frame inside ffmpeg, replacing the source's size. Both 0 keeps the source's size
	// (after rotation); a single 0 keeps the aspect ratio, rounded to an even number.
	Width, Height int
	// Needs, if any, reduce frames inside ffmpeg to the smallest size that serves all needs. Reader.Resize changes
	// the needs. Not with Encoded.
	Needs []TargetSize
	// Format of raw frames; "" means RGB24. Not with Encoded.
	Format Format
	// Encoded, if MJPEG, makes every frame a whole JPEG picture instead of raw pixels.
	Encoded string
	// Quality of the JPEG pictures, 1 to 100; 0 means 80.
	Quality int
	// MaxFrameBytes bounds a JPEG picture; 0 means DefaultMaxFrameBytes.
	MaxFrameBytes int
	// FPS is the maximum frame rate: surplus frames are dropped, no frame is repeated, and each keeps its own time; 0
	// keeps all frames.
	FPS float64
	// Poll, if set, is the interval of requests to an HTTP address that answers with a single JPEG picture.
	Poll time.Duration
	// Realtime reads a file at its playback speed.
	Realtime bool
	// Loop restarts a file at its end, for ever; times continue to rise.
	Loop bool
	// OneThread is called when ffmpeg is started, and returns whether a single thread decodes a file read faster than
	// playback speed; nil means false. With false, ffmpeg decodes such a file with several threads. Every other
	// source has one thread: each further thread delays frames by one, needs memory for some frames, and costs more
	// processor time per frame.
	OneThread func() bool
	// Hardware, if set, decodes the video where possible; otherwise, and after a failure at the start, ffmpeg decodes
	// in software.
	Hardware *Hardware
	// Nice is how much less important than this process ffmpeg is to the scheduler (nice(2)).
	Nice int
	// MaxTime bounds ffmpeg's processor time without a frame (limits.max_decode_time); 0 = no limit. The first frame
	// may take a second more, of RTSP also StartTimeout more. With FPS below 1, MaxTime is per second. The error is
	// TooSlow.
	MaxTime time.Duration
	// Used, if set, receives ffmpeg's processor time since the last call: with each frame, sometimes without a frame,
	// and after the end of ffmpeg. Any goroutine may call Used, but calls do not overlap. Used must not block.
	Used func(time.Duration)
	// Decode selects the pictures that ffmpeg decodes; "" means DecodeAll. Skipped pictures cost little.
	Decode Decode
	// MaxPixels bounds the source's picture; 0 = no limit. Pictures of more than about twice MaxPixels are refused
	// before memory is allocated, except for an rtmp or rtmps address with a secret.
	MaxPixels int
	// StartTimeout bounds the time until the first frame; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// StallTimeout bounds the wait for each later frame; 0 means DefaultStallTimeout, negative means no bound.
	StallTimeout time.Duration
	// Allow, if set, is called with every network address, after the look-up of the name and before the connection:
	// for the source, its redirects and its playlists. An error refuses the address and ends the source with
	// Forbidden. Allow is for http, https, rtsp and rtsps only, may be called concurrently, and disables proxies of
	// the environment. An RTSP redirect is always refused.
	Allow func(netip.Addr) error
	// Sandbox confines ffmpeg and ffprobe, except for devices: the programs read only the folder of a file, write no
	// file, and connect only to addresses checked by Allow. child.SandboxError reports whether the machine supports
	// the sandbox.
	Sandbox bool
	// Upload says that the file comes from a client: only containers are read, no playlist, which could name further
	// files.
	Upload bool
	// Programs confines the program of an exec source; nil does not.
	Programs *confine.Programs
	// Protocols replaces ffmpeg's allowed protocols; see the function Protocols.
	Protocols []string
	// InputArgs are pairs of input arguments of ffmpeg and ffprobe, such as "-rtsp_transport", "udp". InputArgs must
	// not come from a request.
	InputArgs []string
	// Packets, if set, receives each compressed picture of the source as the source sent it, from a goroutine of the
	// Reader and before Close returns. Packets must return at once. A source whose codec MP4 lacks has no packets.
	Packets func(Fragment)
	// Log, if set, gets each line of ffmpeg's messages, without secrets. Log must not block.
	Log func(line string)
	// FFmpeg and FFprobe are the programs; "" means the name in PATH. A Reader needs FFprobe only for files.
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
	case o.Decode != "" && o.Decode != DecodeAll && o.Decode.skipFrame() == "":
		return bad("Decode", fmt.Sprintf("%q", string(o.Decode)), "all, reference or key")
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
