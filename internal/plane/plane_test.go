package plane

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The tests compare with the same questions asked in fractions, with the shift of moving points as two small numbers.
type exact struct{ x, y *big.Rat }

func fixed(p Point) exact { return exact{big.NewRat(p.X, 1), big.NewRat(p.Y, 1)} }

func moving(p Point) exact {
	right := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), 100))
	down := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), 250))
	return exact{right.Add(right, big.NewRat(p.X, 1)), down.Add(down, big.NewRat(p.Y, 1))}
}

func minus(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

// meeting returns where on the line from a to b, and where on the line from p to q, the lines meet: 0 is the
// beginning and 1 the end.
func meeting(a, b, p, q exact) (onLine, onMove *big.Rat, parallel bool) {
	dx, dy, ex, ey := minus(b.x, a.x), minus(b.y, a.y), minus(q.x, p.x), minus(q.y, p.y)
	det := minus(times(dx, ey), times(dy, ex))
	if det.Sign() == 0 {
		return nil, nil, true
	}
	fx, fy := minus(p.x, a.x), minus(p.y, a.y)
	onLine = minus(times(fx, ey), times(fy, ex))
	onMove = minus(times(fx, dy), times(fy, dx))
	return onLine.Quo(onLine, det), onMove.Quo(onMove, det), false
}

var one = big.NewRat(1, 1)

func within(r *big.Rat) bool { return r.Sign() >= 0 && r.Cmp(one) <= 0 }

// crossing is Crossing by the point where the line and the move meet.
func crossing(a, b, p, q Point) int {
	from, to, at, by := fixed(a), fixed(b), moving(p), moving(q)
	u, v, parallel := meeting(from, to, at, by)
	if parallel || !within(u) || !within(v) {
		return 0
	}
	return minus(times(minus(to.x, from.x), minus(by.y, at.y)), times(minus(to.y, from.y), minus(by.x, at.x))).Sign()
}

// inside is Inside by the sum of the edges that the way from far outside crosses.
func inside(polygon []Point, p Point) bool {
	out := exact{big.NewRat(-7*Size, 1), big.NewRat(-3*Size-1, 1)}
	n := 0
	for i, a := range polygon {
		u, v, parallel := meeting(fixed(a), fixed(polygon[(i+1)%len(polygon)]), out, moving(p))
		if !parallel && u.Sign() >= 0 && u.Cmp(one) < 0 && within(v) {
			n++
		}
	}
	return n%2 == 1
}

// near returns a point of few possible points, so that equal points and straight lines are frequent.
func near(rng *rand.Rand, cells int64) Point {
	return Point{rng.Int64N(cells+1) * (Size / cells), rng.Int64N(cells+1) * (Size / cells)}
}

func TestCrossingEqualsFractions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[int]int{}
	for i := range 9000 {
		cells := []int64{3, 8, Size}[i%3]
		a, b, p, q := near(rng, cells), near(rng, cells), near(rng, cells), near(rng, cells)
		if a == b {
			continue
		}
		got, want := Crossing(a, b, p, q), crossing(a, b, p, q)
		if seen[got]++; got != want {
			t.Fatalf("the move %v %v over the line %v %v: %d, in fractions %d", p, q, a, b, got, want)
		}
	}
	for _, direction := range []int{-1, 0, 1} {
		if seen[direction] < 500 {
			t.Errorf("the direction %d came %d times", direction, seen[direction])
		}
	}
}

