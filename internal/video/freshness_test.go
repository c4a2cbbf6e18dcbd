package video

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// arrival is a frame and its time of arrival.
type arrival struct{ pts, at time.Duration }

// lateOf reads frames like a Reader, by a simulated clock, and returns the numbers of the late frames.
func lateOf(fps float64, frames []arrival) (late []int) {
	i, now := 0, time.Duration(0)
	f := newFreshness(fps, func(d time.Duration) bool {
		if i+1 < len(frames) && frames[i+1].at <= now+d {
			now = max(now, frames[i+1].at)
			return true
		}
		now += d
		return false
	})
	for ; i < len(frames); i++ {
		now = max(now, frames[i].at)
		if f.late(frames[i].pts, now) {
			late = append(late, i)
		}
	}
	return late
}

// steady returns n frames each step, from a time on the camera's clock and on ours.
func steady(n int, step, pts, at time.Duration) (list []arrival) {
	for i := range n {
		list = append(list, arrival{pts + time.Duration(i)*step, at + time.Duration(i)*step})
	}
	return list
}

// held delays the frames from first to last until the last has come.
func held(list []arrival, first, last int) []arrival {
	list = slices.Clone(list)
	for i := first; i <= last; i++ {
		list[i].at = list[last].at + time.Duration(i-first)*100*time.Microsecond // at the speed of decoding
	}
	return list
}

func to(first, last int) (list []int) {
	for i := first; i <= last; i++ {
		list = append(list, i)
	}
	return list
}

func TestFreshness(t *testing.T) {
	jitter := steady(500, 40*ms, 0, time.Hour)
	for i := range jitter {
		jitter[i].at += time.Duration(i*7919%400) * ms
		if i > 0 {
			jitter[i].at = max(jitter[i].at, jitter[i-1].at+ms)
		}
	}
	// The delay comes after the first frame, which arrives alone.
	jitter[0].at -= 100 * ms
	slow := steady(100_000, 40*ms, 0, 0) // more than an hour
	for i := range slow {
		slow[i].at += slow[i].at / 1000
	}
	set := append(steady(100, 40*ms, 0, 0), steady(100, 40*ms, -time.Hour, 100*40*ms)...)
	ahead := append(steady(100, 40*ms, 0, 0), steady(100, 40*ms, time.Hour, 100*40*ms)...)
	longer := steady(200, 40*ms, 0, 0)
	for i := 100; i < 200; i++ {
		longer[i].at += time.Second
	}
	untimed := steady(100, 40*ms, 0, 0)
	for i := range untimed {
		untimed[i].pts = 0
	}
	fast := steady(20_000, 40*ms, 0, 0)
	for i := range fast {
		fast[i].at = time.Duration(i) * ms
	}
	for _, c := range []struct {
		name   string
		fps    float64
		frames []arrival
		late   []int
	}{
		{"nothing old", 25, steady(200, 40*ms, 0, time.Hour), nil},
		{"rate unknown", 0, steady(200, 4*ms, 0, time.Hour), to(0, 0)}, // the time between the first two is unknown
		{"one frame a second", 1, steady(20, time.Second, 0, 0), nil},
		{"an old beginning", 25, held(steady(200, 40*ms, 0, 0), 0, 50), to(0, 49)},
		{"an old beginning, slow", 1, held(steady(20, time.Second, 0, 0), 0, 5), to(0, 4)},
		{"a stall", 25, held(steady(200, 40*ms, 0, 0), 80, 120), to(80, 119)},
		{"a short stall", 25, held(steady(200, 40*ms, 0, 0), 80, 92), nil},
		{"two stalls", 25, held(held(steady(300, 40*ms, 0, 0), 80, 120), 200, 250),
			append(to(80, 119), to(200, 249)...)},
		{"jitter", 25, jitter, nil},
		{"a slow clock", 25, slow, nil},
		{"a clock that is set back", 25, set, nil},
		{"a clock that is set forward", 25, ahead, nil},
		{"a way that becomes longer", 25, longer, nil},
		{"no times", 25, untimed, nil},
		{"faster than its times for ever", 25, fast, to(0, int(maxBehind/ms)-1)},
	} {
		if got := lateOf(c.fps, c.frames); !slices.Equal(got, c.late) {
			t.Errorf("%s: %d late: %s; want %d", c.name, len(got), fmt.Sprint(got[:min(len(got), 60)]), len(c.late))
		}
	}
}
