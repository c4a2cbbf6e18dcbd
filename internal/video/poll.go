package video

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"
)

const (
	// pollTimeout bounds a request for a picture.
	pollTimeout = 10 * time.Second
	// pollFailures is the allowed number of consecutive failed requests.
	pollFailures = 3
)

// poller requests pictures one by one from an address that answers with a single picture. A poller is for one
// goroutine.
type poller struct {
	web   *web
	ctx   context.Context
	every time.Duration
	max   int // bytes of a picture

	due     time.Time // of the next request
	failed  int       // requests since the last picture
	picture []byte
	of      size
	first   bool   // the picture has not been returned yet
	tag     string // of the picture, see HTTP's ETag
}

// newPoller requests the first picture.
func (w *web) newPoller(ctx context.Context, o *Options) (*poller, error) {
	p := &poller{web: w, ctx: ctx, every: o.Poll, max: o.MaxFrameBytes, due: time.Now().Add(o.Poll), first: true}
	return p, p.get()
}

// get requests a picture. The error is an *Error or ctx's. An unchanged picture is kept.
func (p *poller) get() error {
	ctx, cancel := context.WithTimeout(p.ctx, pollTimeout)
	defer cancel()
	header := http.Header{}
	if p.tag != "" {
		header.Set("If-None-Match", p.tag)
	}
	fail := func(kind Kind, format string, args ...any) error {
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		return p.web.src.fail(kind, p.web.src.red.text(fmt.Sprintf(format, args...)), nil)
	}
	resp, err := p.web.get(ctx, header)
	if err != nil {
		if ctx.Err() != nil {
			return fail(Timeout, "waited %v for a picture", pollTimeout)
		}
		return fail(Refused, "%v", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		if p.picture != nil {
			return nil
		}
		return fail(Refused, "%s", answered(resp.StatusCode))
	case http.StatusUnauthorized, http.StatusForbidden:
		return fail(Auth, "%s", answered(resp.StatusCode))
	case http.StatusNotFound, http.StatusGone:
		return fail(NotFound, "%s", answered(resp.StatusCode))
	default:
		return fail(Refused, "%s", answered(resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(p.max)+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(Timeout, "waited %v for a picture", pollTimeout)
	case err != nil:
		return fail(EndedEarly, "%v", err)
	case len(body) > p.max:
		return fail(TooLarge, "a picture of more than %d bytes: without poll, if it is a video", p.max)
	}
	one := jpegReader{r: bytes.NewReader(body), max: math.MaxInt, clock: time.Now}
	picture, of, _, err := one.next()
	if err != nil {
		return fail(NotVideo, "poll reads JPEG pictures, and this is %q of %d bytes", resp.Header.Get("Content-Type"),
			len(body))
	}
	p.picture, p.of, p.tag = picture, of, resp.Header.Get("ETag")
	return nil
}

// next implements pictureSource: next waits until the next picture is due. Single requests may fail.
func (p *poller) next() (picture []byte, of size, at time.Time, err error) {
	if p.first {
		p.first = false
		return p.picture, p.of, time.Now(), nil
	}
	for {
		select {
		case <-time.After(time.Until(p.due)):
		case <-p.ctx.Done():
			return nil, size{}, time.Time{}, io.EOF
		}
		err := p.get()
		// The interval stays the same: missed pictures are left out.
		if p.due = p.due.Add(p.every); time.Until(p.due) < 0 {
			p.due = p.due.Add((time.Since(p.due)/p.every + 1) * p.every)
		}
		if err == nil {
			p.failed = 0
			return p.picture, p.of, time.Now(), nil
		}
		if p.failed++; p.failed >= pollFailures {
			return nil, size{}, time.Time{}, err
		}
	}
}
