package clip

import (
	"crypto/sha256"
	"io"
	"math"
	"testing"

	"millrace/internal/clip/truth"
)

func small() Settings { return Settings{Width: 160, Height: 120, Seconds: 4, FPS: 10, Seed: 1} }

func digest(t *testing.T, s Settings) [32]byte {
	t.Helper()
	h := sha256.New()
	if _, err := render(t.Context(), s, h, io.Discard); err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

func TestSameSeedSamePictures(t *testing.T) {
	s := small()
	first := digest(t, s)
	if digest(t, s) != first {
		t.Error("the same Settings gave other pictures")
	}
	s.Seed = 2
	if digest(t, s) == first {
		t.Error("another seed gave the same pictures")
	}
}

// Without noise, exactly the pixels covered by shapes differ from the lit background: none may lie outside the boxes,
// and each box of a shape in front must be filled to its edges.
func TestBoxesEncloseTheShapes(t *testing.T) {
	for seed := range uint64(3) {
		s := Settings{Width: 320, Height: 240, Seconds: 4, FPS: 6, Seed: seed, quiet: true}
		p := newPainter(s)
		for i := range s.frames() {
			pixels, f := p.frame(i), describe(s, p.shapes, i)
			changed := func(x, y int) bool {
				for c := range 3 {
					j := (y*s.Width+x)*3 + c
					if want := math.Round(float64(p.background[j]) * light(f.T)); math.Abs(float64(pixels[j])-want) >
						12 {
						return true
					}
				}
				return false
			}
			for y := range s.Height {
				for x := range s.Width {
					if changed(x, y) && !covered(f.Objects, float64(x)+0.5, float64(y)+0.5) {
						t.Fatalf("seed %d, frame %d: a shape at %d, %d lies in no box", seed, i, x, y)
					}
				}
			}
			front := f.Objects[len(f.Objects)-1] // the last is in front
			seen := truth.Box{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
			for y := int(front.Box[1]); y < int(math.Ceil(front.Box[3])); y++ {
				for x := int(front.Box[0]); x < int(math.Ceil(front.Box[2])); x++ {
					if changed(x, y) {
						seen = truth.Box{min(seen[0], float64(x)), min(seen[1], float64(y)),
							max(seen[2], float64(x+1)), max(seen[3], float64(y+1))}
					}
				}
			}
			for e := range seen {
				if math.Abs(seen[e]-front.Box[e]) > 4 {
					t.Fatalf("seed %d, frame %d: object %d is seen in %v; its box is %v", seed, i, front.ID, seen,
						front.Box)
				}
			}
		}
	}
}

func covered(objects []truth.Object, x, y float64) bool {
	for _, o := range objects {
		if x > o.Box[0]-1 && x < o.Box[2]+1 && y > o.Box[1]-1 && y < o.Box[3]+1 {
			return true
		}
	}
	return false
}

// For every seed, two shapes cross, two stop and go, and one enters and leaves.
func TestSceneHasAllMovements(t *testing.T) {
	for seed := range uint64(20) {
		s := Settings{Width: 640, Height: 480, Seconds: 10, FPS: 30, Seed: seed}
		shapes := scene(s)
		stops, crossings, first, last := map[int]int{}, 0, map[int]int{}, map[int]int{}
		was := map[int]bool{}
		for i := range s.frames() {
			f := describe(s, shapes, i)
			for k, a := range f.Objects {
				if _, ok := first[a.ID]; !ok {
					first[a.ID] = i
				}
				last[a.ID] = i
				if was[a.ID] && !a.Moving {
					stops[a.ID]++
				}
				was[a.ID] = a.Moving
				for _, b := range f.Objects[k+1:] {
					if truth.IoU(a.Box, b.Box) > 0.05 {
						crossings++
					}
				}
			}
		}
		if stops[3] < 2 || stops[4] < 2 || len(stops) != 2 {
			t.Errorf("seed %d: stops %v; want shapes 3 and 4 to stop, twice at least, and no other", seed, stops)
		}
		if crossings == 0 {
			t.Errorf("seed %d: no two shapes meet", seed)
		}
		if first[7] < 60 || last[7] > 255 || first[1] != 0 || last[1] != 299 {
			t.Errorf("seed %d: shape 7 is in the scene from frame %d to %d", seed, first[7], last[7])
		}
	}
}
