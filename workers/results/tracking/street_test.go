package tracking

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"millrace/internal/clip/truth"
)

// street is a simulated picture of 1280x720 pixels with walkers behind pillars and behind each other.
type street struct {
	walkers int
	speed   [2]float64 // pixels per second, least and most
	fps     float64
	seconds float64
	pillars []truth.Box
	across  bool    // walkers cross the picture from side to side, not in any direction
	lanes   int     // the same, in that many lanes
	shake   float64 // standard deviation of the camera's place, pixels
	drop    float64 // share of frames lost
	ghosts  float64 // new false boxes with a low score a second; each stays for a while
	miss    float64 // share of boxes lost at random
}

const (
	streetWidth, streetHeight = 1280, 720
	least                     = 0.1  // score of a reported box
	hidden                    = 0.25 // objects with a smaller visible share are not in the truth
)

// frames returns the truth and a detector's boxes. The detector's score and accuracy fall with the visible share of
// an object; the box is cut towards the visible part. Of overlapping boxes the detector reports the better one only.
func (s street) frames(seed uint64) (frames []streetFrame) {
	rng := rand.New(rand.NewPCG(seed, 17))
	type walker struct{ x, y, vx, vy, w, h float64 }
	ws := make([]walker, s.walkers)
	for i := range ws {
		w := &ws[i]
		w.h = 90 + 70*rng.Float64()
		w.w = w.h * (0.38 + 0.08*rng.Float64())
		w.x, w.y = rng.Float64()*streetWidth, rng.Float64()*(streetHeight-w.h)
		fast := s.speed[0] + rng.Float64()*(s.speed[1]-s.speed[0])
		angle := rng.Float64() * 2 * math.Pi
		if s.across {
			angle = (rng.Float64()-0.5)*0.5 + math.Pi*float64(rng.IntN(2))
		}
		if s.lanes > 0 {
			lane := i % s.lanes
			w.y = float64(lane) * (streetHeight - 160) / float64(max(s.lanes-1, 1))
			angle = math.Pi * float64(i/s.lanes%2)
		}
		w.vx, w.vy = fast*math.Cos(angle), fast*math.Sin(angle)
	}
	type ghost struct {
		box   truth.Box
		until float64
	}
	var ghosts []ghost
	var shakeX, shakeY float64
	dt := 1 / s.fps
	for t := 0.0; t < s.seconds; t += dt {
		for i := range ws {
			w := &ws[i]
			w.x += w.vx * dt
			w.y += w.vy * dt
			turn := rng.NormFloat64() * 0.25 * math.Sqrt(dt) // walkers change direction a little
			if s.lanes == 0 && !s.across {
				w.vx, w.vy = w.vx*math.Cos(turn)-w.vy*math.Sin(turn), w.vx*math.Sin(turn)+w.vy*math.Cos(turn)
			}
			if w.x < 0 && w.vx < 0 || w.x+w.w > streetWidth && w.vx > 0 {
				w.vx = -w.vx
			}
			if w.y < 0 && w.vy < 0 || w.y+w.h > streetHeight && w.vy > 0 {
				w.vy = -w.vy
			}
		}
		if s.shake > 0 { // a new place of the camera each frame, half of the way back to the middle
			shakeX = shakeX/2 + rng.NormFloat64()*s.shake
			shakeY = shakeY/2 + rng.NormFloat64()*s.shake
		}
		move := func(b truth.Box) truth.Box {
			return truth.Box{b[0] + shakeX, b[1] + shakeY, b[2] + shakeX, b[3] + shakeY}
		}
		f := streetFrame{at: time.Duration(t * float64(time.Second)), dx: shakeX, dy: shakeY}
		order := make([]int, len(ws)) // the front first: the walker whose feet are lowest in the picture
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int {
			if ws[a].y+ws[a].h > ws[b].y+ws[b].h {
				return -1
			}
			return 1
		})
		front := slices.Clone(s.pillars)
		for _, i := range order {
			w := &ws[i]
			b := truth.Box{w.x, w.y, w.x + w.w, w.y + w.h}
			share, visible := uncovered(b, front)
			front = append(front, b)
			if share >= hidden {
				f.objects = append(f.objects, named{i, move(b)})
			}
			score := 0.9*math.Pow(share, 0.7) + 0.05*rng.NormFloat64()
			if score < least || share < 0.1 || rng.Float64() < s.miss {
				continue
			}
			edge := (0.025 + 0.05*(1-share)) * w.h
			for d := range b { // half of the way to the visible part
				b[d] = (b[d]+visible[d])/2 + rng.NormFloat64()*edge*[2]float64{0.5, 1}[d%2]
			}
			f.add(move(b), score)
		}
		if rng.Float64() < s.ghosts*dt {
			x, y := rng.Float64()*streetWidth, rng.Float64()*streetHeight
			ghosts = append(ghosts, ghost{truth.Box{x, y, x + 40, y + 100}, t + 0.2 + rng.ExpFloat64()*0.5})
		}
		for _, g := range ghosts {
			if g.until > t && rng.Float64() < 0.8 {
				f.add(move(g.box), min(0.45, 0.15+0.3*rng.Float64()))
			}
		}
		f.suppress()
		if rng.Float64() >= s.drop {
			frames = append(frames, f)
		}
	}
	return frames
}

