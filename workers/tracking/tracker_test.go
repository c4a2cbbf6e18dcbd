package tracking

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"millrace/internal/clip/truth"
)

// The clip's own boxes, jittered, with misses, false alarms and dropped frames:
// ids stay with the things.
func TestIDsStay(t *testing.T) {
	clip, err := truth.Load("../../examples/spotter/clip.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name                       string
		every                      int
		miss, falsely, drop, shake float64
		most                       float64 // id switches for each thing's boxes
	}{
		{"30 fps, as they are", 1, 0, 0, 0, 0, 0},
		{"30 fps", 1, 0.05, 0.1, 0, 0.05, 0.01},
		{"30 fps, one in five missed", 1, 0.2, 0.2, 0, 0.05, 0.02},
		{"10 fps", 3, 0.05, 0.1, 0, 0.05, 0.03},
		{"30 fps, half of the frames dropped", 1, 0.05, 0.1, 0.5, 0.05, 0.03},
	} {
		var seen, named, switches int
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, 7))
			k := New(Config{})
			last := map[int]int64{} // of each thing
			for i := 0; i < len(clip.Frames); i += c.every {
				if rng.Float64() < c.drop {
					continue
				}
				f := &clip.Frames[i]
				var boxes []Box
				var whose []int
				for _, o := range f.Objects {
					if rng.Float64() < c.miss {
						continue
					}
					jog := func(v, size float64) float32 { return float32(v + rng.NormFloat64()*c.shake*size) }
					w, h := o.Box[2]-o.Box[0], o.Box[3]-o.Box[1]
					boxes = append(boxes, Box{jog(o.Box[0], w), jog(o.Box[1], h), jog(o.Box[2], w), jog(o.Box[3], h)})
					whose = append(whose, o.ID)
				}
				if rng.Float64() < c.falsely {
					x, y := float32(rng.Float64()*300), float32(rng.Float64()*200)
					boxes = append(boxes, Box{x, y, x + 20, y + 30})
					whose = append(whose, -1)
				}
				for b, id := range k.Update(time.Duration(f.T*float64(time.Second)), boxes) {
					if whose[b] < 0 {
						continue
					}
					seen++
					if id == 0 {
						continue
					}
					named++
					if old, ok := last[whose[b]]; ok && old != id {
						switches++
					}
					last[whose[b]] = id
				}
			}
		}
		rate := float64(switches) / float64(seen)
		t.Logf("%-36s %5d boxes, %.1f %% named, %d switches (%.2f %%)", c.name, seen, 100*float64(named)/float64(seen), switches, 100*rate)
		if rate > c.most || float64(named) < 0.85*float64(seen) {
			t.Errorf("%s: %d switches and %d named of %d boxes", c.name, switches, named, seen)
		}
	}
}

// Two things that cross keep their ids, by their velocity.
func TestCrossing(t *testing.T) {
	k := New(Config{})
	var first []int64
	for i := range 40 {
		x := float32(10 * i)
		ids := k.Update(time.Duration(i)*time.Second/30, []Box{{x, 100, x + 40, 140}, {400 - x, 110, 440 - x, 150}})
		if i == 5 {
			first = append(first, ids...)
		}
		if i > 5 && (ids[0] != first[0] || ids[1] != first[1]) {
			t.Fatalf("frame %d: ids %v, before %v", i, ids, first)
		}
	}
	if first[0] == first[1] || first[0] == 0 {
		t.Errorf("ids %v", first)
	}
}

// The assignment is the best there is, by trying all.
func TestAssignIsBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var m matcher
	for range 3000 {
		nb, nt := rng.IntN(5), rng.IntN(5)
		box := func() Box {
			x, y := float32(rng.Float64()*60), float32(rng.Float64()*60)
			return Box{x, y, x + 10 + float32(rng.Float64()*40), y + 10 + float32(rng.Float64()*40)}
		}
		var boxes []Box
		var tracks []*track
		for range nb {
			boxes = append(boxes, box())
		}
		for range nt {
			b := box()
			tracks = append(tracks, &track{at: b.shape()})
		}
		got, used := 0.0, map[int]bool{}
		for b, k := range m.assign(tracks, boxes, 0.2) {
			if k < 0 {
				continue
			}
			if used[k] || tracks[k].iou(&boxes[b]) < 0.2 {
				t.Fatal("one track twice, or too little overlap")
			}
			used[k] = true
			got += tracks[k].iou(&boxes[b])
		}
		if best := bestOf(tracks, boxes, 0, map[int]bool{}); math.Abs(got-best) > 1e-9 {
			t.Fatalf("%d boxes, %d tracks: %v, best is %v", nb, nt, got, best)
		}
	}
}

func bestOf(tracks []*track, boxes []Box, b int, used map[int]bool) float64 {
	if b == len(boxes) {
		return 0
	}
	best := bestOf(tracks, boxes, b+1, used)
	for k, t := range tracks {
		if o := t.iou(&boxes[b]); !used[k] && o >= 0.2 {
			used[k] = true
			best = math.Max(best, o+bestOf(tracks, boxes, b+1, used))
			used[k] = false
		}
	}
	return best
}

func TestUpdateAllocatesNothing(t *testing.T) {
	k := New(Config{})
	boxes := make([]Box, 20)
	at := time.Duration(0)
	if n := testing.AllocsPerRun(200, func() {
		at += time.Second / 30
		for i := range boxes {
			x := float32(50*i) + float32(at.Seconds()*10)
			boxes[i] = Box{x, 10, x + 40, 60}
		}
		k.Update(at, boxes)
	}); n > 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add([]byte("some boxes of a frame and then some more of another one"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k := New(Config{})
		for len(b) >= 17 {
			n := int(b[0]) % 8
			at := time.Duration(int8(b[1])) * 10 * time.Millisecond
			b = b[1:]
			var boxes []Box
			for ; n > 0 && len(b) >= 16; n-- {
				f := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[i:])) }
				boxes = append(boxes, Box{f(0), f(4), f(8), f(12)})
				b = b[16:]
			}
			seen := map[int64]bool{}
			ids := k.Update(at, boxes)
			if len(ids) != len(boxes) {
				t.Fatalf("%d ids for %d boxes", len(ids), len(boxes))
			}
			for _, id := range ids {
				if id != 0 && seen[id] {
					t.Fatal("one id twice")
				}
				seen[id] = true
			}
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{10, 100, 256} {
		b.Run(time.Duration(n).String(), func(b *testing.B) {
			k := New(Config{})
			boxes := make([]Box, n)
			at := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				at += time.Second / 30
				for i := range boxes {
					x, y := float32(40*(i%16))+float32(at.Seconds()), float32(40*(i/16))
					boxes[i] = Box{x, y, x + 45, y + 45}
				}
				k.Update(at, boxes)
			}
		})
	}
}
