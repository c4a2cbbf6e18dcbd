package video

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// input returns the arguments that open the source in ffmpeg and ffprobe, without "-i".
func (r *route) input(o *Options) (args []string, address string) {
	use := slices.Clone(o.Protocols)
	if len(use) == 0 {
		use = Protocols(r.scheme)
	}
	use = append(use, r.extra...)
	address = r.address
	switch {
	case r.feed != nil:
		use, address = []string{"pipe"}, extraInput
	case r.secret:
		args = []string{"-f", "concat", "-safe", "0"}
		use, address = append(use, "pipe"), extraInput
	case r.scheme == SchemeFile:
		// With the protocol in front, a leading "-" or a colon in the path has no meaning.
		address = "file:" + r.target
	case r.scheme == SchemeExec:
		address = extraInput
	}
	switch {
	case r.feed == nil && !r.secret:
		args = r.inputArgs(o)
	case r.pictures():
		args = []string{"-f", "ivf"}
	case r.elementary():
		args = []string{"-f", string(r.feed.content)}
	case r.feed != nil:
		args = slices.Clone(o.InputArgs)
	}
	if o.MaxPixels > 0 {
		// Codecs pad pictures. -max_pixels bounds the allocation; Open checks the exact size.
		args = append(args, "-max_pixels", fmt.Sprint(min(2*o.MaxPixels+1<<16, math.MaxInt32)))
	}
	return append([]string{"-protocol_whitelist", strings.Join(use, ",")}, args...), address
}

// inputArgs are the options of the source's protocol, as pairs of option and value.
func (r *route) inputArgs(o *Options) (args []string) {
	switch r.scheme {
	case SchemeV4L2:
		args = o.cameraArgs()
	case SchemeRTSP, SchemeRTSPS:
		// Over UDP one lost packet damages the pictures up to the next key frame. ffmpeg would wait for the camera's
		// sound.
		args = []string{"-rtsp_transport", "tcp", "-allowed_media_types", "video"}
	}
	return append(args, o.InputArgs...)
}

// startArgs are the input options, besides the options of the protocol, that make the first frame come soon.
func (r *route) startArgs() []string {
	if r.scheme == SchemeFile || r.scheme == SchemeV4L2 { // devices declare a rate
		return nil
	}
	if r.arrival() {
		return []string{"-probesize", "32", "-analyzeduration", "0"}
	}
	// ffmpeg would read twenty frames, or five seconds, to find the frame rate before returning the first frame.
	args := []string{"-fpsprobesize", "0"}
	switch r.scheme {
	case SchemeRTSP, SchemeRTSPS:
		// The first packet with a certain time is not the first packet. ffmpeg would take the certain time for the
		// beginning and drop the frames before, unless all times are moved; see Reader.sinceOrigin.
		args = append(args, "-itsoffset", fmt.Sprint(rtspOffset.Seconds()))
	default:
		// Streams of these sources may be announced by their first packet only; ffmpeg waits for the packet.
		args = append(args, analyzeArgs...)
	}
	return args
}

// arrival reports whether frames have the times of their arrival.
func (r *route) arrival() bool { return r.pictures() || r.elementary() }

// pictures reports whether ffmpeg gets single JPEG pictures with their times.
func (r *route) pictures() bool { return r.feed != nil && r.feed.content == motionJPEG }

// elementary reports whether ffmpeg gets video without times.
func (r *route) elementary() bool {
	return r.feed != nil && (r.feed.content == rawH264 || r.feed.content == rawHEVC)
}

var analyzeArgs = []string{"-analyzeduration", "1000000"} // µs

// rtspOffset exceeds the longest time by which frames can precede the beginning assumed by ffmpeg.
const rtspOffset = time.Minute

// extraInput is the descriptor with a secret address or the output of a program: standard input is for commands.
const extraInput = "pipe:3"

