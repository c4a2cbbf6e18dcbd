package sources

import (
	"context"

	"millrace/internal/video"
	"millrace/stream"
)

// Check says by the form of an address whether a request may name it: http,
// https, rtsp and rtsps. Files, devices and commands come from the
// configuration only. Errors are *stream.Error about field and never repeat the
// address.
func Check(field, url string) error {
	scheme, err := video.ClassifyURL(url)
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, field, "%s", err.Error())
	}
	switch scheme {
	case video.SchemeHTTP, video.SchemeHTTPS, video.SchemeRTSP, video.SchemeRTSPS:
		return nil
	}
	return stream.Errorf(stream.PermissionDenied, field, "%s: sources come from the server's configuration only; a request may name http, https, rtsp and rtsps", scheme)
}

// Reach refuses an address whose host is, or leads to, a private one. It looks
// the name up, so ask right before opening. Errors are *stream.Error about
// field: NotFound for a name that nobody knows, PermissionDenied for a private
// address.
func Reach(ctx context.Context, field, url string) error {
	host, err := video.Host(url)
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, field, "%s", err.Error())
	}
	private, err := video.IsPrivateHost(ctx, host)
	switch {
	case err != nil:
		return stream.Errorf(stream.NotFound, field, "the host %s is not known", short(host))
	case private:
		return stream.Errorf(stream.PermissionDenied, field, "the host %s is a private address: sources.allow_private allows those", short(host))
	}
	return nil
}

// Code is the code of a source's error.
func Code(err error) stream.Code {
	switch video.KindOf(err) {
	case video.NotFound:
		return stream.NotFound
	case video.Auth:
		return stream.PermissionDenied
	case video.Refused, video.EndedEarly, video.Busy, video.Killed:
		return stream.Unavailable
	case video.Timeout, video.Stalled:
		return stream.Timeout
	case video.NotVideo, video.Unsupported, video.FFmpegMissing:
		return stream.Unsupported
	}
	return stream.CodeOf(err)
}

// short keeps a host from filling a log.
func short(host string) string {
	if len(host) > 100 {
		return host[:100] + "..."
	}
	return host
}
