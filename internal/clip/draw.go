package clip

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"millrace/internal/clip/truth"
)

// render draws every frame, writes the frames as packed RGB to w, and returns the ground truth.
func render(ctx context.Context, s Settings, w io.Writer, progress io.Writer) (*truth.Truth, error) {
	p := newPainter(s)
	t := &truth.Truth{Width: s.Width, Height: s.Height, FPS: float64(s.FPS)}
	n := s.frames()
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := w.Write(p.frame(i)); err != nil {
			return nil, fmt.Errorf("frame %d: %w", i, err)
		}
		t.Frames = append(t.Frames, describe(s, p.shapes, i))
		if (i+1)*10/n > i*10/n {
			_, _ = fmt.Fprintf(progress, "render: %d of %d frames\n", i+1, n)
		}
	}
	return t, nil
}

// noiseSize is the length of the noise table, a power of two.
const noiseSize = 1 << 16

type painter struct {
	s          Settings
	shapes     []shape
	background []uint8 // without changes of light, and without noise
	scratch    []uint8 // background and shapes of one frame
	out        []uint8
	noise      []int16
	rng        *rand.Rand
}

func newPainter(s Settings) *painter {
	p := &painter{
		s: s, shapes: scene(s),
		scratch: make([]uint8, s.Width*s.Height*3),
		out:     make([]uint8, s.Width*s.Height*3),
		noise:   make([]int16, noiseSize),
		rng:     rand.New(rand.NewPCG(s.Seed, 0x6e6f697365)),
	}
	p.background = background(s)
	if !s.quiet {
		for i := range p.noise {
			// About as strong as the noise of a webcam in a lit room.
			p.noise[i] = int16(math.Round(1.6 * p.rng.NormFloat64()))
		}
	}
	return p
}

// frame draws frame i. Frames must be drawn in order, because they share one random sequence of noise.
func (p *painter) frame(i int) []uint8 {
	t := float64(i) / float64(p.s.FPS)
	copy(p.scratch, p.background)
	for k := range p.shapes {
		if x, y, shown := p.shapes[k].where(t); shown {
			p.draw(&p.shapes[k], x, y)
		}
	}
	var lit [256]int16
	for v := range lit {
		lit[v] = int16(math.Round(float64(v) * light(t)))
	}
	row := p.s.Width * 3
	for y := range p.s.Height {
		off := int(p.rng.Uint32() & (noiseSize - 1))
		in, out := p.scratch[y*row:(y+1)*row], p.out[y*row:(y+1)*row]
		for j, v := range in {
			out[j] = uint8(min(max(lit[v]+p.noise[(off+j)&(noiseSize-1)], 0), 255))
		}
	}
	return p.out
}

// light is the brightness at time t: up and down by 7 % within 12 s, as under a passing cloud, far slower than any
// shape moves.
func light(t float64) float64 { return 0.93 + 0.07*math.Sin(2*math.Pi*t/12) }

// draw paints a shape with its centre at cx, cy, with soft edges of one pixel.
func (p *painter) draw(sh *shape, cx, cy float64) {
	b := sh.bounds()
	corners := sh.corners()
	x0, x1 := max(0, int(math.Floor(cx+b[0]))), min(p.s.Width, int(math.Ceil(cx+b[2])))
	y0, y1 := max(0, int(math.Floor(cy+b[1]))), min(p.s.Height, int(math.Ceil(cy+b[3])))
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			dx, dy := float64(x)+0.5-cx, float64(y)+0.5-cy
			cover := min(max(edgeDistance(sh, corners, dx, dy)+0.5, 0), 1)
			if cover == 0 {
				continue
			}
			shade := texture(sh, dx, dy)
			px := p.scratch[(y*p.s.Width+x)*3:][:3]
			for c := range px {
				px[c] = uint8(math.Round(float64(px[c])*(1-cover) + sh.colour[c]*shade*cover))
			}
		}
	}
}

// edgeDistance is the distance to the shape's edge in pixels, positive inside the shape.
func edgeDistance(sh *shape, corners [][2]float64, dx, dy float64) float64 {
	if sh.kind == disc {
		return sh.radius - math.Hypot(dx, dy)
	}
	d := math.Inf(1)
	for i, a := range corners {
		b := corners[(i+1)%len(corners)]
		ex, ey := b[0]-a[0], b[1]-a[1]
		d = min(d, (ex*(dy-a[1])-ey*(dx-a[0]))/math.Hypot(ex, ey))
	}
	return d
}

// texture is the brightness at a point of the shape. The pattern moves with the shape.
func texture(sh *shape, dx, dy float64) float64 {
	step := sh.radius / 2.5
	switch sh.pattern {
	case 1:
		return 0.72 + 0.28*math.Sin(2*math.Pi*(dx+0.6*dy)/(1.6*step))
	case 2:
		if (int(math.Floor(dx/step))+int(math.Floor(dy/step)))&1 == 0 {
			return 0.55
		}
	}
	return 1
}

// background is a grey wall: smooth noise at three sizes, faintly coloured, with a darker floor.
func background(s Settings) []uint8 {
	rng := rand.New(rand.NewPCG(s.Seed, 0x77616c6c))
	coarse, middle, fine := newLattice(rng, 11), newLattice(rng, 37), newLattice(rng, 149)
	out := make([]uint8, s.Width*s.Height*3)
	for y := range s.Height {
		v := float64(y) / float64(s.Height)
		floor := 0.0
		if v > 0.72 {
			floor = -22
		}
		for x := range s.Width {
			u := float64(x) / float64(s.Width)
			g := 112 + floor + 34*coarse.valueAt(u, v) + 18*middle.valueAt(u, v) + 12*fine.valueAt(u, v)
			for c, tint := range [3]float64{4, 0, -5} {
				out[(y*s.Width+x)*3+c] = uint8(min(max(g+tint, 0), 255))
			}
		}
	}
	return out
}

// lattice is value noise: random values on a grid, interpolated smoothly.
type lattice struct {
	n int
	v []float64
}

func newLattice(rng *rand.Rand, n int) lattice {
	l := lattice{n, make([]float64, (n+2)*(n+2))}
	for i := range l.v {
		l.v[i] = 2*rng.Float64() - 1
	}
	return l
}

// valueAt is the value at u, v (0 to 1), about -1 to 1.
func (l lattice) valueAt(u, v float64) float64 {
	x, y := u*float64(l.n), v*float64(l.n)
	i, j := int(x), int(y)
	fx, fy := smoothstep(x-float64(i)), smoothstep(y-float64(j))
	row := l.n + 2
	a, b := l.v[j*row+i], l.v[j*row+i+1]
	c, d := l.v[(j+1)*row+i], l.v[(j+1)*row+i+1]
	return (a*(1-fx)+b*fx)*(1-fy) + (c*(1-fx)+d*fx)*fy
}

// smoothstep rises from 0 to 1 with slope 0 at both ends.
func smoothstep(t float64) float64 { return t * t * (3 - 2*t) }