func TestInsideEqualsFractions(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[bool]int{}
	for i := 0; i < 2000; {
		cells := []int64{4, Size}[i%2]
		polygon := make([]Point, 3+rng.IntN(5))
		for k := range polygon {
			polygon[k] = near(rng, cells)
		}
		if repeats(polygon) {
			continue
		}
		if _, _, found := Touching(polygon); found {
			continue
		}
		i++
		p := near(rng, 2*cells)
		got, want := Inside(polygon, p), inside(polygon, p)
		if seen[got]++; got != want {
			t.Fatalf("%v in %v: %v, in fractions %v", p, polygon, got, want)
		}
		// The path to another point crosses the edges an odd number of times when one of the two points is inside.
		q, sum := near(rng, 2*cells), 0
		for k, a := range polygon {
			sum += Crossing(a, polygon[(k+1)%len(polygon)], p, q)
		}
		if odd := sum%2 != 0; odd != (got != Inside(polygon, q)) {
			t.Fatalf("the move %v %v over the edges of %v: sum %d", p, q, polygon, sum)
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("inside %d, outside %d", seen[true], seen[false])
	}
}

func repeats(polygon []Point) bool {
	for i, p := range polygon {
		if p == polygon[(i+1)%len(polygon)] {
			return true
		}
	}
	return false
}

// touching is Touching in fractions: two edges share a point, and neighbours more than their corner.
func touching(polygon []Point) bool {
	n := len(polygon)
	on := func(a, b, c exact) bool {
		cross := minus(times(minus(b.x, a.x), minus(c.y, a.y)), times(minus(b.y, a.y), minus(c.x, a.x)))
		along := new(big.Rat).Add(times(minus(c.x, a.x), minus(c.x, b.x)), times(minus(c.y, a.y), minus(c.y, b.y)))
		return cross.Sign() == 0 && along.Sign() <= 0
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			a, b, c, d := fixed(polygon[i]), fixed(polygon[(i+1)%n]), fixed(polygon[j]), fixed(polygon[(j+1)%n])
			switch {
			case j == i+1: // b and c are the corner
				if on(a, b, d) || on(c, d, a) {
					return true
				}
			case (j+1)%n == i: // a and d are the corner
				if on(a, b, c) || on(c, d, b) {
					return true
				}
			default:
				u, v, parallel := meeting(a, b, c, d)
				if !parallel && within(u) && within(v) || on(a, b, c) || on(a, b, d) || on(c, d, a) || on(c, d, b) {
					return true
				}
			}
		}
	}
	return false
}

func TestTouchingEqualsFractions(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	seen := map[bool]int{}
	for i := 0; i < 3000; {
		polygon := make([]Point, 3+rng.IntN(4))
		for k := range polygon {
			polygon[k] = near(rng, []int64{3, 6, Size}[i%3])
		}
		if repeats(polygon) {
			continue
		}
		i++
		_, _, got := Touching(polygon)
		if want := touching(polygon); got != want {
			t.Fatalf("%v: %v, in fractions %v", polygon, got, want)
		}
		seen[got]++
	}
	if seen[true] < 250 || seen[false] < 250 {
		t.Errorf("touching %d, simple %d", seen[true], seen[false])
	}
}

func TestMovingStaysInThePicture(t *testing.T) {
	square := []Point{Fixed(0, 0), Fixed(1, 0), Fixed(1, 1), Fixed(0, 1)}
	for _, v := range []float64{-3, 0, 0.5, 1, 7, math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, p := range []Point{Moving(v, 0.5), Moving(0.5, v)} {
			if !Inside(square, p) {
				t.Errorf("%v is outside of the whole picture: %v", v, p)
			}
		}
	}
}

func TestDistances(t *testing.T) {
	s := Scale{640, 480}
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-3 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	a, b := Fixed(0.5, 0), Fixed(0.5, 1)
	near("beside a line", s.Distance(a, b, Fixed(0.25, 0.5)), 160)
	near("beyond the end", s.Distance(Fixed(0.5, 0.5), b, Fixed(0.5, 0)), 240)
	left, right := s.Room(Fixed(630./640, 0), Fixed(630./640, 1))
	near("room on the left", left, 10)
	near("room on the right", right, 630)
	strip := []Point{Fixed(0, 0), Fixed(1, 0), Fixed(1, 0.1), Fixed(0, 0.1)}
	near("edge", s.Boundary(strip, Fixed(0.5, 0.08)), 9.6)
	near("breadth", s.Breadth(strip), 640*48/(640.+48))
}
