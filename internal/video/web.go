package video

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// readByFFmpeg are the path endings of files and playlists with times; ffmpeg opens these without a look at their
// beginning.
var readByFFmpeg = []string{".m3u8", ".mpd", ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".ts", ".m2ts", ".flv", ".avi",
	".ogv", ".mpg"}

// web reads an HTTP source in this process.
type web struct {
	client http.Client
	source *url.URL // without user and password
	user   *url.Userinfo
	auth   challenge
	src    source
}

// newWeb returns the reader of an HTTP source that connects with d.
func newWeb(d *dialer, source *url.URL) *web {
	w := &web{user: source.User, src: d.src}
	own := *source
	own.User = nil
	w.source = &own
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return d.dial(ctx, address) },
		// cameras sign their certificates; ffmpeg does not verify them either
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec
		DisableCompression:  true,
		MaxIdleConns:        1,
		IdleConnTimeout:     time.Minute,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	if d.allow == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	w.client.Transport = t
	return w
}

// get requests the source, with user and password if the server asks for them. The response is the response to the
// last request.
func (w *web) get(ctx context.Context, header http.Header) (*http.Response, error) {
	for again := false; ; again = true {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.source.String(), nil)
		if err != nil {
			return nil, err
		}
		for name, values := range header {
			r.Header[name] = values
		}
		r.Header.Set("User-Agent", "Millrace")
		if a := w.auth.answer(w.user, r.Method, w.source.RequestURI()); a != "" {
			r.Header.Set("Authorization", a)
		}
		resp, err := w.client.Do(r)
		if err != nil {
			var of *url.Error
			if errors.As(err, &of) { // the error text has the address
				err = of.Err
			}
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized || again || w.user == nil ||
			resp.Request.URL.Host != w.source.Host || !w.auth.read(resp.Header.Values("WWW-Authenticate")) {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		_ = resp.Body.Close()
	}
}

// feed opens the source and returns a feed if the pictures have no times; nil if ffmpeg is to open the source, even
// if opening will fail, because ffmpeg states the reason.
func (w *web) feed(ctx context.Context, o *Options) (*feed, error) {
	ctx, end := context.WithCancel(ctx)
	cancel := func() {
		end()
		w.client.CloseIdleConnections()
	}
	if o.Poll > 0 {
		p, err := w.newPoller(ctx, o)
		if err != nil {
			cancel()
			return nil, err
		}
		return startFeed(ctx, motionJPEG, closers{io.NopCloser(nil), cancel}, func(to io.Writer) error {
			return copyPictures(to, p)
		})
	}
	if slices.Contains(readByFFmpeg, strings.ToLower(path.Ext(w.source.Path))) {
		cancel()
		return nil, nil
	}
	late := time.AfterFunc(cmp.Or(o.StartTimeout, DefaultStartTimeout), cancel)
	resp, err := w.get(ctx, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		if err == nil {
			_ = resp.Body.Close()
		}
		cancel()
		return nil, w.timeout(late, o)
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";") // cameras write malformed parameters
	kind = strings.ToLower(strings.TrimSpace(kind))
	is, body := timed, sniffed{}
	switch {
	case kind == "text/html":
		err = w.src.fail(NotVideo, "its server answers with a web page (text/html), perhaps to log in: use the "+
			"address of the stream itself", nil)
	case resp.ContentLength >= 0 && !isMultipart(kind): // a file
	default:
		if is, body = sniff(resp.Body); isMotionJPEG(kind) {
			is = motionJPEG
		}
	}
	if !late.Stop() && err == nil {
		err = w.timeout(late, o)
	}
	if err != nil || is == timed {
		_ = resp.Body.Close()
		cancel()
		return nil, err
	}
	body.Closer = closers{body.Closer, cancel}
	return newFeed(ctx, is, body, o.MaxFrameBytes)
}

// timeout returns an error if the time for opening the source is over.
func (w *web) timeout(late *time.Timer, o *Options) error {
	if late.Stop() {
		return nil
	}
	return w.src.fail(Timeout, fmt.Sprintf("waited %v for its server's answer", o.StartTimeout), nil)
}

// closers closes a body and ends its request.
type closers struct {
	io.Closer
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (c closers) Close() error {
	defer c.cancel() // also ends connections that become idle now
	return c.Closer.Close()
}

func isMultipart(kind string) bool { return strings.HasPrefix(kind, "multipart/") }

// isMotionJPEG reports whether a media type means consecutive JPEG pictures.
func isMotionJPEG(kind string) bool {
	switch kind {
	case "image/jpeg", "image/jpg", "image/pjpeg", "video/mjpeg", "video/x-mjpeg", "video/x-motion-jpeg", "video/jpeg":
		return true
	}
	return isMultipart(kind)
}
