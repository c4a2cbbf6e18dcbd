package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"millrace/internal/codec"
	"millrace/internal/video"
)

const (
	maxPicture = 256 << 20
	// fetchTimeout bounds the download of a picture.
	fetchTimeout = 30 * time.Second
)

// readPicture returns the bytes of a source that is a picture: a file, or a URL whose path ends like a picture's. For
// other sources, and for a file that cannot be opened, readPicture returns nil; video.Open then returns the error.
func readPicture(ctx context.Context, source string) ([]byte, error) {
	scheme, err := video.ClassifyURL(source)
	if err != nil {
		return nil, nil
	}
	switch scheme {
	case video.SchemeFile:
		f, err := os.Open(strings.TrimPrefix(source, "file:"))
		if err != nil {
			return nil, nil
		}
		defer func() { _ = f.Close() }()
		if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
			return nil, nil
		}
		return pictureOf(f)
	case video.SchemeHTTP, video.SchemeHTTPS:
		// The name decides: a request would be a second connection, and some cameras allow only one.
		u, err := url.Parse(source)
		if err != nil {
			return nil, nil
		}
		switch strings.ToLower(path.Ext(u.Path)) {
		case ".jpg", ".jpeg", ".png", ".webp":
			return fetch(ctx, source)
		}
	}
	return nil, nil
}

// pictureOf reads r to its end if r begins like a picture, and returns nil otherwise.
func pictureOf(r io.Reader) ([]byte, error) {
	head := make([]byte, 64)
	n, _ := io.ReadFull(r, head)
	if codec.Sniff(head[:n]) == codec.Unknown {
		return nil, nil
	}
	rest, err := io.ReadAll(io.LimitReader(r, maxPicture))
	if err != nil {
		return nil, fmt.Errorf("play: the picture cannot be read: %w", err)
	}
	if len(rest) == maxPicture {
		return nil, fmt.Errorf("play: the picture is larger than %d MiB", maxPicture>>20)
	}
	return append(head[:n], rest...), nil
}

// fetch downloads a picture. fetch returns nil for a reply that is not a picture, for example the endless multipart
// reply of some cameras, for ffmpeg to read.
func fetch(ctx context.Context, source string) ([]byte, error) {
	failed := func(kind video.Kind, detail string, err error) ([]byte, error) {
		return nil, &video.Error{Kind: kind, URL: video.Redact(source), Detail: detail, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return nil, nil
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		var u *url.Error // the text repeats the address
		if errors.As(err, &u) {
			err = u.Err
		}
		if ctx.Err() != nil {
			return failed(video.Timeout, fmt.Sprintf("no picture within %v", fetchTimeout), err)
		}
		return failed(video.Refused, err.Error(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		return pictureOf(resp.Body)
	case http.StatusNotFound, http.StatusGone:
		return failed(video.NotFound, resp.Status, nil)
	case http.StatusUnauthorized, http.StatusForbidden:
		return failed(video.Auth, resp.Status, nil)
	}
	return failed(video.Refused, resp.Status, nil)
}
