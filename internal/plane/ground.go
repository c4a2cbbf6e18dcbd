package plane

import "math"

// Ground maps the points of a picture to the places of a flat ground that a camera sees in perspective.
type Ground struct {
	m     matrix
	least float64 // weight of the farthest of the four points
}

// matrix is a projective map, by rows.
type matrix [3][3]float64

// thinnest is the smallest share of the largest triangle of four points that another triangle may have: with three
// points on a line there is no map, and near a line small errors of the points become large errors of the places.
const thinnest = 0.01

// NewGround returns the only projective map (a homography) that takes each of four points, in shares of the picture, to
// its place. Without ok, three of the points or places are on a line or nearly so, or the points and the places are not
// in the same order.
func NewGround(points, places [4][2]float64) (g Ground, ok bool) {
	if thin(points) || thin(places) {
		return g, false
	}
	g.m = basis(places).times(basis(points).adjugate())
	if g.weight(points[0]) < 0 { // the factor of a projective map is free
		for i := range g.m {
			for j := range g.m[i] {
				g.m[i][j] = -g.m[i][j]
			}
		}
	}
	g.least = math.Inf(1)
	for _, p := range points {
		g.least = min(g.least, g.weight(p))
	}
	return g, g.least > 0 // otherwise the horizon is between the points
}

// At returns the place at a point of the picture, in shares. A point farther away than the farthest of the four points
// has none: towards the horizon a pixel is more and more metres.
func (g *Ground) At(x, y float64) (at [2]float64, ok bool) {
	p := [2]float64{x, y}
	w := g.weight(p)
	if w < g.least*(1-1e-9) { // the points themselves have places
		return at, false
	}
	row := func(i int) float64 { return (g.m[i][0]*p[0] + g.m[i][1]*p[1] + g.m[i][2]) / w }
	return [2]float64{row(0), row(1)}, true
}

// weight is 0 on the horizon, and the larger the nearer the camera is.
func (g *Ground) weight(p [2]float64) float64 { return g.m[2][0]*p[0] + g.m[2][1]*p[1] + g.m[2][2] }

// thin reports whether three of four points are on a line, or nearly so.
func thin(p [4][2]float64) bool {
	least, most := math.Inf(1), 0.0
	for i := range p { // the triangle without point i
		a, b, c := p[(i+1)%4], p[(i+2)%4], p[(i+3)%4]
		area := math.Abs((b[0]-a[0])*(c[1]-a[1]) - (b[1]-a[1])*(c[0]-a[0]))
		least, most = min(least, area), max(most, area)
	}
	return !(least > thinnest*most)
}

// basis returns the map that takes the points (1, 0, 0), (0, 1, 0), (0, 0, 1) and (1, 1, 1) to four points.
func basis(p [4][2]float64) matrix {
	m := matrix{{p[0][0], p[1][0], p[2][0]}, {p[0][1], p[1][1], p[2][1]}, {1, 1, 1}}
	a := m.adjugate()
	for j := range 3 {
		factor := a[j][0]*p[3][0] + a[j][1]*p[3][1] + a[j][2]
		for i := range 3 {
			m[i][j] *= factor
		}
	}
	return m
}

// adjugate returns the inverse times the determinant.
func (m matrix) adjugate() (out matrix) {
	for i := range 3 {
		for j := range 3 {
			a, b, c, d := (j+1)%3, (j+2)%3, (i+1)%3, (i+2)%3
			out[i][j] = m[a][c]*m[b][d] - m[a][d]*m[b][c]
		}
	}
	return out
}

func (m matrix) times(by matrix) (out matrix) {
	for i := range 3 {
		for j := range 3 {
			for k := range 3 {
				out[i][j] += m[i][k] * by[k][j]
			}
		}
	}
	return out
}
