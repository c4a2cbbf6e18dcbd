package video

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"millrace/stream/coded"
)

// ErrClosed is the error of Next after Close.
var ErrClosed = errors.New("video: the reader is closed")

// Kind classifies the error of a source.
type Kind string

const (
	FFmpegMissing Kind = "ffmpeg_missing" // the program is not installed
	NotFound      Kind = "not_found"      // no such file, host, or path on the server
	Refused       Kind = "refused"        // nobody listens, the host cannot be reached, or the server has an error
	Auth          Kind = "auth"           // password wrong or missing, or permission denied
	Forbidden     Kind = "forbidden"      // Options.Allow refuses an address of the source or of a redirect
	Busy          Kind = "busy"           // another program has the device
	Timeout       Kind = "timeout"        // no first frame within StartTimeout
	NotVideo      Kind = "not_video"      // the source was read and has no video
	Unsupported   Kind = "unsupported"    // an unknown or disallowed protocol or codec
	TooLarge      Kind = "too_large"      // pictures with more pixels than Options.MaxPixels
	TooSlow       Kind = "too_slow"       // ffmpeg used more processor time than Options.MaxTime without a frame
	Stalled       Kind = "stalled"        // no frame within StallTimeout
	EndedEarly    Kind = "ended_early"    // truncated, connection lost, or the decoder gave up
	Killed        Kind = "killed"         // a signal of another program ended ffmpeg
)

// kindText has the message of each kind.
var kindText = map[Kind]string{
	FFmpegMissing: "ffmpeg is not installed or not in PATH; install it: apt-get install ffmpeg",
	NotFound:      "there is nothing at this address",
	Refused:       "the connection was refused or failed",
	Auth:          "access was denied; check user name and password",
	Forbidden:     "it leads to an address that may not be opened",
	Busy:          "the device is in use by another program; close that one",
	Timeout:       "no frame arrived in time",
	NotVideo:      "there is no video in it",
	Unsupported:   "ffmpeg cannot or may not read this",
	TooLarge:      "its pictures are too large",
	TooSlow:       "decoding it takes too much processor time",
	Stalled:       "frames stopped arriving",
	EndedEarly:    "the video ended before its end",
	Killed:        "ffmpeg was killed by another program",
}

// Error is a failed source. The texts hold no password or token.
type Error struct {
	Kind Kind
	// URL is the source, redacted.
	URL string
	// Detail says more than the kind, in words of this package, redacted; may be empty.
	Detail string
	// Output is the last lines of messages from ffmpeg or from the program of an exec source, redacted; may be empty.
	// Output is for logs: Error does not include it.
	Output string
	// Err is the cause, or nil.
	Err error
}

func (e *Error) Error() string { return "video: " + e.URL + ": " + e.Problem() }

// Problem states the cause in one sentence, without the address.
func (e *Error) Problem() string {
	if e.Detail == "" {
		return kindText[e.Kind]
	}
	return kindText[e.Kind] + " (" + e.Detail + ")"
}

func (e *Error) Unwrap() error { return e.Err }

// OutputOf returns Error.Output of a source's error, "" for any other error.
func OutputOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Output
	}
	return ""
}

// codes has the code of each kind.
var codes = map[Kind]coded.Code{
	NotFound: coded.NotFound,
	Auth:     coded.PermissionDenied, Forbidden: coded.PermissionDenied,
	Refused: coded.Unavailable, EndedEarly: coded.Unavailable, Busy: coded.Unavailable, Killed: coded.Unavailable,
	Timeout: coded.Timeout, Stalled: coded.Timeout, TooSlow: coded.Timeout, TooLarge: coded.TooLarge,
	NotVideo: coded.Unsupported, Unsupported: coded.Unsupported, FFmpegMissing: coded.Unsupported,
}

// As converts e to a coded error for errors.As, with the field "url".
func (e *Error) As(target any) bool {
	to, ok := target.(**coded.Error)
	if !ok {
		return false
	}
	*to = &coded.Error{Code: cmp.Or(codes[e.Kind], coded.Internal), Field: "url", Msg: e.Error(), Err: e.Err}
	return true
}

// KindOf returns the kind of a source's error, "" for any other error.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// Retry reports whether the same source may work later with unchanged settings.
func (k Kind) Retry() bool {
	switch k {
	case Refused, Busy, Timeout, Stalled, EndedEarly, Killed, NotFound:
		return true
	}
	return false
}

// failure is the meaning of a message of ffmpeg.
type failure struct {
	kind Kind
	text string // of the message
	why  string // Error.Detail; "" where the kind suffices
}