// ffmpegArgs is the whole command line. hardware is the method of decoding, "" for software. width and height are the
// wanted size, 0 where ffmpeg determines the size.
func (o *Options) ffmpegArgs(from *route, hardware string, width, height int) []string {
	args := []string{"-hide_banner", "-nostats", "-loglevel", logLevel}
	if !o.commands() {
		args = append(args, "-nostdin")
	}
	if o.Realtime && from.feed == nil {
		args = append(args, "-re")
	}
	if o.Loop && from.feed == nil {
		args = append(args, "-stream_loop", "-1")
	}
	in, address := from.input(o)
	switch {
	case address != extraInput:
	case from.arrival():
		// The protocol pipe would do where ffmpeg takes no commands, see below. Neither format reads further files.
		in[1], address = "file", "file:/dev/fd/3"
	case o.commands():
		// ffmpeg reads no commands when the address of an input begins with "pipe:". The protocol async waits for
		// 4096 bytes and so delays small pictures.
		in[1], address = in[1]+",async", "async:"+address
	}
	if from.scheme != SchemeFile || o.Realtime || o.OneThread != nil && o.OneThread() {
		args = append(args, "-threads", "1")
	}
	if skip := o.Decode.skipFrame(); skip != "" {
		args = append(args, "-skip_frame", skip)
	}
	args = append(args, hardwareArgs(hardware)...)
	args = append(slices.Concat(args, from.startArgs(), from.allowArgs(o.Upload), in), "-i", address)
	// A capital V excludes cover pictures.
	args = append(args, "-map", "0:V:0", "-an", "-sn", "-dn", "-map_metadata", "-1")

	var filters []string
	if !from.arrival() {
		filters = append(filters, from.timeline())
	}
	if from.elementary() {
		// ffmpeg assumes 25 pictures a second. Here the first picture gets the time 0, later pictures their time of
		// decoding.
		filters = append(filters, "settb=1/1000000",
			"setpts='if(isnan(PREV_OUTPTS),0,PREV_OUTPTS+max(RTCTIME-ld(0),1))+0*st(0,RTCTIME)'")
	}
	switch {
	case o.FPS > 0 && from.arrival():
		// Arrival times vary: one slot of 1/FPS seconds may have two frames and the next slot none. So a frame may
		// come up to half a slot early.
		filters = append(filters, fmt.Sprintf("select='if(gte(t,ld(0)-0.5/%[1]g),1+0*st(0,max(t,ld(0))+1/%[1]g),0)'",
			o.FPS))
	case o.FPS > 0:
		// The first frame in each slot of 1/FPS seconds is kept. The small offset allows for times rounded by a
		// container.
		filters = append(filters, fmt.Sprintf("select='isnan(prev_selected_t)+gt(floor(t*%[1]g+0.01),"+
			"floor(prev_selected_t*%[1]g+0.01))'", o.FPS))
	}
	w, h := "iw", "ih"
	switch {
	case width > 0 && height > 0:
		w, h = fmt.Sprint(width), fmt.Sprint(height)
	// The other side follows from the source, not from ffmpeg's -2: with -2, a command that changes one side changes
	// both.
	case width > 0:
		w, h = fmt.Sprint(width), evenSide(width, "ih", "iw")
	case height > 0:
		w, h = evenSide(height, "iw", "ih"), fmt.Sprint(height)
	}
	switch {
	case o.Encoded == MJPEG:
		// JPEG samples are in BT.601 and use the full range.
		filters = append(filters, "scale="+w+":"+h+":out_color_matrix=bt601:out_range=pc", "format=yuvj420p")
		// ffmpeg counts from 2 (best) to 31.
		q := 2 + (100-o.Quality)*29/99
		args = append(args, "-c:v", "mjpeg", "-q:v", fmt.Sprint(q))
	case o.Format == NV12:
		filters = append(filters, scaleFilter(w, h))
		args = append(args, "-c:v", "rawvideo", "-pix_fmt", "nv12")
	default:
		filters = append(filters, scaleName+"="+w+":"+h)
		args = append(args, "-c:v", "rawvideo", "-pix_fmt", string(o.Format))
	}
	args = append(args, "-vf", strings.Join(filters, ","))
	// Each further thread of an encoder, even of the encoder of raw frames, delays output by one frame; filters start
	// threads without using them.
	args = append(args, "-threads", "1", "-filter_threads", "1")
	if o.commands() {
		// When the source changes its size, ffmpeg would add a filter for the size of the first frame, and then hang
		// on frames of another size.
		args = append(args, "-autoscale", "0")
	}
	// Frame times rise, and ffmpeg neither repeats nor drops frames. The source's own time base keeps the times
	// exact. Every frame is flushed at once.
	base := "-1"
	if from.elementary() {
		base = "1:1000000"
	}
	return append(args, "-fps_mode", "passthrough", "-enc_time_base", base, "-flush_packets", "1", "-f", "nut",
		"pipe:1")
}

// evenSide is ffmpeg's expression for the second side when the given side is reduced to n pixels: the even number
// that keeps the aspect ratio, rounded like Options.fullSize.
func evenSide(n int, side, given string) string {
	return fmt.Sprintf("'max(2*floor((%d*%s+%s)/(2*%s)),2)'", n, side, given, given)
}

// commands reports whether ffmpeg reads commands from standard input.
func (o *Options) commands() bool { return o.Encoded == "" }
