package clip

import (
	"fmt"
	"math"
	"math/rand/v2"

	"millrace/internal/clip/truth"
)

// Settings describe a clip. The same Settings give the same frames.
type Settings struct {
	Width, Height int
	Seconds       float64
	FPS           int
	Seed          uint64
	// quiet leaves out the noise; for tests.
	quiet bool
}

func (s Settings) frames() int { return int(math.Round(s.Seconds * float64(s.FPS))) }

// Check returns the error of a setting out of bounds.
func (s Settings) Check() error {
	switch {
	case s.Width < 64 || s.Width > 4096 || s.Height < 64 || s.Height > 4096:
		return fmt.Errorf("size is %dx%d; want 64 to 4096 pixels a side", s.Width, s.Height)
	case s.Width%2 != 0 || s.Height%2 != 0:
		return fmt.Errorf("size is %dx%d; H.264 needs even numbers", s.Width, s.Height)
	case s.FPS < 1 || s.FPS > 240:
		return fmt.Errorf("fps is %d; want 1 to 240", s.FPS)
	case !(s.Seconds > 0 && s.Seconds <= 3600) || s.frames() < 1:
		return fmt.Errorf("seconds is %g; want at least one frame and at most 3600", s.Seconds)
	}
	return nil
}

type kind int

const (
	disc kind = iota
	square
	triangle
)

// shape is a moving shape. All lengths are in pixels, times in seconds.
type shape struct {
	id      int
	kind    kind
	radius  float64 // of the disc, or of the circle through the corners
	angle   float64 // rotation of the corners
	colour  [3]float64
	pattern int // 0 plain, 1 stripes, 2 checks
	// where returns the centre at time t; shown is false while the shape is not in the scene.
	where func(t float64) (x, y float64, shown bool)
}

// scene returns the shapes of a clip, from back to front.
func scene(s Settings) []shape {
	rng := rand.New(rand.NewPCG(s.Seed, 0x6d6f74696f6e))
	w, h := float64(s.Width), float64(s.Height)
	unit := min(w/640, h/480) // the lengths below are for 640x480
	vary := func(v float64) float64 { return v * unit * (0.85 + 0.3*rng.Float64()) }
	uniform := func(lo, hi float64) float64 { return lo + (hi-lo)*rng.Float64() }

	var list []shape
	add := func(k kind, radius float64, pattern int, where func(r float64) func(t float64) (float64, float64, bool)) {
		r := vary(radius)
		list = append(list, shape{
			id: len(list) + 1, kind: k, radius: r, angle: uniform(0, 2*math.Pi), colour: colour(rng, len(list)),
			pattern: pattern, where: where(r),
		})
	}
	// bouncing moves straight and turns round at the edges, in the time of clock.
	bouncing := func(vx, vy, x0, y0 float64, clock func(t float64) float64) func(r float64) func(t float64) (float64,
		float64, bool) {
		vx, vy = vary(vx), vary(vy)
		return func(r float64) func(t float64) (float64, float64, bool) {
			return func(t float64) (float64, float64, bool) {
				t = clock(t)
				return bounce(x0*w+vx*t, r, w-r), bounce(y0*h+vy*t, r, h-r), true
			}
		}
	}
	steady := func(t float64) float64 { return t }

	// Two shapes cross: they start at opposite sides, at nearly the same height, and one temporarily hides the other.
	startY := uniform(0.25, 0.4)
	add(disc, 42, 1, bouncing(70, 12, 0.12, startY, steady))
	add(square, 36, 0, bouncing(-95, -9, 0.88, startY+0.03, steady))
	// Two alternate between moving and standing still.
	add(square, 40, 2, bouncing(85, 55, uniform(0.2, 0.5), uniform(0.6, 0.8), stopAndGo(2.2, 1.4, uniform(0, 1))))
	add(triangle, 38, 0, bouncing(-60, 75, uniform(0.5, 0.8), uniform(0.2, 0.6), stopAndGo(1.6, 1.1, uniform(0, 1))))
	// A small fast shape and a large slow shape.
	add(disc, 15, 0, bouncing(210, 130, uniform(0.3, 0.7), uniform(0.3, 0.7), steady))
	add(triangle, 58, 1, bouncing(34, -26, uniform(0.3, 0.6), uniform(0.5, 0.8), steady))
	// A shape enters at the left and leaves at the right.
	from, to, height := s.Seconds*uniform(0.25, 0.35), s.Seconds*uniform(0.7, 0.8), uniform(0.3, 0.7)
	add(disc, 34, 2, func(r float64) func(t float64) (float64, float64, bool) {
		return func(t float64) (float64, float64, bool) {
			u := (t - from) / (to - from)
			return -r + u*(w+2*r), h * height, u > 0 && u < 1
		}
	})
	return list
}