// streetFrame is one frame: the truth, the detector's boxes, and the camera's place.
type streetFrame struct {
	at      time.Duration
	objects []named
	boxes   []Box
	dx, dy  float64
}

func (f *streetFrame) add(b truth.Box, score float64) {
	if b[2] > b[0] && b[3] > b[1] {
		f.boxes = append(f.boxes, Box{X1: float32(b[0]), Y1: float32(b[1]), X2: float32(b[2]), Y2: float32(b[3]),
			Score: float32(min(score, 1))})
	}
}

// suppress is non-maximum suppression.
func (f *streetFrame) suppress() {
	slices.SortStableFunc(f.boxes, func(a, b Box) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	kept := f.boxes[:0]
	for _, b := range f.boxes {
		if !slices.ContainsFunc(kept, func(k Box) bool { return truth.IoU(corners(k), corners(b)) > 0.65 }) {
			kept = append(kept, b)
		}
	}
	f.boxes = kept
}

func corners(b Box) truth.Box {
	return truth.Box{float64(b.X1), float64(b.Y1), float64(b.X2), float64(b.Y2)}
}

// uncovered returns the visible share of b behind the others, on a grid of points, and the box of the visible part.
func uncovered(b truth.Box, front []truth.Box) (share float64, visible truth.Box) {
	const n = 12
	var near []truth.Box
	for _, f := range front {
		if f[0] < b[2] && b[0] < f[2] && f[1] < b[3] && b[1] < f[3] {
			near = append(near, f)
		}
	}
	if len(near) == 0 {
		return 1, b
	}
	visible = truth.Box{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
	count := 0
	w, h := (b[2]-b[0])/n, (b[3]-b[1])/n
	for i := range n {
		for j := range n {
			x, y := b[0]+(float64(i)+0.5)*w, b[1]+(float64(j)+0.5)*h
			if slices.ContainsFunc(near, func(f truth.Box) bool {
				return x > f[0] && x < f[2] && y > f[1] && y < f[3]
			}) {
				continue
			}
			count++
			visible[0], visible[1] = min(visible[0], x-w/2), min(visible[1], y-h/2)
			visible[2], visible[3] = max(visible[2], x+w/2), max(visible[3], y+h/2)
		}
	}
	return float64(count) / n / n, visible
}

// run tracks the boxes of the frames.
func run(c Config, frames []streetFrame) []scored {
	k := New(c)
	out := make([]scored, len(frames))
	rng := rand.New(rand.NewPCG(1, 31))
	if c.Camera {
		k.scene = &scene{moved: still}
	}
	for i, f := range frames {
		if c.Camera && i > 0 { // the estimate of a real camera is about this good
			k.scene.moved = similarity{a: 1, dx: f.dx - frames[i-1].dx + rng.NormFloat64(),
				dy: f.dy - frames[i-1].dy + rng.NormFloat64()}
		}
		out[i].objects = f.objects
		for b, id := range k.Update(f.at, f.boxes) {
			if id != 0 {
				out[i].tracked = append(out[i].tracked, named{int(id), corners(f.boxes[b])})
			}
		}
	}
	return out
}

// pillars stand side by side, with equal gaps.
func pillars(n int, width float64) (all []truth.Box) {
	for i := range n {
		x := streetWidth*(float64(i)+0.5)/float64(n) - width/2
		all = append(all, truth.Box{x, 0, x + width, streetHeight})
	}
	return all
}
