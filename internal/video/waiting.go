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
	// startProcessorTime is ffmpeg's additional processor time before the first frame, for loading libraries and
	// analysing the source.
	startProcessorTime = time.Second
	// leastCheck is the least time between two checks of the processor time.
	leastCheck = 20 * time.Millisecond
	// A deadline is extended in steps while ffmpeg waits for a processor: each step is a quarter of the time to the
	// deadline, at most maxStep. maxExtension bounds the sum of the steps.
	maxStep, maxExtension = time.Second, 50 * time.Second
)

// startTime is ffmpeg's additional processor time before the first frame. A camera sends frames before its next key
// frame, and ffmpeg decodes these frames without returning them: only the time-out bounds this work.
func startTime(scheme string, timeout time.Duration) time.Duration {
	if scheme == SchemeRTSP || scheme == SchemeRTSPS {
		return startProcessorTime + timeout
	}
	return startProcessorTime
}

// errProcessorTime is the error of a wait in which ffmpeg has used up its processor time.
var errProcessorTime = errors.New("ffmpeg has used up its processor time")

// waiting is the wait for ffmpeg's next frame: until a deadline, or until ffmpeg has used too much processor time
// without a frame. An ffmpeg that waits for its source or for a processor uses no processor time. Except on Linux,
// the processor time of a running ffmpeg is unknown, and not bounded.
//
// The deadline is extended, by at most maxExtension, while ffmpeg waits for a processor most of the time: an ffmpeg of
// a client is nice and gets little time while other programs use all processors. The deadline holds for an ffmpeg that
// hangs, or waits for its source. Except on Linux no deadline is extended.
//
// setDeadline and report may be called by any goroutine; calls of Read, until, frame and tooMuch must not overlap.
type waiting struct {
	ffmpeg  *child.Process
	setting time.Duration                // Options.MaxTime
	max     time.Duration                // processor time for a frame; 0 = no bound
	used    func(time.Duration)          // Options.Used
	delayed func() (time.Duration, bool) // child.Process.RunDelay
	from    time.Duration                // processor time at the last frame
	start   time.Duration                // additional processor time; 0 after the first frame

	mu       sync.Mutex
	deadline time.Time     // zero = none
	step     time.Duration // of the deadline's extension; the run delay is first read a step before the deadline
	measured bool          // the run delay was read since setDeadline
	delay    time.Duration // the run delay last read
	extended time.Duration // sum of the steps since setDeadline
	check    time.Time     // when the processor time is checked; zero = never
	reported time.Duration // to used
}

// newWaiting returns the wait for frames returned at a rate of at most fps a second, 0 for no bound.
func newWaiting(p *child.Process, maxTime time.Duration, fps float64, used func(time.Duration)) *waiting {
	return &waiting{ffmpeg: p, setting: maxTime, max: maxTimeOfFrame(maxTime, fps), used: used,
		delayed: p.RunDelay, start: startProcessorTime}
}

// maxTimeOfFrame is ffmpeg's processor time without a frame. Below one frame a second, ffmpeg also decodes the frames
// dropped by FPS.
func maxTimeOfFrame(maxTime time.Duration, fps float64) time.Duration {
	if fps > 0 && fps < 1 {
		return time.Duration(min(float64(maxTime)/fps, math.MaxInt64/4))
	}
	return maxTime
}

// setDeadline sets the deadline, also of a wait in progress; the zero time removes the deadline.
func (w *waiting) setDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline, w.step, w.measured, w.extended = t, min(time.Until(t)/4, maxStep), false, 0
	w.apply()
}

// next returns when the run delay is read next, or the deadline of an ffmpeg that is not extended any more; zero =
// never. mu is held.
func (w *waiting) next() time.Time {
	if w.deadline.IsZero() || w.measured || w.step <= 0 {
		return w.deadline
	}
	return w.deadline.Add(-w.step)
}

// apply sets the deadline of reading to the next of the two times. mu is held.
func (w *waiting) apply() {
	at := w.next()
	if !w.check.IsZero() && (at.IsZero() || w.check.Before(at)) {
		at = w.check
	}
	_ = w.ffmpeg.Stdout.SetReadDeadline(at)
}

// Read reads ffmpeg's output. The error is os.ErrDeadlineExceeded when the deadline has passed, or when the processor
// time has to be checked.
func (w *waiting) Read(b []byte) (int, error) {
	for {
		n, err := w.ffmpeg.Stdout.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !w.extend() {
			return n, err
		}
	}
}

// extend reads the run delay, and reports whether reading continues: before the deadline, and after a step in which
// ffmpeg waited for a processor for at least half of the time, or at whose end ffmpeg waits for a processor.
func (w *waiting) extend() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, at := time.Now(), w.next()
	if w.step <= 0 || at.IsZero() || now.Before(at) || w.extended >= maxExtension {
		return false
	}
	delay, runnable := w.delayed()
	if w.measured {
		if !runnable && delay-w.delay < w.step/2 {
			return false
		}
		w.extended += w.step
	}
	w.measured, w.delay, w.deadline = true, delay, now.Add(w.step)
	w.apply()
	return true
}

// extension returns by how much the deadline was extended.
func (w *waiting) extension() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.extended
}

// until waits until ffmpeg begins to write a frame. The error is a reading error, os.ErrDeadlineExceeded after the
// deadline, or errProcessorTime.
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
		if w.expired() {
			return err
		}
	}
}

// checkAfter schedules the check of the processor time for when a single thread may have used half of left, or never
// if left is 0.
func (w *waiting) checkAfter(left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check = time.Time{}
	if left > 0 {
		w.check = time.Now().Add(max(left/2, leastCheck))
	}
	w.apply()
}

// expired reports whether the deadline has passed.
func (w *waiting) expired() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.deadline.IsZero() && !time.Now().Before(w.deadline)
}

// frame records that a frame has begun.
func (w *waiting) frame() {
	if w.max > 0 || w.used != nil {
		w.from, w.start = max(w.from, w.report()), 0
	}
}

// report passes the processor time since the last call to used, and returns the total.
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

// processorTimeDetail is the detail of the error of a source for errProcessorTime.
func (w *waiting) processorTimeDetail() string {
	return fmt.Sprintf("ffmpeg has used %v of processor time without a picture, over limits.max_decode_time=%v: "+
		"raise it, or use a video with fewer pixels", (w.report() - w.from).Round(time.Millisecond), w.setting)
}
