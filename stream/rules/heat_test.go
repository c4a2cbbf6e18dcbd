package rules

import (
	"math"
	"testing"
	"time"
)

// The time of an object is in the cell of its place, for an hour, whatever the frames a second.
func TestHeat(t *testing.T) {
	begun := time.Unix(1_800_000_000, 0) // a full minute
	for _, fps := range []int{2, 30} {
		h := new(Heat)
		stand := func(from time.Duration, seconds int, x, y float64) {
			step := time.Second / time.Duration(fps)
			for i := range seconds * fps {
				h.Add(begun.Add(from+time.Duration(i)*step), x, y, step)
			}
		}
		sum := func(at time.Duration, minutes int) (total float64) {
			for _, v := range h.Map(begun.Add(at), minutes).Seconds {
				total += v
			}
			return math.Round(10*total) / 10
		}
		stand(0, 10, 0.5, 0.5)
		stand(10*time.Second, 5, 1, 1) // the edge belongs to the last cell
		stand(20*time.Second, 1, -0.2, 7)
		m := h.Map(begun.Add(30*time.Second), 60)
		at := func(column, row int) float64 { return math.Round(m.Seconds[row*m.Columns+column]*10) / 10 }
		if at(32, 18) != 10 || at(63, 35) != 5 || at(0, 35) != 1 || sum(30*time.Second, 1) != 16 {
			t.Errorf("%d fps: %v %v %v, %v", fps, at(32, 18), at(63, 35), at(0, 35), sum(30*time.Second, 1))
		}
		stand(5*time.Minute, 60, 0.1, 0.1)
		for at, want := range map[time.Duration]float64{
			6 * time.Minute: 76, 59*time.Minute + 59*time.Second: 76,
			60 * time.Minute: 60, 64 * time.Minute: 60, 65 * time.Minute: 0,
		} {
			if got := sum(at, 60); got != want {
				t.Errorf("%d fps: %v after %v, want %v", fps, got, at, want)
			}
		}
		if got := sum(6*time.Minute, 1); got != 0 {
			t.Errorf("%d fps: %v in the last minute", fps, got)
		}
		stand(70*time.Minute, 1, 0.1, 0.1) // in the place of an earlier minute
		stand(71*time.Minute, 1, 0.1, 0.1)
		if got := sum(71*time.Minute, 60); got != 2 {
			t.Errorf("%d fps: %v", fps, got)
		}
	}
	h := new(Heat)
	h.Add(begun, 0, 0, time.Hour)
	if m := h.Map(begun, 60); m.Seconds[0] != 1 {
		t.Errorf("%v s in a gap between two frames", m.Seconds[0])
	}
	h = new(Heat)
	for _, at := range []time.Duration{30 * time.Second, time.Minute, time.Minute - 1, time.Minute + 1} {
		h.Add(begun.Add(at), 0, 0, time.Second) // the clock goes back over the begin of a minute
	}
	if m := h.Map(begun.Add(time.Minute), 60); m.Seconds[0] != 4 {
		t.Errorf("%v s after a step of the clock, want 4", m.Seconds[0])
	}
	var none *Heat
	none.Add(begun, 0, 0, time.Second)
	if m := none.Map(begun, 60); len(m.Seconds) != m.Columns*m.Rows {
		t.Error(len(m.Seconds))
	}
}
