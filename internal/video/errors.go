package video

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"millrace/stream/coded"
)

// ErrClosed is what Next returns after Close.
var ErrClosed = errors.New("video: the reader is closed")

// Kind classifies the error of a source.
type Kind string

const (
	FFmpegMissing Kind = "ffmpeg_missing" // the program is not installed
	NotFound      Kind = "not_found"      // no such file, host, or path on the server
	Refused       Kind = "refused"        // nobody listens, the host cannot be reached, or the server has an error
	Auth          Kind = "auth"           // password wrong or missing, or permission denied
	Forbidden     Kind = "forbidden"      // it, or a redirect of it, has an address that Options.Allow refuses
	Busy          Kind = "busy"           // another program has the device
	Timeout       Kind = "timeout"        // no first frame within StartTimeout
	NotVideo      Kind = "not_video"      // it was read and has no video
	Unsupported   Kind = "unsupported"    // a protocol or codec that is not allowed or not known
	TooLarge      Kind = "too_large"      // its pictures have more pixels than Options.MaxPixels
	TooSlow       Kind = "too_slow"       // ffmpeg used more processor time than Options.MaxTime without a frame
	Stalled       Kind = "stalled"        // no frame within StallTimeout
	EndedEarly    Kind = "ended_early"    // it ended early: truncated, connection lost, or the decoder gave up
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
	// Detail says more than the kind, often in ffmpeg's last lines of output, redacted; may be empty.
	Detail string
	// Err is the cause, or nil.
	Err error
}

func (e *Error) Error() string {
	s := "video: " + e.URL + ": " + kindText[e.Kind]
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

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

// KindOf returns the kind of a source's error, or "" for any other error.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// Retry reports whether the same source may work later without a change of its settings.
func (k Kind) Retry() bool {
	switch k {
	case Refused, Busy, Timeout, Stalled, EndedEarly, Killed, NotFound:
		return true
	}
	return false
}

// messageKinds maps messages of ffmpeg and its libraries to kinds. The first that occurs decides, so specific ones stand
// first. The texts are those of av_strerror and of the protocols, which have been stable for many years.
var messageKinds = []struct {
	kind Kind
	text string
}{
	{TooLarge, "exceeds specified max pixel count"},
	{TooLarge, noMemory},
	{Auth, "401 Unauthorized"},
	{Auth, "403 Forbidden"},
	{Auth, "authorization failed"},
	{Auth, "access denied"},
	{Auth, "Permission denied"},
	{Auth, "Operation not permitted"},
	{NotVideo, "Not a video capture device"}, // "No such device" follows
	{NotVideo, "Inappropriate ioctl for device"},
	{NotFound, "404 Not Found"},
	{NotFound, "410 Gone"},
	{NotFound, "Failed to resolve hostname"},
	{NotFound, "Name or service not known"},
	{NotFound, "No such file or directory"},
	{NotFound, "No such device"},
	{Unsupported, "not on whitelist"},
	{Unsupported, "Protocol not found"},
	{Unsupported, "Decoder not found"},
	{Unsupported, "Unknown input format"},
	{Unsupported, "Unrecognized option"},
	{Unsupported, "Option not found"},
	{Unsupported, "Error splitting the argument list"},
	{Refused, "Connection refused"},
	{Refused, "No route to host"},
	{Refused, "Network is unreachable"},
	{Refused, "Server returned 4XX"},
	{Refused, "Server returned 5XX"},
	{Refused, "Server returned 400"},
	{Busy, "Device or resource busy"},
	{Timeout, "Connection timed out"},
	{Timeout, "Operation timed out"},
	{EndedEarly, "Connection reset by peer"},
	{EndedEarly, "Broken pipe"},
	{NotVideo, "matches no streams"},
	{NotVideo, "does not contain any stream"},
	{NotVideo, "Is a directory"},
	{NotVideo, "moov atom not found"},
	{NotVideo, "Invalid data found"},
	{NotVideo, "End of file"},
	{EndedEarly, "Input/output error"},
}

func kindFromText(text string) (Kind, bool) {
	// The MP4 demuxer also reports this for files that it took for MP4 by name alone.
	if strings.Contains(text, "moov atom not found") && !strings.Contains(text, "misdetection possible") {
		return EndedEarly, true
	}
	for _, c := range messageKinds {
		if strings.Contains(text, c.text) {
			return c.kind, true
		}
	}
	return "", false
}

var (
	largePicture = regexp.MustCompile(`Picture size ([0-9]{1,9})x([0-9]{1,9}) exceeds specified max pixel count`)
	missingPart  = regexp.MustCompile(`offset 0x([0-9a-f]{1,16}): partial file`)
	httpEnd      = regexp.MustCompile(`Stream ends prematurely at ([0-9]{1,20}), `)
)

const (
	indexMissing = "the file's index is missing: it is cut short or still being written"
	indexLast    = "the file's index is at its end, and the server does not send parts of files: convert it with ffmpeg -i IN -c copy -movflags +faststart OUT"
)

// explain returns the kind and the detail of an error that ffmpeg or ffprobe has reported, before the first frame. result
// is a message besides stderr.
func explain(stderr, result string, red redactor) (Kind, string) {
	switch format := refusedFormat(stderr); format {
	case "":
	case "tty":
		return NotVideo, "it is a text file"
	default:
		return Unsupported, "the format " + format + " is not among those that are read"
	}
	kind, ok := kindFromText(stderr + result)
	switch {
	case kind == TooLarge:
		if f := largePicture.FindStringSubmatch(stderr); f != nil {
			return kind, tooLarge(digits(f[1]), digits(f[2]))
		}
		if strings.Contains(stderr, noMemory) {
			return kind, needsMemory
		}
	case kind == EndedEarly && strings.Contains(stderr, "moov atom not found"):
		return kind, indexMissing
	case kind == EndedEarly && needsParts(stderr):
		return Unsupported, indexLast
	case !ok:
		kind = Unsupported
	}
	return kind, detailFrom(stderr, red)
}

func tooLarge(w, h int) string {
	return fmt.Sprintf("they have %d x %d pixels: raise limits.max_pixels to %d", w, h, w*h)
}

// needsParts reports whether the offset at which ffmpeg misses a part of a file is that at which the response to its
// request of this part has ended. The offsets differ when a connection is lost.
func needsParts(stderr string) bool {
	part, end := missingPart.FindStringSubmatch(stderr), httpEnd.FindStringSubmatch(stderr)
	if part == nil || end == nil {
		return false
	}
	from, err1 := strconv.ParseUint(part[1], 16, 64)
	at, err2 := strconv.ParseUint(end[1], 10, 64)
	return err1 == nil && err2 == nil && from == at
}

// cutShort are messages of ffmpeg for input that ended too early.
var cutShort = []string{
	"partial file",
	"Stream ends prematurely",
	"File ended prematurely",
	"Truncated",
	"Connection reset by peer",
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

const maxDetail = 300

// detailFrom returns the last two lines of standard error that have information.
func detailFrom(stderr string, red redactor) string {
	var kept []string
	lines := strings.FieldsFunc(stderr, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0 && len(kept) < 2; i-- {
		l := strings.TrimSpace(component.ReplaceAllString(namesRefused(lines[i]), ""))
		if l == "" || strings.HasPrefix(l, "Last message repeated") || strings.Contains(l, "misdetection possible") {
			continue
		}
		if strings.HasPrefix(l, "Enter command: ") || strings.HasPrefix(l, "Command reply for stream ") { // of a resizer's commands
			continue
		}
		kept = append([]string{l}, kept...)
	}
	s := red.text(strings.Join(kept, "; "))
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "..."
	}
	return s
}