// colour returns a saturated colour for shape i, far from the grey background.
func colour(rng *rand.Rand, i int) [3]float64 {
	hue := math.Mod(float64(i)*0.381966+0.1*rng.Float64(), 1) * 6
	light := 0.75 + 0.25*rng.Float64()
	var c [3]float64
	for k := range c {
		n := math.Mod(float64(5-2*k)+hue, 6)
		c[k] = 255 * light * (1 - 0.85*max(0, min(n, 4-n, 1)))
	}
	return c
}

// bounce reflects x at lo and hi until x lies between them.
func bounce(x, lo, hi float64) float64 {
	if hi <= lo {
		return (lo + hi) / 2
	}
	span := hi - lo
	x = math.Mod(x-lo, 2*span)
	if x < 0 {
		x += 2 * span
	}
	if x > span {
		x = 2*span - x
	}
	return lo + x
}

// stopAndGo returns a clock that repeatedly runs for run seconds and stops for stop seconds.
func stopAndGo(run, stop, offset float64) func(t float64) float64 {
	return func(t float64) float64 {
		t += offset
		whole := math.Floor(t / (run + stop))
		return whole*run + min(t-whole*(run+stop), run)
	}
}

// corners returns the corners of a square or triangle around 0, 0.
func (s *shape) corners() (list [][2]float64) {
	n := map[kind]int{square: 4, triangle: 3}[s.kind]
	for i := range n {
		a := s.angle + 2*math.Pi*float64(i)/float64(n)
		list = append(list, [2]float64{s.radius * math.Cos(a), s.radius * math.Sin(a)})
	}
	return list
}

// bounds is the box of the whole shape around 0, 0.
func (s *shape) bounds() truth.Box {
	if s.kind == disc {
		return truth.Box{-s.radius, -s.radius, s.radius, s.radius}
	}
	b := truth.Box{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
	for _, c := range s.corners() {
		b = truth.Box{min(b[0], c[0]), min(b[1], c[1]), max(b[2], c[0]), max(b[3], c[1])}
	}
	return b
}

// visible is the box of the part inside a picture of w x h, with the shape's centre at x, y. The box is tight where
// an edge of the picture cuts the shape; an empty part has no area.
func (s *shape) visible(x, y, w, h float64) truth.Box {
	b := s.bounds()
	if x+b[0] >= 0 && y+b[1] >= 0 && x+b[2] <= w && y+b[3] <= h {
		return truth.Box{x + b[0], y + b[1], x + b[2], y + b[3]}
	}
	outline := s.corners()
	if s.kind == disc {
		const n = 180
		for i := range n {
			a := 2 * math.Pi * float64(i) / n
			outline = append(outline, [2]float64{s.radius * math.Cos(a), s.radius * math.Sin(a)})
		}
	}
	for i := range outline {
		outline[i][0] += x
		outline[i][1] += y
	}
	// Clip the outline at each edge of the picture (Sutherland and Hodgman).
	for _, e := range []struct {
		axis  int
		at    float64
		below bool
	}{{0, 0, false}, {0, w, true}, {1, 0, false}, {1, h, true}} {
		in := func(p [2]float64) bool { return p[e.axis] >= e.at != e.below || p[e.axis] == e.at }
		var kept [][2]float64
		for i, p := range outline {
			q := outline[(i+1)%len(outline)]
			if in(p) {
				kept = append(kept, p)
			}
			if in(p) != in(q) {
				f := (e.at - p[e.axis]) / (q[e.axis] - p[e.axis])
				kept = append(kept, [2]float64{p[0] + f*(q[0]-p[0]), p[1] + f*(q[1]-p[1])})
			}
		}
		outline = kept
	}
	out := truth.Box{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
	for _, p := range outline {
		out = truth.Box{min(out[0], p[0]), min(out[1], p[1]), max(out[2], p[0]), max(out[3], p[1])}
	}
	if out.Area() == 0 {
		return truth.Box{}
	}
	return out
}

const (
	minVisible = 16   // square pixels; shapes with a smaller visible area are left out
	minStep    = 0.02 // pixels per frame; slower shapes count as standing
)

// describe returns the ground truth of frame i.
func describe(s Settings, shapes []shape, i int) truth.Frame {
	dt := 1 / float64(s.FPS)
	t := float64(i) * dt
	f := truth.Frame{Index: i, T: math.Round(t*1e6) / 1e6, Objects: []truth.Object{}}
	for k := range shapes {
		sh := &shapes[k]
		x, y, shown := sh.where(t)
		if !shown {
			continue
		}
		box := sh.visible(x, y, float64(s.Width), float64(s.Height))
		for j := range box {
			box[j] = math.Round(box[j]*100) / 100
		}
		if box.Area() < minVisible {
			continue
		}
		before := t - dt
		if i == 0 { // without an earlier frame, the movement to the next frame counts
			before = t + dt
		}
		px, py, _ := sh.where(before)
		f.Objects = append(f.Objects, truth.Object{ID: sh.id, Box: box, Moving: math.Hypot(x-px, y-py) > minStep})
	}
	return f
}
