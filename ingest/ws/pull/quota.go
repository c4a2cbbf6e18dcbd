package pull

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/video"
	"millrace/stream"
)

const (
	// most is how long a client may have to make up for what was decoded before a camera is closed: opening one takes processor
	// time, and a camera does not like to be opened every second.
	most = 5 * time.Second
	// longestSleep bounds the time after which a change of the quota is noticed.
	longestSleep = time.Second
	// openings is how often a camera that was closed is opened before its video ends.
	openings = 4
	// The bounds of the wait between two of them.
	minBackoff, maxBackoff = time.Second, 8 * time.Second
)

// errOverQuota ends the reading of a camera.
var errOverQuota = errors.New("the client is over its quota of decoding")

// isCamera reports whether the address is one that sends in its own time, whoever reads: when nobody does, it discards parts of
// pictures, or ends the connection. So it has to be closed. A server of HTTP waits, and a video without a known length begins
// anew when it is opened again.
func isCamera(url string) bool {
	scheme, _ := video.ClassifyURL(url)
	return scheme == video.SchemeRTSP || scheme == video.SchemeRTSPS
}

// owes reports, and counts, that the client is so far over its quota that a camera is closed.
func (v *pulled) owes() bool {
	of, now := v.puller.account(), stream.Now()
	return of.DecodeWait(now) > most && of.MayDecode(now) != nil
}

// awaitQuota waits while the client is over its quota of decoding. It returns false when ctx ends first.
func (v *pulled) awaitQuota(ctx context.Context) bool {
	for {
		wait := v.puller.account().DecodeWait(stream.Now())
		if wait == 0 {
			return true
		}
		if !sleep(ctx, min(wait, longestSleep)) {
			return false
		}
	}
}

// openAgain opens a camera that was closed, when the quota allows it.
func (v *pulled) openAgain(ctx context.Context, m *stream.Model) (*video.Reader, error) {
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
			v.times.goOn(stream.Now())
			return r, nil
		}
		if n == openings || !video.KindOf(err).Retry() || !sleep(ctx, wait.Next(rand.Float64())) {
			return nil, err
		}
	}
}

// times are those of the frames of a video that may be opened several times, which each begin at 0.
type times struct {
	base int64          // of the present opening, in microseconds
	last int64          // time of the newest frame
	at   stream.Instant // when it came
}

// of returns the time of a frame that comes now.
func (t *times) of(captureUS int64, now stream.Instant) int64 {
	t.last, t.at = t.base+captureUS, now
	return t.last
}

// goOn says that the next frame is the first of a new opening.
func (t *times) goOn(now stream.Instant) { t.base = t.last + now.Sub(t.at).Microseconds() }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
