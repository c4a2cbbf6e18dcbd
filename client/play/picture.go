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
	// fetchWait bounds the loading of a picture.
	fetchWait = 30 * time.Second
)

// readPicture returns the bytes of a source that is a picture: a file, or an
// address whose path is named like one. It returns nil for any other source, and
// for what cannot be opened as a file: video.Open says what is wrong with it.
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
		return takePicture(f)
	case video.SchemeHTTP, video.SchemeHTTPS:
		// By the name alone: asking each address would be a second connection to cameras that allow one.
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

// takePicture reads r to its end if it begins like a picture.
func takePicture(r io.Reader) ([]byte, error) {
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

// fetch loads a picture. An answer that is none, such as the endless picture of
// some cameras, is left to ffmpeg.
func fetch(ctx context.Context, source string) ([]byte, error) {
	failed := func(kind video.Kind, detail string, err error) ([]byte, error) {
		return nil, &video.Error{Kind: kind, URL: video.Redact(source), Detail: detail, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return nil, nil
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		var u *url.Error // its text repeats the address
		if errors.As(err, &u) {
			err = u.Err
		}
		if ctx.Err() != nil {
			return failed(video.Timeout, fmt.Sprintf("no picture within %v", fetchWait), err)
		}
		return failed(video.Refused, err.Error(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		return takePicture(resp.Body)
	case http.StatusNotFound, http.StatusGone:
		return failed(video.NotFound, resp.Status, nil)
	case http.StatusUnauthorized, http.StatusForbidden:
		return failed(video.Auth, resp.Status, nil)
	}
	return failed(video.Refused, resp.Status, nil)
}
