package video

import (
	"regexp"
	"slices"
	"strings"
)

// formats are the demuxers that ffmpeg may use for a source, by any of their names. A demuxer that is not here is refused
// by name, whether the content or the file's name suggests it: those of drawings, scripts (concat), game files and the
// like read content in ways that nobody needs for video, and several of them open further files.
var formats = []string{
	"mov", "matroska", "mpegts", "mpeg", "flv", "avi", "asf", "ogg", "nut", "ivf", "mxf", "gxf", "dv", "rm", "live_flv", "swf",
	"hls", "dash", "rtsp", "rtp", "mpjpeg", "yuv4mpegpipe",
	"mjpeg", "h264", "hevc", "vvc", "av1", "obu", "m4v", "mpegvideo", "vc1", "h263", "gif", "apng",
	"image2", "jpeg_pipe", "png_pipe", "webp_pipe", "bmp_pipe", "tiff_pipe",
	// Without video, which is then said, and tracks of playlists.
	"wav", "aac", "mp3", "ac3", "eac3", "webvtt",
}

// deviceFormats and scriptFormat are for the sources that need them: cameras, and an address on descriptor 3.
var deviceFormats = []string{"v4l2", "mjpeg", "h264", "hevc"}

const scriptFormat = "concat"

// Decoders of ffmpeg for each codec of a Decoder; it uses the first that it has.
var chunkDecoders = map[string]string{
	H264: "h264,libopenh264",
	VP8:  "vp8,libvpx",
	VP9:  "vp9,libvpx-vp9",
	AV1:  "libdav1d,libaom-av1,av1",
}

// decoderNames are the decoders that ffmpeg may use for a source. Sound and subtitles are not decoded, but ffmpeg opens the
// decoders of all tracks while it analyses a source.
var decoderNames = []string{
	"h264", "libopenh264", "hevc", "vvc", "vp8", "libvpx", "vp9", "libvpx-vp9", "av1", "libdav1d", "libaom-av1",
	"mpeg4", "mpeg2video", "mpeg1video", "mpegvideo", "h263", "h263p", "h263i", "h261", "flv", "msmpeg4", "msmpeg4v1", "msmpeg4v2",
	"wmv1", "wmv2", "wmv3", "vc1", "theora", "vp6", "vp6f", "vp6a", "rv30", "rv40", "svq1", "svq3", "cinepak",
	"mjpeg", "mjpegb", "mxpeg", "jpeg2000", "libopenjpeg", "prores", "dnxhd", "cfhd", "dvvideo", "ffv1", "huffyuv", "ffvhuff", "utvideo",
	"rawvideo", "v210", "msvideo1", "msrle", "qtrle", "png", "apng", "gif", "webp", "bmp", "tiff",

	"aac", "aac_fixed", "aac_latm", "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "ac3", "ac3_fixed", "eac3", "dca", "opus", "libopus", "vorbis", "libvorbis",
	"flac", "alac", "amrnb", "amrwb", "g722", "g726", "g726le", "adpcm_ima_wav", "adpcm_ima_qt", "adpcm_ms", "adpcm_swf", "wmav1", "wmav2", "wmapro", "nellymoser", "speex",
	"truehd", "gsm", "gsm_ms", "pcm_alaw", "pcm_mulaw", "pcm_bluray", "pcm_dvd", "pcm_u8", "pcm_s8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be", "pcm_f32le", "pcm_f32be",

	"mov_text", "subrip", "srt", "ass", "ssa", "webvtt", "text", "dvbsub", "dvdsub", "pgssub", "cc_dec",
}

var sourceDecoders = strings.Join(decoderNames, ",")

// allowArgs limit what ffmpeg and ffprobe may use to read a source of this route.
func (r *route) allowArgs() []string {
	use := formats
	switch {
	case r.scheme == SchemeV4L2:
		use = deviceFormats
	case r.secret:
		use = append(slices.Clone(formats), scriptFormat)
	}
	return []string{"-format_whitelist", strings.Join(use, ","), "-codec_whitelist", sourceDecoders}
}

// ffmpeg names the demuxer in front of the message, and lists what is allowed behind it, which says nothing to a reader.
var (
	formatRefused = regexp.MustCompile(`\[([^\[\]@]{1,64}) @ 0x[0-9a-f]+\] Format not on whitelist '[^'\n]*'`)
	codecRefused  = regexp.MustCompile(`Codec \(([^()]{1,64})\) not on whitelist '[^'\n]*'`)
)

// refusedFormat returns the demuxer that ffmpeg would have used, but may not; "" for none.
func refusedFormat(stderr string) string {
	if f := formatRefused.FindStringSubmatch(stderr); f != nil {
		return f[1]
	}
	return ""
}

// namesRefused replaces the lists of what ffmpeg may use in a line of its messages.
func namesRefused(line string) string {
	line = formatRefused.ReplaceAllString(line, "the format $1 is not among those that are read")
	return codecRefused.ReplaceAllString(line, "the codec $1 is not among those that are read")
}
