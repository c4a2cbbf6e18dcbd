package codec

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/processors"
)

// TestPace: while others wait, decoding pauses between its slices, which the limit of its time does not include, and
// the picture is the same; while nobody does, it does not pause.
func TestPace(t *testing.T) {
	t.Parallel()
	pics := quadPictures(t)
	pics["large.png"] = pngOf(t, busy(300, 200))
	scans := 1 // Go reads the bytes of a picture at once
	if Turbo {
		scans = 20
	}
	for _, c := range []struct {
		name   string
		pauses int // at least
	}{{"large.png", 150}, {"interlaced.png", 10}, {"progressive.jpg", scans}, {"lossless.webp", 1}} {
		pause, limit := time.Hour, 2*time.Hour // of a clock of the test
		in := synctest.Test
		if Turbo && c.name == "progressive.jpg" { // its clock is that of the machine
			pause, limit = 60*time.Millisecond, time.Second
			in = func(t *testing.T, f func(*testing.T)) { f(t) }
		}
		in(t, func(t *testing.T) {
			tg := Target{Width: 30, Height: 20}
			want, _ := decode(t, pics[c.name], tg)
			var others atomic.Uint32
			d := NewDecoder(Limits{MaxTime: limit})
			d.Pace = &processors.Pace{Late: &others, Pause: pause}
			for _, wait := range []uint32{0, 1, 0} {
				others.Store(wait)
				begun := time.Now()
				got := make([]byte, tg.Size(0, 0))
				if _, err := d.Decode(pics[c.name], tg, got); err != nil || string(got) != string(want) {
					t.Errorf("%s: differs, %v", c.name, err)
				}
				took := time.Since(begun)
				if wait == 1 && took < time.Duration(c.pauses)*pause {
					t.Errorf("%s: %v, with %d pauses of %v or more", c.name, took, c.pauses, pause)
				}
				if wait == 0 && pause == time.Hour && took > 0 {
					t.Errorf("%s: %v while nobody waits", c.name, took)
				}
			}
			others.Store(1)
			d.Pace.Slice = time.Hour
			begun := time.Now()
			if _, err := d.Decode(pics[c.name], tg, make([]byte, len(want))); err != nil ||
				pause == time.Hour && time.Since(begun) > 0 {
				t.Errorf("%s within a slice: %v, %v", c.name, time.Since(begun), err)
			}
		})
	}
}