// failures has messages of ffmpeg and its libraries. The first message found decides, so specific messages come
// first. The texts come from av_strerror and the protocols, stable for many years.
var failures = []failure{
	{TooLarge, "exceeds specified max pixel count", ""},
	{TooLarge, noMemory, needsMemory},
	{Auth, "401 Unauthorized", ""},
	{Auth, "403 Forbidden", ""},
	{Auth, "authorization failed", "the server refuses the user name or the password"},
	{Auth, "access denied", "the server denies access"},
	{Auth, "Permission denied", "the operating system denies permission"},
	{Auth, "Operation not permitted", "the operating system does not permit it"},
	{NotVideo, "Not a video capture device", "the device is no camera"}, // "No such device" follows
	{NotVideo, "Inappropriate ioctl for device", "the device is no camera"},
	{NotFound, "404 Not Found", ""},
	{NotFound, "410 Gone", ""},
	{NotFound, "Failed to resolve hostname", noSuchHost},
	{NotFound, "Name or service not known", noSuchHost},
	{NotFound, "No such file or directory", "no such file"},
	{NotFound, "No such device", "no such device"},
	{Unsupported, "not on whitelist", ""},
	{Unsupported, "Protocol not found", "ffmpeg does not know the protocol"},
	{Unsupported, "Decoder not found", unknownCodec},
	{Unsupported, "not found for input stream", unknownCodec},
	{Unsupported, "no decoder found for", unknownCodec},
	{Unsupported, "Unknown input format", "ffmpeg does not know the format"},
	{Unsupported, "Unrecognized option", oldFFmpeg},
	{Unsupported, "Option not found", oldFFmpeg},
	{Unsupported, "Error splitting the argument list", oldFFmpeg},
	{Refused, "Connection refused", "nothing accepts connections at this port"},
	{Refused, "No route to host", "there is no route to the host"},
	{Refused, "Network is unreachable", "the network cannot be reached"},
	{Refused, "Connection failed", "the connection failed"},
	{Refused, "Nonmatching transport", wrongTransport},
	{Refused, "Server returned 4XX", ""},
	{Refused, "Server returned 5XX", ""},
	{Refused, "Server returned 400", ""},
	{Busy, "Device or resource busy", ""},
	{Timeout, "Connection timed out", "the server does not answer"},
	{Timeout, "Operation timed out", "the server does not answer"},
	{EndedEarly, "Connection reset by peer", "the server closed the connection"},
	{EndedEarly, "Broken pipe", "the server closed the connection"},
	{NotVideo, "Error when loading first segment", "the first part of its playlist cannot be read"},
	{NotVideo, "matches no streams", "it has no video stream"},
	{NotVideo, "does not contain any stream", "it has no streams"},
	{NotVideo, "Is a directory", "it is a folder"},
	{NotVideo, "moov atom not found", damaged},
	{NotVideo, "Invalid data found", damaged},
	{NotVideo, "End of file", "it ends before its first frame"},
	{EndedEarly, "Input/output error", "it could not be read further"},
}

const (
	noSuchHost     = "no host of this name was found"
	unknownCodec   = "its codec is not supported"
	oldFFmpeg      = "this version of ffmpeg does not know an option that it was given: install a newer one"
	wrongTransport = "the camera does not support the transport of rtsp_transport: set it to udp, or to tcp if it " +
		"is udp"
	damaged = "its content is damaged, or of no known format"
)

var (
	// status is an error response of an HTTP or RTSP server.
	status = regexp.MustCompile(`(?:HTTP error|Server returned|method [A-Z_]{1,20} failed:) ([345][0-9]{2})\b`)
	// protocolRefused is the message about an address of another protocol, for example in a playlist.
	protocolRefused = regexp.MustCompile(`Protocol '([a-z0-9+.-]{1,32})' not on whitelist`)
)

// failureIn returns the meaning of ffmpeg's messages; false for unknown messages.
func failureIn(text string) (failure, bool) {
	// The MP4 demuxer also reports this for files taken for MP4 by name alone.
	if strings.Contains(text, "moov atom not found") && !strings.Contains(text, "misdetection possible") {
		return failure{kind: EndedEarly, why: indexMissing}, true
	}
	for _, f := range failures {
		if strings.Contains(text, f.text) {
			if f.why == "" {
				f.why = cmp.Or(refusedIn(text), statusIn(text))
			}
			return f, true
		}
	}
	return failure{}, false
}

// refusedIn returns the disallowed protocol, format or decoder named in ffmpeg's messages; "" for none.
func refusedIn(text string) string {
	if p := protocolRefused.FindStringSubmatch(text); p != nil {
		return "the protocol " + p[1] + " is not allowed here"
	}
	if c := codecRefused.FindStringSubmatch(text); c != nil {
		return "the codec " + c[1] + " is not among those that are read"
	}
	return ""
}

