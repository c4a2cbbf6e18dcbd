package tracking

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/internal/clip/truth"
)

// thing is an object of the scene in one frame.
type thing struct {
	id    int
	box   truth.Box
	class int32
}

// moment is the objects of the scene at one time.
type moment struct {
	at     time.Duration
	things []thing
}

// clipMoments are the moments of the example's clip.
func clipMoments(t testing.TB) []moment {
	clip, err := truth.Load("../../../examples/spotter/clip.json")
	if err != nil {
		t.Fatal(err)
	}
	var ms []moment
	for _, f := range clip.Frames {
		m := moment{at: time.Duration(f.T * float64(time.Second))}
		for _, o := range f.Objects {
			m.things = append(m.things, thing{o.ID, o.Box, int32(*o.Class)})
		}
		ms = append(ms, m)
	}
	return ms
}

// crossingMoments are 20 crossings of two objects each, in sequence, at random speeds and angles, 30 frames per
// second, 3 seconds each. The second object is behind the first, and invisible when covered by more than 60 %.
func crossingMoments(seed uint64) []moment {
	rng := rand.New(rand.NewPCG(seed, 11))
	var ms []moment
	for meeting := range 20 {
		var speed, size [2][2]float64
		for i := range 2 {
			angle, fast := rng.Float64()*2*math.Pi, 60+rng.Float64()*200
			speed[i] = [2]float64{fast * math.Cos(angle), fast * math.Sin(angle)}
			size[i] = [2]float64{20 + rng.Float64()*40, 20 + rng.Float64()*40}
		}
		start := time.Duration(meeting) * 5 * time.Second
		for f := range 90 {
			s := float64(f-45) / 30 // the objects cross in the middle
			m := moment{at: start + time.Duration(f)*time.Second/30}
			for i := range 2 {
				x, y := 500+s*speed[i][0], 500+s*speed[i][1]
				m.things = append(m.things, thing{2*meeting + i, truth.Box{x, y, x + size[i][0], y + size[i][1]},
					int32(i)})
			}
			if a, b := m.things[0].box, m.things[1].box; covered(a, b) > 0.6 {
				m.things = m.things[:1]
			}
			ms = append(ms, m)
		}
	}
	return ms
}

// crowdMoments are 40 objects in one picture for 10 seconds, which turn back at the picture's edges. Objects later in
// the list are behind earlier objects.
func crowdMoments(seed uint64) []moment {
	rng := rand.New(rand.NewPCG(seed, 13))
	var place, speed, size [40][2]float64
	room := [2]float64{600, 320}
	for i := range place {
		angle, fast := rng.Float64()*2*math.Pi, 20+rng.Float64()*100
		place[i] = [2]float64{rng.Float64() * room[0], rng.Float64() * room[1]}
		speed[i] = [2]float64{fast * math.Cos(angle), fast * math.Sin(angle)}
		size[i] = [2]float64{25 + rng.Float64()*20, 30 + rng.Float64()*40}
	}
	var ms []moment
	for f := range 300 {
		m := moment{at: time.Duration(f) * time.Second / 30}
		for i := range place {
			for d := range 2 {
				if place[i][d] += speed[i][d] / 30; place[i][d] < 0 || place[i][d] > room[d] {
					speed[i][d] = -speed[i][d]
					place[i][d] += speed[i][d] / 15
				}
			}
			x, y := place[i][0], place[i][1]
			box := truth.Box{x, y, x + size[i][0], y + size[i][1]}
			if !slices.ContainsFunc(m.things, func(o thing) bool { return covered(o.box, box) > 0.6 }) {
				m.things = append(m.things, thing{i, box, int32(i % 4)})
			}
		}
		ms = append(ms, m)
	}
	return ms
}

// covered is the share of b covered by a.
func covered(a, b truth.Box) float64 {
	return truth.Box{max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])}.Area() / b.Area()
}

