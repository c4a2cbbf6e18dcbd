package events

import (
	"math"
	"strings"
	"testing"
	"time"

	"millrace/stream/rules"
)

// road has a ground with ten pixels a metre, and a zone in the lower half of the picture.
func road(speed string) string {
	return `{"ground":{"points":[[0,0],[1,0],[1,1],[0,1]],"metres":[[0,0],[64,0],[64,48],[0,48]]},"zones":[` +
		`{"name":"road","polygon":[[0,0.5],[1,0.5],[1,1],[0,1]],"speed":` + speed + `}]}`
}

// fast returns the events of fast objects and leaves the others out.
func (f *film) fast() (found []string) {
	for _, text := range f.said {
		if strings.HasPrefix(text, "speed") {
			found = append(found, text)
		}
	}
	return found
}

func TestSpeedIsOfTheLastSecondInTheZone(t *testing.T) {
	f := newFilm(t, road(`{"over":5}`))
	f.move(1, 20, 100, 620, 100, 60) // 10 m/s, above the zone
	f.move(2, 20, 400, 260, 400, 60) // 4 m/s
	f.move(3, 20, 400, 320, 400, 50) // 6 m/s
	f.said = f.fast()
	f.want("speed road [3] 12100-13100")
	f.move(3, 320, 400, 620, 400, 50) // once a stay
	f.said = f.fast()
	f.want()
}

func TestSpeedIsOnTheGround(t *testing.T) {
	// A road of 10 x 100 metres that a camera sees as a trapezium: a pixel far away is many metres.
	f := newFilm(t, `{"ground":{"points":[[0.4,0.2],[0.6,0.2],[1,1],[0,1]],"metres":[[0,100],[10,100],[10,0],[0,0]]},`+
		`"zones":[{"name":"road","polygon":[[0,0],[1,0],[1,1],[0,1]],"speed":{"over":1,"for":"500ms"}}]}`)
	speedAt := func(track int64, y float32) (mean float64) {
		for i := range 10 {
			f.frame(box(track, 320, y-float32(i)))
			for _, v := range f.engine.events {
				if v.Type == rules.SpeedEvent {
					mean = v.Speed
				}
			}
		}
		return mean
	}
	// The share of the way to the far end at the height h over the lower edge, of 0.8, with the widths 1 and 0.2:
	// 0.2 * h / (0.2 * h + (0.8 - h)) by the cross ratio. Ten pixels a second are 1/48 a second.
	metres := func(y float64) float64 { h := 1 - y/480; return 100 * 0.2 * h / (0.2*h + 0.8 - h) }
	for _, y := range []float64{300, 120} {
		want := (metres(y-5) - metres(y)) / 0.5 // of the first window
		if got := speedAt(int64(y), float32(y)); math.Abs(got-want) > want/100 {
			t.Errorf("at %v: %.2f m/s; want %.2f", y, got, want)
		}
	}
	if got := speedAt(9, 90); got != 0 {
		t.Errorf("above the far end of the ground: %v m/s", got)
	}
}

func TestShakingBoxesAreNotFast(t *testing.T) {
	f := newFilm(t, road(`{"over":2}`))
	for i := range 300 { // 5 pixels to each side, ten metres a second from frame to frame
		f.frame(box(1, 300+5*float32(1-2*(i%2)), 400))
	}
	f.said = f.fast()
	f.want()
}

func TestSpeedBeginsWithTheStay(t *testing.T) {
	f := newFilm(t, road(`{"over":5,"for":"300ms"}`))
	f.move(1, 300, 300, 304, 300, 10) // in the zone
	f.move(1, 304, 200, 504, 200, 8)  // 25 m/s outside
	f.move(1, 504, 300, 506, 300, 10)
	f.said = f.fast()
	f.want()
	f.move(1, 506, 300, 426, 300, 10) // 8 m/s
	f.move(1, 426, 200, 426, 40, 8)
	f.move(1, 426, 300, 346, 300, 10) // in another stay
	if f.said = f.fast(); len(f.said) != 2 {
		t.Errorf("two fast stays: %q", f.said)
	}
}

func TestSpeedIsOfObjectsThatCount(t *testing.T) {
	f := newFilm(t, strings.Replace(road(`{"over":5}`), `"speed"`, `"classes":["2"],"speed"`, 1))
	f.move(1, 20, 400, 620, 400, 60)
	f.said = f.fast()
	f.want()
}

func TestSpeedAfterAChangeOfTheRules(t *testing.T) {
	const rule = `{"over":3,"for":"300ms"}`
	f := newFilm(t, road(`{"over":5,"for":"300ms"}`))
	f.move(1, 300, 250, 304, 250, 10)
	f.engine.Change(mustParse(t, road(rule)))
	f.move(1, 304, 250, 368, 250, 16) // 4 m/s
	f.said = f.fast()
	f.want("speed road [1] 1100-1400")

	f = newFilm(t, road(rule))
	f.move(1, 368, 290, 368, 290, 10)
	f.engine.Change(mustParse(t, strings.Replace(road(rule), `"speed"`, `"anchor":"center","speed"`, 1)))
	for range 10 { // the place moves from the lower edge of the box to its middle
		f.frame(box(1, 368, 290))
	}
	f.engine.Change(mustParse(t, road(rule)))
	for range 10 {
		f.frame(box(1, 368, 290))
	}
	f.said = f.fast()
	f.want()
}

func TestTrailsAreBounded(t *testing.T) {
	f := newFilm(t, road(`{"over":1000,"for":"1m"}`))
	for i := range 90_000 {
		at := time.Duration(i) * time.Millisecond
		if _, err := f.engine.Update(&Frame{Time: at, Width: 640, Height: 480,
			Objects: []Object{box(1, 300, 400)}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.engine.objects[0].zones[0].trail); n < samples || n > samples+2 {
		t.Errorf("%d places are kept", n)
	}
}
