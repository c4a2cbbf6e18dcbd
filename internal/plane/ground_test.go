package plane

import (
	"math"
	"math/rand/v2"
	"testing"
)

// seen returns where a camera at a height over the ground, turned down by an angle, sees a place in front of it, in
// shares of a square picture: the model of a pinhole camera.
func seen(height, down float64, at [2]float64) [2]float64 {
	forward := at[1]*math.Cos(down) + height*math.Sin(down)
	below := height*math.Cos(down) - at[1]*math.Sin(down)
	return [2]float64{0.5 + at[0]/forward, 0.5 + below/forward}
}

func TestGroundFindsThePlacesThatACameraSees(t *testing.T) {
	const height, down = 6, 0.5
	corners := [4][2]float64{{-3, 6}, {4, 7}, {3, 20}, {-5, 18}}
	var points [4][2]float64
	for i, c := range corners {
		points[i] = seen(height, down, c)
	}
	g, ok := NewGround(points, corners)
	if !ok {
		t.Fatal("no map")
	}
	for i, p := range points {
		if at, ok := g.At(p[0], p[1]); !ok || math.Hypot(at[0]-corners[i][0], at[1]-corners[i][1]) > 1e-6 {
			t.Errorf("the point of %v is at %v, %v", corners[i], at, ok)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		want := [2]float64{rng.Float64()*40 - 20, rng.Float64()*40 + 1}
		p := seen(height, down, want)
		got, ok := g.At(p[0], p[1])
		if ok != (want[1] <= 20) || ok && math.Hypot(got[0]-want[0], got[1]-want[1]) > 1e-6 {
			t.Fatalf("%v is at %v, %v; want %v", p, got, ok, want)
		}
	}
	horizon := 0.5 - math.Tan(down) // below is -forward * tan(down) far away
	for _, y := range []float64{horizon - 0.1, horizon, horizon + 0.001} {
		if at, ok := g.At(0.3, y); ok {
			t.Errorf("a point at the horizon has the place %v", at)
		}
	}
}

func TestGroundNeedsFourPointsWithoutALine(t *testing.T) {
	square := [4][2]float64{{0, 0}, {1, 0}, {1, 1}, {0, 1}}
	for name, p := range map[string][4][2]float64{
		"a line":       {{0, 0}, {0.5, 0.5}, {1, 1}, {0, 1}},
		"nearly":       {{0, 0}, {0.5, 0.5005}, {1, 1}, {0, 1}},
		"a point":      {{0, 0}, {0, 0}, {1, 1}, {0, 1}},
		"a dot":        {{1, 1}, {1, 1}, {1, 1}, {1, 1}},
		"other order":  {{0, 0}, {1, 1}, {1, 0}, {0, 1}},
		"not a number": {{math.NaN(), 0}, {1, 0}, {1, 1}, {0, 1}},
	} {
		if _, ok := NewGround(p, square); ok {
			t.Errorf("%s: the points make a map", name)
		}
		if _, ok := NewGround(square, p); ok {
			t.Errorf("%s: the places make a map", name)
		}
	}
	if _, ok := NewGround(square, [4][2]float64{{0, 0}, {0, 5}, {5, 5}, {5, 0}}); !ok {
		t.Error("a mirrored ground makes no map")
	}
}
