package load

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		got  []uint64
		want float64
	}{
		{[]uint64{5, 5, 5, 5}, 1}, {[]uint64{8, 0, 0, 0}, 0.25}, {[]uint64{1, 3}, 0.8}, {[]uint64{0, 0}, 1}, {nil, 1},
	} {
		if f := Fairness(c.got); math.Abs(f-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.got, f, c.want)
		}
	}
}

func TestUnended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p openFrames
		model := map[uint64]time.Duration{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch n := rapid.Uint64Range(0, p.next+2).Draw(t, "n"); rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				model[p.next] = time.Duration(p.next)
				p.put(time.Duration(p.next), 0)
			case 2:
				m, ok := p.get(n, true)
				due, want := model[n]
				if ok != want || ok && m.due != due {
					t.Fatalf("frame %d: %v %v, want %v %v", n, m.due, ok, due, want)
				}
				delete(model, n)
			case 3:
				if p.next == 0 {
					continue
				}
				_, want := model[p.next-1]
				if p.undo() != want {
					t.Fatal("undo and the model differ")
				}
				delete(model, p.next-1)
			}
			if p.open != len(model) {
				t.Fatalf("%d open, want %d", p.open, len(model))
			}
		}
	})
}
