package video

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"millrace/internal/child"
)

const (
	// startProcessorTime is what ffmpeg may use besides before its first frame: it loads its libraries and analyses the source.
	startProcessorTime = time.Second
	// leastCheck is the least time between two checks of the processor time.
	leastCheck = 20 * time.Millisecond
)

// startTime is what ffmpeg may use besides before its first frame. Who connects to a camera gets what it sends before its next key
// frame, which ffmpeg decodes and does not return: only the clock bounds that.
func startTime(scheme string, timeout time.Duration) time.Duration {
	if scheme == SchemeRTSP || scheme == SchemeRTSPS {
		return startProcessorTime + timeout
	}
	return startProcessorTime
}

// errProcessorTime is the end of a wait in which ffmpeg has used up its processor time.
var errProcessorTime = errors.New("ffmpeg has used up its processor time")

// waiting is the wait for ffmpeg's next frame: until a deadline, or until ffmpeg has used too much processor time without a
// frame. An ffmpeg that waits for its source, or for a processor, uses none. Elsewhere than on Linux the processor time of an
// ffmpeg that runs is not known, and not bounded.
//
// setDeadline and report may be called by any goroutine; until, frame and tooMuch are for one at a time.
type waiting struct {
	ffmpeg  *child.Process
	setting time.Duration       // Options.MaxTime
	max     time.Duration       // processor time for a frame; 0 = no bound
	used    func(time.Duration) // Options.Used
	from    time.Duration       // processor time at the last frame
	start   time.Duration       // that may be used besides; 0 after the first frame

	mu       sync.Mutex
	deadline time.Time     // zero = none
	check    time.Time     // when the processor time is checked; zero = never
	reported time.Duration // to used
}

// newWaiting returns the wait for frames of which at most fps a second are returned, 0 for all.
func newWaiting(p *child.Process, maxTime time.Duration, fps float64, used func(time.Duration)) *waiting {
	return &waiting{ffmpeg: p, setting: maxTime, max: maxTimeOfFrame(maxTime, fps), used: used, start: startProcessorTime}
}

// maxTimeOfFrame is the processor time that ffmpeg may use without a frame. Below one frame a second, it decodes what it does
// not return.
func maxTimeOfFrame(maxTime time.Duration, fps float64) time.Duration {
	if fps > 0 && fps < 1 {
		return time.Duration(min(float64(maxTime)/fps, math.MaxInt64/4))
	}
	return maxTime
}

// setDeadline sets the deadline, also of a wait in progress; the zero time removes it.
func (w *waiting) setDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	w.apply()
}

// apply sets the deadline of reading to the next of the two times. mu is held.
func (w *waiting) apply() {
	at := w.deadline
	if !w.check.IsZero() && (at.IsZero() || w.check.Before(at)) {
		at = w.check
	}
	_ = w.ffmpeg.Stdout.SetReadDeadline(at)
}

// until waits until ffmpeg begins to write a frame. Errors are those of reading, os.ErrDeadlineExceeded after the deadline,
// and errProcessorTime.
func (w *waiting) until(n *nutReader) error {
	if w.max == 0 {
		return nil // reading waits
	}
	defer w.checkAfter(0) // only the deadline holds for reading the frame
	for left := w.max + w.start; ; {
		w.checkAfter(left)
		_, err := n.r.Peek(1)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if left = w.from + w.max + w.start - w.report(); left <= 0 {
			return errProcessorTime
		}
		if w.over() {
			return err
		}
	}
}

// checkAfter says that the processor time is to be checked when one thread may have used half of what is left, or never if
// that is 0.
func (w *waiting) checkAfter(left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check = time.Time{}
	if left > 0 {
		w.check = time.Now().Add(max(left/2, leastCheck))
	}
	w.apply()
}

// over reports whether the deadline has passed.
func (w *waiting) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.deadline.IsZero() && !time.Now().Before(w.deadline)
}

// frame says that a frame has begun.
func (w *waiting) frame() {
	if w.max > 0 || w.used != nil {
		w.from, w.start = max(w.from, w.report()), 0
	}
}

// report tells used what ffmpeg has used since the last call, and returns what it has used in all.
func (w *waiting) report() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.ffmpeg.CPU()
	if since := all - w.reported; since > 0 {
		w.reported = all
		if w.used != nil {
			w.used(since)
		}
	}
	return all
}

// tooMuch is the detail of the error of a source for errProcessorTime.
func (w *waiting) tooMuch() string {
	return fmt.Sprintf("ffmpeg has used %v of processor time without a picture, over limits.max_decode_time=%v: raise it, or use a video with fewer pixels", (w.report() - w.from).Round(time.Millisecond), w.setting)
}