// detector is the distortion of the true boxes by a detector and a stream. The scores are invented: about 0.8 for
// objects, with low values in some frames, and mostly low for false boxes.
type detector struct {
	every   int     // frames between two detections
	drop    float64 // share of frames lost
	miss    float64 // share of boxes lost
	falsely float64 // false boxes a frame
	shake   float64 // standard deviation of an edge, sizes
	dips    float64 // share of frames at which an object's score becomes low for 1 to 8 frames
	misread float64 // share of boxes with another class
	least   float64 // least score of a reported box
	clock   func(i int, at time.Duration, rng *rand.Rand) time.Duration
}

// shown is a frame as seen by a tracker, with the object of each box: -1 for none.
type shown struct {
	moment
	boxes []Box
	whose []int
}

func (d detector) detect(ms []moment, seed uint64) []shown {
	rng := rand.New(rand.NewPCG(seed, 7))
	dip := map[int]int{}
	var out []shown
	for i := 0; i < len(ms); i += max(d.every, 1) {
		if rng.Float64() < d.drop {
			continue
		}
		s := shown{moment: ms[i]}
		if d.clock != nil {
			s.at = d.clock(i, s.at, rng)
		}
		add := func(b truth.Box, score float64, class int32, whose int) {
			if score = min(max(score, 0.01), 1); score < d.least {
				return
			}
			w, h := (b[2]-b[0])*d.shake, (b[3]-b[1])*d.shake
			s.boxes = append(s.boxes, Box{
				X1: float32(b[0] + rng.NormFloat64()*w), Y1: float32(b[1] + rng.NormFloat64()*h),
				X2: float32(b[2] + rng.NormFloat64()*w), Y2: float32(b[3] + rng.NormFloat64()*h),
				Score: float32(score), Class: class,
			})
			s.whose = append(s.whose, whose)
		}
		for _, o := range ms[i].things {
			if rng.Float64() < d.dips {
				dip[o.id] = 1 + rng.IntN(8)
			}
			score := 0.8 + 0.08*rng.NormFloat64()
			if dip[o.id] > 0 {
				dip[o.id]--
				score = 0.1 + 0.35*rng.Float64()
			}
			if rng.Float64() < d.miss {
				continue
			}
			if rng.Float64() < d.misread {
				o.class = rng.Int32N(10)
			}
			add(o.box, score, o.class, o.id)
		}
		for n := d.falsely; rng.Float64() < n; n-- {
			x, y := rng.Float64()*290, rng.Float64()*200
			add(truth.Box{x, y, x + 15 + rng.Float64()*25, y + 20 + rng.Float64()*25},
				0.35*math.Abs(rng.NormFloat64()), rng.Int32N(10), -1)
		}
		out = append(out, s)
	}
	return out
}

// tally counts as CLEAR MOT does (Bernardin and Stiefelhagen 2008). The object of each
// box is known here and need not be derived from overlaps; a box without an id does not
// count.
type tally struct {
	truth, boxes, named        int // objects in the frames, boxes of objects, boxes with an id
	missed, falsely            int // objects without an id, ids of false boxes
	switches, fragments, swaps int // ids changed; tracks interrupted and resumed; ids moved to another object
}

func (y *tally) add(c Config, frames []shown) {
	k := New(c)
	last, lapsed := map[int]int64{}, map[int]bool{}
	owner := map[int64]int{}
	for _, f := range frames {
		now := map[int]bool{}
		for b, id := range k.Update(f.at, f.boxes) {
			who := f.whose[b]
			if who < 0 {
				if id != 0 {
					y.falsely++
				}
				continue
			}
			y.boxes++
			if id == 0 {
				continue
			}
			y.named++
			now[who] = true
			if old, ok := last[who]; ok && old != id {
				y.switches++
			}
			last[who] = id
			if was, ok := owner[id]; ok && was != who {
				y.swaps++
			}
			owner[id] = who
		}
		for _, o := range f.things {
			y.truth++
			switch {
			case !now[o.id]:
				y.missed++
				lapsed[o.id] = last[o.id] != 0
			case lapsed[o.id]:
				y.fragments++
				lapsed[o.id] = false
			}
		}
	}
}

// accuracy is MOTA.
func (y *tally) accuracy() float64 {
	return 1 - float64(y.missed+y.falsely+y.switches)/float64(y.truth)
}
