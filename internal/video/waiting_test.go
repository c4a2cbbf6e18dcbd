package video

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// needCPU skips a test where the processor time of a running child is unknown.
func needCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the processor time of a child that runs is not known here")
	}
}

// startWaiting starts a Python script. wait waits for a byte from the script, for at most the processor time most,
// and reads the byte.
func startWaiting(t *testing.T, script string, most time.Duration) (wait func() error, used *atomic.Int64) {
	t.Helper()
	needCPU(t)
	p, err := child.Start(t.Context(), child.Spec{Path: testneeds.Python(t), Args: []string{"-c", script}})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = p.Stop(0) })
	used = new(atomic.Int64)
	w := newWaiting(p, most, 0, func(d time.Duration) { used.Add(int64(d)) })
	n := newNutReader(w)
	w.setDeadline(time.Now().Add(time.Minute))
	return func() error {
		if err := w.until(n); err != nil {
			return err
		}
		w.frame()
		_, err := n.r.ReadByte()
		return err
	}, used
}

// A child may use its processor time for each frame, however many frames, and a second more before the first frame.
func TestProcessorTimeOfEachFrame(t *testing.T) {
	const most, each = 200 * time.Millisecond, 150 * time.Millisecond
	wait, used := startWaiting(t, `
import os, time
def burn(s):
    end = time.process_time() + s
    while time.process_time() < end: pass
burn(0.5) # the start, with that of Python
for _ in range(5):
    burn(0.15)
    os.write(1, b"x")
while True: pass
`, most)
	for i := range 5 {
		if err := wait(); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if all := time.Duration(used.Load()); all < 500*time.Millisecond+5*each {
		t.Errorf("%v are reported", all)
	}
	before := time.Duration(used.Load())
	if err := wait(); err != errProcessorTime {
		t.Errorf("without a further frame: %v", err)
	}
	if took := time.Duration(used.Load()) - before; took < most || took > 2*most+leastCheck {
		t.Errorf("it was ended after %v of processor time, want %v", took, most)
	}
}

// A child that uses no processor time (its source sends nothing, or the processors are busy) waits for its deadline.
func TestWaitingUsesNoProcessorTime(t *testing.T) {
	needCPU(t)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		<-q.Context().Done()
	}))
	defer silent.Close()
	refuse(t, Options{URL: silent.URL + "/x.mp4", StartTimeout: 500 * time.Millisecond, MaxTime: time.Millisecond},
		Timeout)
	wait, _ := startWaiting(t, "import os, time\nos.write(1, b'x')\ntime.sleep(0.5)\nos.write(1, b'x')\nwhile True: "+
		"time.sleep(0.01)", 100*time.Millisecond)
	for range 2 {
		if err := wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// The deadline holds, even if set during a wait, and while reading a frame that has begun.
func TestDeadlineWhileWaiting(t *testing.T) {
	p, err := child.Start(t.Context(), child.Spec{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	w := newWaiting(p, 100*time.Millisecond, 0, nil)
	n := newNutReader(w)
	ended := make(chan error)
	go func() { ended <- w.until(n) }()
	w.setDeadline(time.Now().Add(-time.Second))
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if _, err := n.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading: %v", err)
	}
	begun := time.Now()
	w.setDeadline(begun.Add(300 * time.Millisecond)) // some checks of the processor time before
	if err := w.until(n); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}

// A deadline is extended while the child waits for a processor, up to a bound; the extended deadline also holds while
// reading a frame.
func TestDeadlineOfBusyProcessors(t *testing.T) {
	for name, c := range map[string]struct {
		script   string
		max      time.Duration // of processor time
		delay    time.Duration // by which the run delay grows
		runnable bool
		extended time.Duration // before
		want     error
	}{
		"delayed":  {"sleep 0.5; printf a; sleep 0.5; printf b", 0, time.Hour, false, 0, nil},
		"limited":  {"sleep 0.5; printf a; sleep 0.5; printf b", time.Minute, time.Hour, false, 0, nil},
		"runnable": {"sleep 0.5; printf a; sleep 0.5; printf b", 0, 0, true, 0, nil},
		"hanging":  {"sleep 1000", 0, time.Millisecond, false, 0, os.ErrDeadlineExceeded},
		"too long": {"sleep 1000", time.Minute, time.Hour, true, maxExtension, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := child.Start(t.Context(), child.Spec{Path: "sh", Args: []string{"-c", c.script}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Stop(0) }()
			w := newWaiting(p, c.max, 0, nil)
			var delay time.Duration
			w.delayed = func() (time.Duration, bool) {
				delay += c.delay
				return delay, c.runnable
			}
			w.setDeadline(time.Now().Add(100 * time.Millisecond))
			w.mu.Lock()
			w.extended = c.extended
			w.mu.Unlock()
			n := newNutReader(w)
			var got [2]byte
			if err = w.until(n); err == nil {
				_, err = io.ReadFull(n.r, got[:])
			}
			if !errors.Is(err, c.want) || err == nil && string(got[:]) != "ab" {
				t.Errorf("%q, %v", got, err)
			}
			if e := w.extension(); e > c.extended != (c.want == nil) {
				t.Errorf("extended by %v", e)
			}
		})
	}
}

// A nice ffmpeg that shares a processor with a busy program decodes, although its start takes longer than the
// time-out.
func TestStarvedDecoder(t *testing.T) {
	busy, err := child.Start(t.Context(), child.Spec{Path: testneeds.Program(t, "taskset"),
		Args: []string{"-c", "0", "sh", "-c", "while :; do :; done"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Stop(0) }()
	if _, runnable := busy.RunDelay(); !runnable {
		t.Skip("the kernel does not say for how long a process waits for a processor")
	}
	d, err := NewDecoder(t.Context(), DecoderOptions{Codec: VP9, Width: 640, Height: 360, Nice: ClientNice,
		FFmpeg: program(t, `exec taskset -c 0 ffmpeg "$@"`)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	d.SetDeadline(time.Now().Add(200 * time.Millisecond))
	if err := d.Write(videotest.Hidden(t, 640, 360, 1, 0)[0]); err != nil {
		t.Fatal(err)
	}
	if err = d.Start(); err == nil {
		_, err = d.Next()
	}
	if err == nil {
		err = d.Skip()
	}
	if err != nil || d.waiting.extension() == 0 {
		t.Errorf("%v, extended by %v", err, d.waiting.extension())
	}
}

// The processor time is not checked while reading a frame that has begun: the deadline holds.
func TestReadingWhatHasBegun(t *testing.T) {
	p, err := child.Start(t.Context(), child.Spec{Path: "sh", Args: []string{"-c", "printf ab; sleep 0.3; printf c"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	w := newWaiting(p, 100*time.Millisecond, 0, nil)
	n := newNutReader(w)
	w.setDeadline(time.Now().Add(time.Minute))
	for _, part := range []string{"a", "bc"} {
		if err := w.until(n); err != nil {
			t.Fatal(err)
		}
		w.frame()
		for i := range part {
			if b, err := n.r.ReadByte(); err != nil || b != part[i] {
				t.Fatalf("%q: %c %v", part, b, err)
			}
		}
	}
}

// An ffmpeg that decodes without returning a picture is ended, and the error names the setting: for a Decoder, and
// for a network source. The processor time used is reported.
func TestDecodingWithoutPictures(t *testing.T) {
	needCPU(t)
	const most = 50 * time.Millisecond
	list := videotest.Hidden(t, 640, 360, 1, 100)
	check := func(what string, err error, used time.Duration) {
		t.Helper()
		if KindOf(err) != TooSlow || !strings.Contains(err.Error(), "over limits.max_decode_time=50ms") {
			t.Errorf("%s: %v", what, err)
		}
		if used < most || used > 5*time.Second {
			t.Errorf("%s: %v of processor time are reported", what, used)
		}
	}
	var used atomic.Int64
	report := func(d time.Duration) { used.Add(int64(d)) }

	d, err := NewDecoder(t.Context(), DecoderOptions{Codec: VP9, Width: 640, Height: 360, MaxTime: most, Used: report})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for _, c := range list {
			if d.Write(c) != nil {
				return
			}
		}
	}()
	if err = d.Start(); err == nil {
		_, err = d.Next()
	}
	if err == nil {
		err = d.Skip()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Next()
	_ = d.Close()
	check("chunks", err, time.Duration(used.Load()))
	if got, want := time.Duration(used.Load()), d.ffmpeg.CPU(); got != want {
		t.Errorf("%v are reported of %v", got, want)
	}

	used.Store(0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(videotest.IVF("VP90", 640, 360, list))
	}))
	defer s.Close()
	r := open(t, Options{URL: s.URL + "/x.ivf", MaxTime: most, Used: report})
	n, err := readAll(r)
	_ = r.Close()
	check("a source", err, time.Duration(used.Load()))
	if got, want := time.Duration(used.Load()), r.ffmpeg.CPU(); got != want || n != 1 {
		t.Errorf("%v are reported of %v, after %d frames", got, want, n)
	}
	r = open(t, Options{URL: s.URL + "/x.ivf"})
	if n, err := readAll(r); n != 1 || err != io.EOF {
		t.Errorf("without a bound: %d frames, %v", n, err)
	}
}

// Frames dropped by FPS are decoded, and take time.
func TestProcessorTimeOfFewFrames(t *testing.T) {
	for fps, want := range map[float64]time.Duration{0: time.Second, 30: time.Second, 1: time.Second,
		0.25: 4 * time.Second, 1e-300: 1 << 60} {
		if got := maxTimeOfFrame(time.Second, fps); got < want || got > want && want < 1<<60 {
			t.Errorf("%v frames a second: %v, want %v", fps, got, want)
		}
	}
}

// Before its first key frame, a camera may use processor time for as long as the time-out lasts.
func TestProcessorTimeOfTheStart(t *testing.T) {
	for scheme, want := range map[string]time.Duration{SchemeRTSP: 11 * time.Second, SchemeRTSPS: 11 * time.Second,
		SchemeHTTP: time.Second, SchemeHTTPS: time.Second} {
		if got := startTime(scheme, 10*time.Second); got != want {
			t.Errorf("%s: %v, want %v", scheme, got, want)
		}
	}
}

// An ffprobe has no more processor time than time; the error says when the processor time is used up.
func TestProbeIsBounded(t *testing.T) {
	needCPU(t)
	for script, want := range map[string]struct {
		kind Kind
		text string
	}{`while [ "$(ulimit -t)" = unlimited ]; do :; done; echo "seconds: $(ulimit -t)" >&2`: {Unsupported,
		"seconds: 3"}, "kill -XCPU $$": {TooSlow, "processor time"}} {
		ffprobe := program(t, script)
		if _, err := Probe(t.Context(), Options{URL: "x.mp4", FFprobe: ffprobe,
			StartTimeout: 2500 * time.Millisecond}); KindOf(err) != want.kind ||
			!strings.Contains(err.Error()+OutputOf(err), want.text) {
			t.Errorf("%s: %v", script, err)
		}
	}
}
