package video

import (
	"fmt"
	"slices"
	"strings"
)

// input returns the arguments that open the source, for both ffmpeg and ffprobe, without "-i".
func (r *route) input(o *Options) (args []string, address string) {
	use := slices.Clone(o.Protocols)
	if len(use) == 0 {
		use = Protocols(r.scheme)
	}
	use = append(use, r.extra...)
	address = r.address
	switch {
	case r.secret:
		args = []string{"-f", "concat", "-safe", "0"}
		use, address = append(use, "pipe"), "pipe:0"
	case r.scheme == SchemeFile:
		// With the protocol in front, a leading "-" or a colon in the path has no meaning.
		address = "file:" + r.target
	case r.scheme == SchemeExec:
		address = "pipe:0"
	}
	if !r.secret {
		args = r.inputArgs(o)
	}
	return append([]string{"-protocol_whitelist", strings.Join(use, ",")}, args...), address
}

// inputArgs are the options of the source's protocol, as pairs of option and value.
func (r *route) inputArgs(o *Options) (args []string) {
	switch r.scheme {
	case SchemeV4L2:
		args = o.cameraArgs()
	case SchemeRTSP, SchemeRTSPS:
		// Over UDP one lost packet damages the pictures up to the next key frame.
		args = []string{"-rtsp_transport", "tcp"}
	}
	return append(args, o.InputArgs...)
}

// ffmpegArgs is the whole command line. width and height are the wanted size, 0 where ffmpeg determines it.
func (o *Options) ffmpegArgs(from *route, width, height int) []string {
	args := []string{"-nostdin", "-hide_banner", "-nostats", "-loglevel", "warning"}
	if o.Realtime {
		args = append(args, "-re")
	}
	if o.Loop {
		args = append(args, "-stream_loop", "-1")
	}
	in, address := from.input(o)
	if from.scheme != SchemeFile || o.Realtime {
		// A decoder with frame threads delays each frame by the number of threads.
		args = append(args, "-thread_type", "slice")
	}
	args = append(append(args, in...), "-i", address)
	// A capital V excludes cover pictures.
	args = append(args, "-map", "0:V:0", "-an", "-sn", "-dn", "-map_metadata", "-1")

	var filters []string
	if o.FPS > 0 {
		// The first frame in each slot of 1/FPS seconds. The small offset allows for times that a container rounded.
		filters = append(filters, fmt.Sprintf("select='isnan(prev_selected_t)+gt(floor(t*%[1]g+0.01),floor(prev_selected_t*%[1]g+0.01))'", o.FPS))
	}
	scale := ""
	switch {
	case width > 0 && height > 0:
		scale = fmt.Sprintf("%d:%d", width, height)
	case width > 0:
		scale = fmt.Sprintf("%d:-2", width)
	case height > 0:
		scale = fmt.Sprintf("-2:%d", height)
	}
	if o.Encoded == MJPEG {
		if scale != "" {
			scale += ":"
		}
		// JPEG samples use the full range.
		filters = append(filters, "scale="+scale+"out_range=pc", "format=yuvj420p")
		// ffmpeg counts from 2 (best) to 31.
		q := 2 + (100-o.Quality)*29/99
		args = append(args, "-vf", strings.Join(filters, ","), "-c:v", "mjpeg", "-q:v", fmt.Sprint(q))
	} else {
		if scale != "" {
			filters = append(filters, "scale="+scale)
		}
		if len(filters) > 0 {
			args = append(args, "-vf", strings.Join(filters, ","))
		}
		args = append(args, "-c:v", "rawvideo", "-pix_fmt", string(o.Format))
	}
	// With more threads an encoder, also that of raw frames, delays a frame for each.
	args = append(args, "-threads", "1")
	// NUT allows a variable rate, so ffmpeg does not repeat or drop frames; the source's own time base keeps their
	// times exact. Every frame is flushed at once.
	return append(args, "-enc_time_base", "-1", "-flush_packets", "1", "-f", "nut", "pipe:1")
}
