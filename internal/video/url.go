package video

import (
	"fmt"
	"net/url"
	"strings"
)

// Schemes of sources, as returned by ClassifyURL.
const (
	SchemeFile  = "file"
	SchemeHTTP  = "http"
	SchemeHTTPS = "https"
	SchemeRTSP  = "rtsp"
	SchemeRTSPS = "rtsps"
	SchemeRTMP  = "rtmp"
	SchemeRTMPS = "rtmps"
	SchemeV4L2  = "v4l2"
	SchemeExec  = "exec"
)

// protocols are the protocols allowed to ffmpeg for each scheme, for the address, its redirects and the entries of
// its playlists: a network address never gets access to the file system.
var protocols = map[string][]string{
	SchemeFile:  {"file"},
	SchemeHTTP:  {"http", "https", "tcp", "tls", "crypto"},
	SchemeHTTPS: {"http", "https", "tcp", "tls", "crypto"},
	SchemeRTSP:  {"rtsp", "rtp", "udp", "tcp", "tls"},
	SchemeRTSPS: {"rtsp", "rtsps", "rtp", "srtp", "udp", "tcp", "tls"},
	SchemeRTMP:  {"rtmp", "tcp"},
	SchemeRTMPS: {"rtmps", "rtmp", "tcp", "tls"},
	SchemeV4L2:  {"file"},
	SchemeExec:  {"pipe"},
}

// Protocols returns the default allow-list for a scheme, nil for an unknown scheme.
func Protocols(scheme string) []string { return append([]string(nil), protocols[scheme]...) }

// ClassifyURL returns the scheme of a source, from the form alone, without access to the file system or the network;
// the caller decides whether the source is allowed.
//
//	clip.mp4, ./a:b.mp4, /x/y.mkv, file:NAME, file:///x/y.mkv   file
//	http://HOST/..., https, rtsp, rtsps, rtmp, rtmps            themselves
//	/dev/videoN, v4l2:/dev/videoN                               v4l2
//	exec:PROGRAM ARG ...                                        exec
//
// A word followed by a colon is always a scheme, so "concat:" or "pipe:" cannot reach ffmpeg in a file name; write a
// file name of this form as ./NAME or file:NAME. The error does not contain the address.
func ClassifyURL(raw string) (scheme string, err error) {
	s, _, err := parseSource(raw)
	return s, err
}

func isNetwork(scheme string) bool {
	switch scheme {
	case SchemeFile, SchemeV4L2, SchemeExec:
		return false
	}
	return true
}

// isLive reports whether frames come at playback speed, unless the source is a recording. HTTP and programs may be
// faster.
func isLive(scheme string) bool {
	switch scheme {
	case SchemeRTSP, SchemeRTSPS, SchemeRTMP, SchemeRTMPS:
		return true
	}
	return false
}

// parseSource returns the scheme and ffmpeg's target: a path, a device, a command, or an address. Addresses are
// parsed and formatted again, so that ffmpeg cannot read another host from the text.
func parseSource(raw string) (scheme, target string, err error) {
	switch {
	case strings.TrimSpace(raw) == "":
		return "", "", fmt.Errorf("video: the source is empty; want a file, a device or an address such as " +
			"rtsp://HOST/PATH")
	case strings.IndexByte(raw, 0) >= 0 || strings.ContainsAny(raw, "\r\n"):
		return "", "", fmt.Errorf("video: the source contains a line break or a zero byte")
	}
	word, rest, ok := cutScheme(raw)
	if !ok {
		if strings.HasPrefix(raw, "/dev/video") {
			return SchemeV4L2, raw, nil
		}
		return SchemeFile, raw, nil
	}
	switch word {
	case SchemeFile:
		path, err := filePath(rest)
		return SchemeFile, path, err
	case SchemeV4L2:
		path := strings.TrimPrefix(rest, "//")
		if !strings.HasPrefix(path, "/dev/") {
			return "", "", fmt.Errorf("video: a v4l2 source is a device under /dev, such as v4l2:/dev/video0")
		}
		return SchemeV4L2, path, nil
	case SchemeExec:
		if strings.TrimSpace(rest) == "" {
			return "", "", fmt.Errorf("video: an exec source needs a program, such as exec:rpicam-vid -t 0 -o -")
		}
		return SchemeExec, rest, nil
	case SchemeHTTP, SchemeHTTPS, SchemeRTSP, SchemeRTSPS, SchemeRTMP, SchemeRTMPS:
		if i := strings.IndexAny(strings.TrimPrefix(rest, "//"), "/?#"); i >= 0 &&
			strings.Contains(strings.TrimPrefix(rest, "//")[i:], "@") {
			return "", "", fmt.Errorf("video: the %s address has an @ behind a /, ? or #, so that its password "+
				"cannot be told from its host: "+
				"write %%40 for @, %%23 for #, %%2F for / and %%3F for ? in a user name or password, and %%40 for "+
				"each @ of a path", word)
		}
		u, err := url.Parse(word + ":" + rest)
		if err != nil { // url.Error would repeat the password
			return "", "", fmt.Errorf("video: the %s address cannot be parsed; special characters in a password are "+
				"written as %%40 and the like", word)
		}
		if u.Opaque != "" || u.Hostname() == "" {
			return "", "", fmt.Errorf("video: the %s address has no host; want %s://HOST/PATH", word, word)
		}
		if strings.ContainsAny(u.Host, ", \t\\'\"") {
			return "", "", fmt.Errorf("video: the host of the %s address contains characters that no host has", word)
		}
		u.Fragment, u.RawFragment = "", ""
		return word, u.String(), nil
	}
	return "", "", &UnknownSchemeError{word}
}

// UnknownSchemeError is the error of an address with a scheme not allowed to ffmpeg.
type UnknownSchemeError struct{ Scheme string }

// Error implements error.
func (e *UnknownSchemeError) Error() string {
	return fmt.Sprintf("video: %q is an unknown kind of source; want a file, http, https, rtsp, rtsps, rtmp, rtmps, "+
		"v4l2 or exec (a file whose name has a colon is written as ./NAME)", e.Scheme)
}

// cutScheme splits "word:rest", with the word in lower case. A single letter and a word with a slash, a blank or a
// digit in front are no scheme.
func cutScheme(raw string) (word, rest string, ok bool) {
	word, rest, ok = strings.Cut(raw, ":")
	if !ok || len(word) < 2 {
		return "", "", false
	}
	for i, r := range word {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		other := r >= '0' && r <= '9' || strings.ContainsRune("+-._,", r)
		if !letter && (i == 0 || !other) {
			return "", "", false
		}
	}
	return strings.ToLower(word), rest, true
}

// filePath parses the text after "file:": with "//" a percent-encoded URL, else a plain path.
func filePath(rest string) (string, error) {
	if !strings.HasPrefix(rest, "//") {
		if rest == "" {
			return "", fmt.Errorf("video: a file source needs a path, such as file:clip.mp4")
		}
		return rest, nil
	}
	host, path, _ := strings.Cut(rest[2:], "/")
	if host != "" && host != "localhost" {
		return "", fmt.Errorf("video: a file address names a file of this machine; want file:///PATH")
	}
	path, err := url.PathUnescape("/" + path)
	if err != nil || path == "/" || strings.ContainsAny(path, "\x00\r\n") {
		return "", fmt.Errorf("video: the file address has no valid path; want file:///PATH")
	}
	return path, nil
}

// splitCommand splits a command into words at blanks. Single and double quotes keep blanks. There are no escapes,
// variables or patterns, because no shell runs the command.
func splitCommand(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord := false
	for _, r := range s {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("video: the exec command has an open quote (%c)", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
