package events

import (
	"fmt"
	"math"
	"testing"
	"time"

	"millrace/stream/rules"
)

// street returns rules with lines and zones of eight corners.
func street(t testing.TB, lines, zones int) *rules.Rules {
	r := &rules.Rules{}
	for i := range lines {
		x := (float64(i) + 0.5) / float64(lines)
		r.Lines = append(r.Lines, rules.Line{Name: fmt.Sprint("l", i), From: []float64{x, 0}, To: []float64{x, 1}})
	}
	for i := range zones {
		z := rules.Zone{Name: fmt.Sprint("z", i), Dwell: time.Minute}
		for k := range 8 {
			sin, cos := math.Sincos(float64(k) * math.Pi / 4)
			x := (float64(i) + 0.5 + sin/2) / float64(zones)
			z.Polygon = append(z.Polygon, []float64{x, 0.5 + cos/2})
		}
		r.Zones = append(r.Zones, z)
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// walk moves 50 objects to and fro, to all sides, by a number of pixels a frame.
func walk(f *Frame, i int, step float64) {
	f.Time = time.Duration(i) * time.Second / 30
	f.Width, f.Height, f.Objects = 1280, 720, f.Objects[:0]
	for k := range 50 {
		fold := func(v float64, size float64) float32 { return float32(math.Abs(math.Mod(v, 2*size) - size)) }
		x := fold(float64(k*97)+float64(i)*step, 1280)
		y := fold(float64(k*61)+float64(i)*step/2, 720)
		f.Objects = append(f.Objects, Object{Track: int64(k + 1), Class: int32(k % 3), Score: 0.9,
			X1: x - 15, Y1: y - 60,
			X2: x + 15, Y2: y})
	}
}

func BenchmarkUpdateOf50Boxes(b *testing.B) {
	for _, n := range []int{1, 4, 32} {
		b.Run(fmt.Sprintf("lines=%d,zones=%d", n, n), func(b *testing.B) {
			e, f, events := New(street(b, n, n), "camera", new(rules.Tally)), Frame{}, 0
			for i := 0; b.Loop(); i++ {
				walk(&f, i, 3)
				found, err := e.Update(&f)
				if err != nil {
					b.Fatal(err)
				}
				events += len(found)
			}
			b.ReportMetric(float64(events)/float64(b.N), "events/frame")
		})
	}
}

// BenchmarkEvents moves each of 50 objects over a line in each frame.
func BenchmarkEvents(b *testing.B) {
	e, f, events := New(street(b, 1, 0), "camera", new(rules.Tally)), Frame{Width: 1280, Height: 720}, 0
	for i := 0; b.Loop(); i++ {
		f.Time, f.Objects = time.Duration(i)*time.Second/30, f.Objects[:0]
		for k := range 50 {
			f.Objects = append(f.Objects, box(int64(k+1), float32(600+80*(i%2)), 300))
		}
		found, err := e.Update(&f)
		if err != nil {
			b.Fatal(err)
		}
		events += len(found)
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func TestFramesWithoutEventsAllocateNothing(t *testing.T) {
	e, f, i := New(street(t, 4, 4), "camera", new(rules.Tally)), Frame{}, 0
	if n := testing.AllocsPerRun(200, func() {
		walk(&f, i, 0)
		if _, err := e.Update(&f); err != nil {
			t.Fatal(err)
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}
