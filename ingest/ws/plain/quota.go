package plain

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/ctxio"
	"millrace/internal/video"
	"millrace/stream"
)

const (
	// maxDebt is the longest time to repay used quota without closing the camera: opening a camera takes processor
	// time, and cameras tolerate no opening every second.
	maxDebt = 5 * time.Second
	// longestSleep bounds the delay until a change of the quota is noticed.
	longestSleep = time.Second
	// openings is the number of attempts to open a closed camera again before the video ends.
	openings = 4
	// The bounds of the wait between two attempts.
	minBackoff, maxBackoff = time.Second, 8 * time.Second
)

// errOverQuota ends the reading of a camera.
var errOverQuota = errors.New("the client is over its quota of decoding")

// isCamera reports whether the source at the address sends at its own pace: without a reader, a camera discards parts
// of pictures or ends the connection, and must therefore be closed. An HTTP server waits for the reader, and
// reopening a video without a known length starts from the beginning.
func isCamera(url string) bool {
	scheme, _ := video.ClassifyURL(url)
	return scheme == video.SchemeRTSP || scheme == video.SchemeRTSPS
}

// owes reports whether the client exceeds its quota so far that a camera must be closed, and counts the refusal.
func (v *videoPull) owes() bool {
	of, now := v.puller.account(), stream.Now()
	return of.DecodeWait(now) > maxDebt && of.MayDecode(now) != nil
}

// awaitQuota waits while the client is over its decoding quota. awaitQuota returns false when ctx ends first.
func (v *videoPull) awaitQuota(ctx context.Context) bool {
	for {
		wait := v.puller.account().DecodeWait(stream.Now())
		if wait == 0 {
			return true
		}
		if !ctxio.Sleep(ctx, min(wait, longestSleep)) {
			return false
		}
	}
}

// openAgain opens a closed camera again when the quota permits.
func (v *videoPull) openAgain(ctx context.Context, m *stream.Model) (*video.Reader, error) {
	wait := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for n := 1; ; n++ {
		if !v.awaitQuota(ctx) {
			return nil, ctx.Err()
		}
		r, _, err := v.open(ctx, m)
		if err == nil {
			if err = v.chargeFor(r); err != nil {
				_ = r.Close()
				return nil, err
			}
			v.times.startOpening(stream.Now())
			return r, nil
		}
		if n == openings || !video.KindOf(err).Retry() || !ctxio.Sleep(ctx, wait.Next(rand.Float64())) {
			return nil, err
		}
	}
}

// frameTimes computes the times of frames of a video across several openings; each opening begins at 0.
type frameTimes struct {
	base int64          // of the present opening, in microseconds
	last int64          // time of the newest frame
	at   stream.Instant // arrival of the newest frame
}

// of returns the time of a frame arriving now.
func (t *frameTimes) of(captureUS int64, now stream.Instant) int64 {
	t.last, t.at = t.base+captureUS, now
	return t.last
}

// startOpening says that a new opening begins with the next frame.
func (t *frameTimes) startOpening(now stream.Instant) { t.base = t.last + now.Sub(t.at).Microseconds() }
