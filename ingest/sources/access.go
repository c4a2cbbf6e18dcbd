package sources

import (
	"fmt"
	"net/netip"

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

// Public allows what is not a private address: video.Options.Allow for what a
// request named.
func Public(a netip.Addr) error {
	if video.IsPrivateAddr(a) {
		return fmt.Errorf("%v is a private address: sources.allow_private allows those", a)
	}
	return nil
}

// Code is the code of a source's error.
func Code(err error) stream.Code { return stream.CodeOf(err) }
