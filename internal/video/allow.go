package video

import (
	"regexp"
	"slices"
	"strings"
)

// formats are the demuxers allowed for a source, under every name of each. ffmpeg refuses any other demuxer by name,
// whether the content or the file name suggests the demuxer: demuxers of drawings, scripts (concat), game files and
// the like are of no use for video, and several open further files.
var formats = []string{
	"mov", "matroska", "mpegts", "mpeg", "flv", "avi", "asf", "ogg", "nut", "ivf", "mxf", "gxf", "dv", "rm",
	"live_flv", "swf",
	"hls", "dash", "rtsp", "rtp", "mpjpeg", "yuv4mpegpipe",
	"mjpeg", "h264", "hevc", "vvc", "av1", "obu", "m4v", "mpegvideo", "vc1", "h263", "gif", "apng",
	"image2", "jpeg_pipe", "png_pipe", "webp_pipe", "bmp_pipe", "tiff_pipe",
	// No video (the error says so), and tracks of playlists.
	"wav", "aac", "mp3", "ac3", "eac3", "webvtt",
}

// uploadFormats are the first formats: containers of a whole video, which name no further files.
var uploadFormats = formats[:slices.Index(formats, "hls")]

// deviceFormats and scriptFormat are only for cameras, and for an address on descriptor 3.
var deviceFormats = []string{"v4l2", "mjpeg", "h264", "hevc"}

const scriptFormat = "concat"

// chunkDecoders are the ffmpeg decoders for each codec of a Decoder; the first available decoder is used.
var chunkDecoders = map[string]string{
	H264: "h264,libopenh264",
	VP8:  "vp8,libvpx",
	VP9:  "vp9,libvpx-vp9",
	AV1:  "libdav1d,libaom-av1,av1",
}

// decoderNames are the decoders allowed for a source. Sound and subtitles are not decoded, but ffmpeg opens the
// decoders of all tracks while analysing a source.
var decoderNames = []string{
	"h264", "libopenh264", "hevc", "vvc", "vp8", "libvpx", "vp9", "libvpx-vp9", "av1", "libdav1d", "libaom-av1",
	"mpeg4", "mpeg2video", "mpeg1video", "mpegvideo", "h263", "h263p", "h263i", "h261", "flv", "msmpeg4", "msmpeg4v1",
	"msmpeg4v2",
	"wmv1", "wmv2", "wmv3", "vc1", "theora", "vp6", "vp6f", "vp6a", "rv30", "rv40", "svq1", "svq3", "cinepak",
	"mjpeg", "mjpegb", "mxpeg", "jpeg2000", "libopenjpeg", "prores", "dnxhd", "cfhd", "dvvideo", "ffv1", "huffyuv",
	"ffvhuff", "utvideo",
	"rawvideo", "v210", "msvideo1", "msrle", "qtrle", "png", "apng", "gif", "webp", "bmp", "tiff",

	"aac", "aac_fixed", "aac_latm", "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "ac3", "ac3_fixed",
	"eac3", "dca", "opus", "libopus", "vorbis", "libvorbis",
	"flac", "alac", "amrnb", "amrwb", "g722", "g726", "g726le", "adpcm_ima_wav", "adpcm_ima_qt", "adpcm_ms",
	"adpcm_swf", "wmav1", "wmav2", "wmapro", "nellymoser", "speex",
	"truehd", "gsm", "gsm_ms", "pcm_alaw", "pcm_mulaw", "pcm_bluray", "pcm_dvd", "pcm_u8", "pcm_s8", "pcm_s16le",
	"pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be", "pcm_f32le", "pcm_f32be",

	"mov_text", "subrip", "srt", "ass", "ssa", "webvtt", "text", "dvbsub", "dvdsub", "pgssub", "cc_dec",
}

var sourceDecoders = strings.Join(decoderNames, ",")

// allowArgs limit the formats and decoders with which ffmpeg and ffprobe may read the source. upload is
// Options.Upload.
func (r *route) allowArgs(upload bool) []string {
	use := formats
	switch {
	case r.scheme == SchemeV4L2:
		use = deviceFormats
	case upload:
		use = uploadFormats
	case r.secret:
		use = append(slices.Clone(formats), scriptFormat)
	}
	return []string{"-format_whitelist", strings.Join(use, ","), "-codec_whitelist", sourceDecoders}
}

// ffmpeg puts the demuxer's name before the message, and the list of allowed formats after; the list does not help a
// reader.
var (
	formatRefused = regexp.MustCompile(`\[([^\[\]@]{1,64}) @ 0x[0-9a-f]+\] Format not on whitelist '[^'\n]*'`)
	codecRefused  = regexp.MustCompile(`Codec \(([^()]{1,64})\) not on whitelist '[^'\n]*'`)
)

// refusedFormat returns the demuxer that ffmpeg was not allowed to use; "" for none.
func refusedFormat(stderr string) string {
	if f := formatRefused.FindStringSubmatch(stderr); f != nil {
		return f[1]
	}
	return ""
}

// namesRefused removes the lists of allowed formats and decoders from a line of ffmpeg's messages.
func namesRefused(line string) string {
	line = formatRefused.ReplaceAllString(line, "the format $1 is not among those that are read")
	return codecRefused.ReplaceAllString(line, "the codec $1 is not among those that are read")
}
