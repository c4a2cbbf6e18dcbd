package video

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"time"
)

// drain reads a whole NUT stream as Reader does.
func drain(r io.Reader) (frames, total int, err error) {
	n := newNutReader(r)
	if err := n.start(); err != nil {
		return 0, 0, err
	}
	for {
		_, prefix, size, err := n.next()
		if err != nil {
			return frames, total, err
		}
		got, err := io.CopyN(io.Discard, n.r, int64(size))
		if err != nil {
			return frames, total, err
		}
		frames, total = frames+1, total+len(prefix)+int(got)
	}
}

func nutSample(t testing.TB, codec ...string) []byte {
	args := append([]string{"-f", "lavfi", "-i", "testsrc2=size=16x16:rate=25:duration=2"}, codec...)
	return ffmpeg(t, append(args, "-f", "nut", "pipe:1")...)
}

func TestNutOfOtherCodecs(t *testing.T) {
	// MPEG-4 uses elided headers and short times, FFV1 has private data; the product uses neither, but both are NUT.
	for _, codec := range [][]string{{"-c:v", "mpeg4", "-bf", "2"}, {"-c:v", "ffv1"}, {"-c:v", "mjpeg"},
		{"-c:v", "rawvideo", "-pix_fmt", "rgb24"}} {
		data := nutSample(t, codec...)
		frames, _, err := drain(bytes.NewReader(data))
		if err != io.EOF || frames != 50 {
			t.Errorf("%v: %d frames, %v; want 50 and io.EOF", codec, frames, err)
		}
	}
}

// A stream cut anywhere has an unexpected or a clean end, never extra frames, and no panic.
func TestNutCutAnywhere(t *testing.T) {
	data := nutSample(t, "-c:v", "mpeg4")
	for i := range data {
		frames, _, err := drain(bytes.NewReader(data[:i]))
		if err == nil || frames > 50 || errors.Is(err, errNut) {
			t.Fatalf("cut at %d: %d frames, %v", i, frames, err)
		}
	}
}

func TestNutRejects(t *testing.T) {
	if _, _, err := drain(bytes.NewReader(nil)); err != io.EOF {
		t.Errorf("nothing at all: %v; want io.EOF", err)
	}
	if _, _, err := drain(bytes.NewReader(bytes.Repeat([]byte("RIFF"), 100))); !errors.Is(err, errNut) {
		t.Errorf("another container: %v", err)
	}
	two := ffmpeg(t, "-f", "lavfi", "-i", "testsrc2=size=16x16:duration=1", "-f", "lavfi", "-i",
		"testsrc2=size=16x16:duration=1", "-map", "0", "-map", "1", "-c:v", "rawvideo", "-f", "nut", "pipe:1")
	if _, _, err := drain(bytes.NewReader(two)); !errors.Is(err, errNut) {
		t.Errorf("two streams: %v", err)
	}
}

func TestTicksToDuration(t *testing.T) {
	for _, c := range []struct {
		base  rational
		ticks int64
		want  time.Duration
	}{
		{rational{1, 90000}, 90000, time.Second},
		{rational{1001, 30000}, 1, 33366666},
		{rational{1, 30}, -30, -time.Second},
		{rational{1, 1000000}, 1 << 40, (1 << 40) * time.Microsecond},
		{rational{1, 1}, math.MaxInt64, math.MaxInt64},
		{rational{1, 1}, math.MinInt64, -math.MaxInt64},
		{rational{math.MaxInt32, 1}, math.MaxInt64, math.MaxInt64},
	} {
		if got := c.base.duration(c.ticks); got != c.want {
			t.Errorf("%d ticks of %d/%d: %d; want %d", c.ticks, c.base.num, c.base.den, got, c.want)
		}
	}
}

func FuzzNut(f *testing.F) {
	for _, codec := range [][]string{{"-c:v", "mpeg4"}, {"-c:v", "mjpeg"}, {"-c:v", "rawvideo", "-pix_fmt", "gray"}} {
		f.Add(nutSample(f, codec...)[:4000])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frames, total, err := drain(bytes.NewReader(data))
		if err == nil || frames > len(data) || total > len(data)*256 {
			t.Errorf("%d frames, %d bytes of %d, %v", frames, total, len(data), err)
		}
	})
}
