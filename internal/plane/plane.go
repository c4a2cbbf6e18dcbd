// Package plane has exact predicates for points, lines and polygons of a picture.
//
// Points are whole numbers of a grid with Size cells across the picture's width, and Size cells down the height, y
// down. All products fit into an int64, so each predicate is exact. A moving point exactly on a line or an edge is
// decided by a shift: all moving points count as shifted to the right by less than any fraction of a cell, and down by
// much less than that. The shift is the same for all predicates, so a path into a polygon crosses the polygon's edges
// an odd number of times, also through a corner.
//
// The package must not know frames, rules or settings.
package plane

import "math"

// Size is the number of cells across the picture's width or height.
const Size = 1 << 24

// Point is a point of the grid. Coordinates are 0 to Size.
type Point struct{ X, Y int64 }

// Fixed returns the point nearest to x and y, which are shares of the picture's width and height from 0 to 1.
func Fixed(x, y float64) Point {
	return Point{int64(math.Round(x * Size)), int64(math.Round(y * Size))}
}

// Moving returns the point of a moving object as Fixed does, moved into the picture: with the shift, a point on the
// right or lower edge of the picture would be outside.
func Moving(x, y float64) Point {
	in := func(v float64) int64 { // not a number becomes 0
		if !(v > 0) {
			return 0
		}
		return min(int64(math.Round(min(v, 1)*Size)), Size-1)
	}
	return Point{in(x), in(y)}
}

// turn is positive when the way from a over b to c turns right on the screen, negative when the way turns left, and 0
// on a straight line.
func turn(a, b, c Point) int64 { return (b.X-a.X)*(c.Y-a.Y) - (b.Y-a.Y)*(c.X-a.X) }

// Side returns the side of the moving point p, seen from a towards b: -1 is left and 1 is right. a and b differ.
func Side(a, b, p Point) int { return sign(turn(a, b, p), -(b.Y - a.Y), b.X-a.X) }

// Crossing returns 1 when the move from p to q crosses the line from a to b from its left to its right, -1 for the
// other direction, and 0 when the move passes beside the line's ends or stays on one side. a and b differ.
func Crossing(a, b, p, q Point) int {
	from, to := Side(a, b, p), Side(a, b, q)
	if from == to || end(p, q, a) == end(p, q, b) {
		return 0
	}
	return to
}

// end returns the side of the fixed point a, seen from the moving point p towards the moving point q.
func end(p, q, a Point) int { return sign(turn(p, q, a), q.Y-p.Y, -(q.X - p.X)) }

// sign returns the sign of the first value other than 0.
func sign(values ...int64) int {
	for _, v := range values {
		if v != 0 {
			if v < 0 {
				return -1
			}
			return 1
		}
	}
	return 1
}

// Inside reports whether the moving point p is in a polygon without crossings.
func Inside(polygon []Point, p Point) (inside bool) {
	a := polygon[len(polygon)-1]
	for _, b := range polygon {
		low, high := a, b
		if low.Y > high.Y {
			low, high = high, low
		}
		if low.Y <= p.Y && p.Y < high.Y && Side(low, high, p) > 0 {
			inside = !inside
		}
		a = b
	}
	return inside
}

// Touching returns the indexes of the first points of two edges of a polygon that cross, touch or lie on each other,
// except in the corner of two neighbours. No two neighbouring points are equal.
func Touching(polygon []Point) (i, j int, found bool) {
	n := len(polygon)
	for i := range n {
		a, b := polygon[i], polygon[(i+1)%n]
		for j := i + 1; j < n; j++ {
			c, d := polygon[j], polygon[(j+1)%n]
			switch {
			case n == 2, j == i+1 && back(a, b, d), (j+1)%n == i && back(c, d, b):
				return i, j, true
			case j != i+1 && (j+1)%n != i && touch(a, b, c, d):
				return i, j, true
			}
		}
	}
	return 0, 0, false
}

// back reports whether the way from a to b returns on itself towards c.
func back(a, b, c Point) bool {
	return turn(a, b, c) == 0 && (b.X-a.X)*(c.X-b.X)+(b.Y-a.Y)*(c.Y-b.Y) < 0
}

// touch reports whether the lines from a to b and from c to d have a point in common.
func touch(a, b, c, d Point) bool {
	s, t, u, v := turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b)
	if opposite(s, t) && opposite(u, v) {
		return true
	}
	return s == 0 && between(a, b, c) || t == 0 && between(a, b, d) || u == 0 && between(c, d, a) ||
		v == 0 && between(c, d, b)
}

func opposite(s, t int64) bool { return s < 0 && t > 0 || s > 0 && t < 0 }

// between reports whether c, on a straight line with a and b, lies from a to b.
func between(a, b, c Point) bool {
	return min(a.X, b.X) <= c.X && c.X <= max(a.X, b.X) && min(a.Y, b.Y) <= c.Y && c.Y <= max(a.Y, b.Y)
}

// Scale is the size of a picture in pixels. Distances are for thresholds and not exact.
type Scale struct{ Width, Height float64 }

// vector returns the way from a to b in pixels.
func (s Scale) vector(a, b Point) (x, y float64) {
	return float64(b.X-a.X) * s.Width / Size, float64(b.Y-a.Y) * s.Height / Size
}

// Distance returns the pixels between p and the nearest point of the line from a to b.
func (s Scale) Distance(a, b, p Point) float64 {
	dx, dy := s.vector(a, b)
	x, y := s.vector(a, p)
	if square := dx*dx + dy*dy; square > 0 {
		along := min(max((x*dx+y*dy)/square, 0), 1)
		x, y = x-along*dx, y-along*dy
	}
	return math.Hypot(x, y)
}

// OnBorder reports whether the line from a to b lies on an edge of the picture.
func OnBorder(a, b Point) bool {
	return a.X == b.X && (a.X == 0 || a.X == Size) || a.Y == b.Y && (a.Y == 0 || a.Y == Size)
}

// Boundary returns the pixels between p and the nearest edge of a polygon, without the edges on the picture's edges,
// which no point crosses.
func (s Scale) Boundary(polygon []Point, p Point) float64 {
	least, a := math.Inf(1), polygon[len(polygon)-1]
	for _, b := range polygon {
		if !OnBorder(a, b) {
			least = min(least, s.Distance(a, b, p))
		}
		a = b
	}
	return least
}

// Room returns the largest distance in pixels of a point of the picture from the endless line through a and b, on the
// left and on the right.
func (s Scale) Room(a, b Point) (left, right float64) {
	dx, dy := s.vector(a, b)
	length := math.Hypot(dx, dy)
	for _, corner := range [...]Point{{0, 0}, {Size, 0}, {0, Size}, {Size, Size}} {
		x, y := s.vector(a, corner)
		d := (dx*y - dy*x) / length
		left, right = max(left, -d), max(right, d)
	}
	return left, right
}

// Breadth returns the area of a polygon by half of the length of its edges, in pixels: the smaller side of a narrow
// rectangle is a little larger.
func (s Scale) Breadth(polygon []Point) float64 {
	area, edges, first, a := 0.0, 0.0, polygon[0], polygon[len(polygon)-1]
	for _, b := range polygon {
		ax, ay := s.vector(first, a)
		bx, by := s.vector(first, b)
		area, edges, a = area+ax*by-ay*bx, edges+math.Hypot(bx-ax, by-ay), b
	}
	return math.Abs(area) / edges // the sum is twice the area
}