// statusIn returns the server's answer named in ffmpeg's messages; "" for none.
func statusIn(text string) string {
	s := status.FindStringSubmatch(text)
	if s == nil {
		return ""
	}
	if s[1] == "461" { // of RTSP
		return wrongTransport
	}
	return answered(digits(s[1]))
}

// answered is the detail of an error for a server's status.
func answered(status int) string {
	return strings.TrimSpace(fmt.Sprintf("the server answers %d %s", status, http.StatusText(status)))
}

var (
	largePicture = regexp.MustCompile(`Picture size ([0-9]{1,9})x([0-9]{1,9}) exceeds specified max pixel count`)
	missingPart  = regexp.MustCompile(`offset 0x([0-9a-f]{1,16}): partial file`)
	httpEnd      = regexp.MustCompile(`Stream ends prematurely at ([0-9]{1,20}), `)
)

const (
	indexMissing = "the file's index is missing: it is cut short or still being written"
	noParts      = "its playlist has byte ranges (EXT-X-BYTERANGE), and the server does not send parts of files: " +
		"use a server that does, or a file for each part"
	indexLast = "the file's index is at its end, and the server does not send parts of files: convert it with " +
		"ffmpeg -i IN -c copy -movflags +faststart OUT"
)

// explain returns the kind and the detail of an error of ffmpeg or ffprobe before the first frame. result is a
// message besides stderr.
func explain(stderr, result string) (Kind, string) {
	switch format := refusedFormat(stderr); format {
	case "":
	case "tty":
		return NotVideo, "it is a text file"
	default:
		return Unsupported, "the format " + format + " is not among those that are read"
	}
	f, ok := failureIn(stderr + result)
	switch {
	case !ok:
		return Unsupported, ""
	case f.kind == EndedEarly && needsParts(stderr):
		return Unsupported, indexLast
	}
	if p := largePicture.FindStringSubmatch(stderr); p != nil && f.kind == TooLarge {
		f.why = tooLarge(digits(p[1]), digits(p[2]))
	}
	return f.kind, f.why
}

func tooLarge(w, h int) string {
	return fmt.Sprintf("they have %d x %d pixels: raise limits.max_pixels to %d", w, h, w*h)
}

// needsParts reports whether ffmpeg misses a part of a file at the very offset at which the response to the request
// of this part ended. The offsets differ when a connection is lost.
func needsParts(stderr string) bool {
	part, end := missingPart.FindStringSubmatch(stderr), httpEnd.FindStringSubmatch(stderr)
	if part == nil || end == nil {
		return false
	}
	from, err1 := strconv.ParseUint(part[1], 16, 64)
	at, err2 := strconv.ParseUint(end[1], 10, 64)
	return err1 == nil && err2 == nil && from == at
}

// cutShort are ffmpeg's messages about input that ended too early.
var cutShort = []string{
	"partial file",
	"Stream ends prematurely",
	"File ended prematurely",
	"Truncated",
	"Connection reset by peer",
}

// endOf returns the reason for the end of a video from ffmpeg's last lines; "" if unknown.
func endOf(lines string) string {
	if reportsCutShort(lines) && !strings.Contains(lines, "Connection reset") {
		return "the rest is missing"
	}
	switch f, _ := failureIn(lines); f.kind {
	case EndedEarly, Refused, NotFound, Auth, Timeout, TooLarge:
		return f.why
	}
	return ""
}

func reportsCutShort(line string) bool {
	for _, c := range cutShort {
		if strings.Contains(line, c) {
			return true
		}
	}
	return false
}

// component is the "[h264 @ 0x55d0c8]" in front of a message.
var component = regexp.MustCompile(`\[([^\[\]@]{1,64}) @ 0x[0-9a-f]+\] `)

const maxOutput = 300

// lastLines returns the last two informative lines of standard error, redacted.
func lastLines(stderr string, red redactor) string {
	var kept []string
	lines := strings.FieldsFunc(stderr, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0 && len(kept) < 2; i-- {
		l := strings.TrimSpace(component.ReplaceAllString(namesRefused(lines[i]), ""))
		if l == "" || strings.HasPrefix(l, "Last message repeated") || strings.Contains(l, "misdetection possible") {
			continue
		}
		// of a resizer's commands
		if strings.HasPrefix(l, "Enter command: ") || strings.HasPrefix(l, "Command reply for stream ") {
			continue
		}
		kept = append([]string{l}, kept...)
	}
	s := red.text(strings.Join(kept, "; "))
	if len(s) > maxOutput {
		s = strings.ToValidUTF8(s[:maxOutput], "") + "..."
	}
	return s
}
