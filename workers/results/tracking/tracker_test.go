package tracking

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two crossing objects keep their ids, because of their velocity.
func TestCrossing(t *testing.T) {
	k := New(Config{})
	var first []int64
	for i := range 40 {
		x := float32(10 * i)
		ids := k.Update(time.Duration(i)*time.Second/30, []Box{{X1: x, Y1: 100, X2: x + 40, Y2: 140},
			{X1: 400 - x, Y1: 110, X2: 440 - x, Y2: 150}})
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

// The assignment is the best of all possible assignments.
func TestAssignIsBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var m matcher
	for range 3000 {
		nb, nt := rng.IntN(7), rng.IntN(7)
		box := func() Box {
			x, y := float32(rng.Float64()*60), float32(rng.Float64()*60)
			return Box{X1: x, Y1: y, X2: x + 10 + float32(rng.Float64()*40), Y2: y + 10 + float32(rng.Float64()*40)}
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
		m.begin(len(tracks), len(boxes))
		m.assign(tracks, boxes, &round{high: true, unnamed: true, least: 0.2})
		for b, k := range m.trackOf {
			if k < 0 {
				continue
			}
			if used[k] || overlap(tracks[k], &boxes[b]) < 0.2 {
				t.Fatal("one track twice, or too little overlap")
			}
			used[k] = true
			got += overlap(tracks[k], &boxes[b])
		}
		if best := bestOf(tracks, boxes, 0, map[int]bool{}); math.Abs(got-best) > 1e-9 {
			t.Fatalf("%d boxes, %d tracks: %v, best is %v", nb, nt, got, best)
		}
	}
}

func overlap(k *track, b *Box) float64 {
	p, q := k.area(), b.area()
	return p.iou(&q)
}

func bestOf(tracks []*track, boxes []Box, b int, used map[int]bool) float64 {
	if b == len(boxes) {
		return 0
	}
	best := bestOf(tracks, boxes, b+1, used)
	for k, t := range tracks {
		if o := overlap(t, &boxes[b]); !used[k] && o >= 0.2 {
			used[k] = true
			best = math.Max(best, o+bestOf(tracks, boxes, b+1, used))
			used[k] = false
		}
	}
	return best
}

func TestUpdateAllocatesNothing(t *testing.T) {
	for _, kind := range []string{IoU, ByteTrack} {
		k := New(Config{Kind: kind})
		boxes := make([]Box, 20)
		at := time.Duration(0)
		if n := testing.AllocsPerRun(200, func() {
			at += time.Second / 30
			for i := range boxes {
				x := float32(50*i) + float32(at.Seconds()*10)
				boxes[i] = Box{X1: x, Y1: 10, X2: x + 40, Y2: 60, Score: float32(i%10) / 10}
			}
			k.Update(at, boxes)
		}); n > 0 {
			t.Errorf("%s: %v allocations a frame", kind, n)
		}
	}
}

// box is 40 pixels wide and high.
func box(x, y float32) Box { return Box{X1: x, Y1: y, X2: x + 40, Y2: y + 40} }

// seen returns the id of a box after the confirming frames.
func seen(k *Tracker, at time.Duration, b Box) int64 {
	var id int64
	for i := range 5 {
		id = k.Update(at+time.Duration(i)*time.Second/30, []Box{b})[0]
	}
	return id
}

func TestGapsAndReset(t *testing.T) {
	k := New(Config{})
	if id := seen(k, 0, box(0, 0)); id != 1 {
		t.Fatalf("the first id is %d", id)
	}
	if id := k.Update(9*time.Second, []Box{box(0, 0)})[0]; id != 1 {
		t.Errorf("after a gap of 9 s in the frames: id %d", id)
	}
	if id := seen(k, time.Hour, box(0, 0)); id != 2 {
		t.Errorf("after an hour: id %d", id)
	}
	for i := range 20 { // 0.6 s with frames but without the box
		k.Update(time.Hour+time.Second+time.Duration(i)*time.Second/30, nil)
	}
	if id := seen(k, time.Hour+2*time.Second, box(0, 0)); id != 3 {
		t.Errorf("after frames without the box: id %d", id)
	}
	k.Reset()
	if id := seen(k, 0, box(0, 0)); id != 4 {
		t.Errorf("after Reset: id %d", id)
	}
}

// While the clock stands still, tracks of false boxes still end and make room.
func TestStandingClockEndsTracks(t *testing.T) {
	for kind, most := range map[string]int{IoU: 17, ByteTrack: 32} {
		k := New(Config{Kind: kind, MinHits: 1})
		for i := range 600 {
			b := box(float32(1000*i), 0)
			b.Score = 0.9
			k.Update(time.Second, []Box{b})
			if len(k.tracks) > most {
				t.Fatalf("%s: %d tracks after %d frames", kind, len(k.tracks), i+1)
			}
		}
	}
}

// ByteTrack's age is time, not a number of frames, and a box with a low score continues a track only without a gap.
func TestByteTrack(t *testing.T) {
	high, low := box(0, 0), box(0, 0)
	high.Score, low.Score = 0.9, 0.2
	type step struct {
		at  time.Duration
		box Box
		id  int64
	}
	const ms = time.Millisecond
	for name, steps := range map[string][]step{
		"a low score begins no track": {{0, low, 0}, {40 * ms, low, 0}},
		"low scores continue a track": {{0, high, 1}, {40 * ms, low, 1}, {400 * ms, low, 1}, {440 * ms, high, 1}},
		"lost for 0.96 s":             {{0, high, 1}, {500 * ms, box(500, 0), 0}, {960 * ms, high, 1}},
		"lost for more than a second": {{0, high, 1}, {500 * ms, box(500, 0), 0}, {1040 * ms, box(500, 0), 0},
			{1080 * ms, high, 2}},
		"one frame after 3 s":     {{0, high, 1}, {3 * time.Second, high, 1}},
		"no low score after loss": {{0, high, 1}, {40 * ms, box(500, 0), 0}, {80 * ms, low, 0}, {120 * ms, high, 1}},
		"the clock jumps back":    {{time.Hour, high, 1}, {0, high, 1}, {time.Hour, high, 2}},
	} {
		k := New(Config{Kind: ByteTrack, MinHits: 1})
		for i, s := range steps {
			if id := k.Update(s.at, []Box{s.box})[0]; id != s.id {
				t.Errorf("%s, frame %d: id %d, not %d", name, i, id, s.id)
			}
		}
	}
}

// A frame with 10,000 boxes gets 10,000 ids; invalid boxes and boxes beyond the most have the id 0.
func TestManyBoxes(t *testing.T) {
	nan := float32(math.NaN())
	bad := []Box{{X1: nan, Y2: 5, X2: 5, Score: 1}, {Score: 1}, {X1: 5, X2: 1, Y2: 5, Score: 1}}
	for _, kind := range []string{IoU, ByteTrack} {
		boxes := slices.Clone(bad)
		for i := range 10_000 - len(bad) {
			b := box(float32(50*(i%100)), float32(50*(i/100)))
			b.Score = 0.9
			boxes = append(boxes, b)
		}
		boxes[len(bad)].Score = nan
		k := New(Config{Kind: kind})
		for i := range 3 {
			k.Update(time.Duration(i)*time.Second/30, boxes)
		}
		named := 0
		for i, id := range k.ids {
			if id != 0 {
				named++
			}
			if id != 0 && (i < len(bad) || i >= MaxTracks) {
				t.Errorf("%s: box %d has the id %d", kind, i, id)
			}
		}
		if len(k.ids) != len(boxes) || named < MaxTracks-len(bad)-1 {
			t.Errorf("%s: %d ids, %d not 0", kind, len(k.ids), named)
		}
	}
}

func TestMax(t *testing.T) {
	k := New(Config{Max: 2, MinHits: 1})
	if got := k.Update(0, []Box{box(0, 0), box(100, 0), box(200, 0)}); !slices.Equal(got, []int64{1, 2, 0}) {
		t.Errorf("ids %v", got)
	}
	if got := k.Update(time.Second/30, []Box{box(200, 0), box(100, 0)}); !slices.Equal(got, []int64{0, 2}) {
		t.Errorf("ids %v with no track left", got)
	}
}

func TestScoreAndClass(t *testing.T) {
	low, high, other := box(0, 0), box(0, 0), box(0, 0)
	low.Score, high.Score, other.Class = 0.2, 0.8, 1
	k := New(Config{Score: 0.5, MinHits: 1})
	for i, c := range []struct {
		box Box
		id  int64
	}{{low, 0}, {high, 1}, {low, 1}} {
		if id := k.Update(time.Duration(i)*time.Second/30, []Box{c.box})[0]; id != c.id {
			t.Errorf("frame %d, score %v: id %d", i, c.box.Score, id)
		}
	}
	for _, same := range []bool{false, true} {
		k := New(Config{SameClass: same, MinHits: 1})
		k.Update(0, []Box{low})
		if id := k.Update(time.Second/30, []Box{other})[0]; (id == 2) != same {
			t.Errorf("same class %v: id %d of another class", same, id)
		}
	}
}

func TestValidate(t *testing.T) {
	for field, c := range map[string]Config{
		"track_iou": {IoU: math.NaN()}, "track_hits": {MinHits: -1}, "track_age": {MaxAge: 2 * time.Hour},
		"max": {Max: MaxTracks + 1}, "track_score": {Score: 1.5}, "track_kind": {Kind: "sort"},
	} {
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
}

// For any input: an id for each box, none twice in a frame, none again after its track
// has ended, and no more tracks than allowed.
func FuzzUpdate(f *testing.F) {
	number := func(vs ...float32) []byte {
		b := []byte{0x05, 3}
		for _, v := range vs {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	f.Add(uint8(0), number(10, 10, 50, 50, 11, 11, 51, 51))
	f.Add(uint8(1), number(nan, 0, 5, 5, 0, 0, inf, inf))
	f.Add(uint8(2), number(50, 50, 10, 10, -inf, 0, 1, 1))
	f.Add(uint8(65), number(10, 10, 50, 50, 11, 11, 51, 51, nan, 0, 5, 5))
	f.Add(uint8(7), number(-1e30, -1e30, 1e30, 1e30, 0, 0, 1e-30, 1e-30))
	f.Fuzz(func(t *testing.T, setting uint8, b []byte) {
		k := New(Config{MinHits: 1 + int(setting%3), Max: 1 + int(setting%5), SameClass: setting&8 != 0,
			Score: float64(setting>>4) / 16, Kind: []string{IoU, ByteTrack}[setting>>6&1]})
		var highest int64
		last := map[int64]bool{}
		for len(b) >= 18 {
			n, at := int(b[0])%8, time.Duration(int8(b[1]))*10*time.Millisecond
			if n == 7 {
				at = time.Duration(math.MinInt64) + time.Duration(b[1])<<56
			}
			b = b[2:]
			var boxes []Box
			for ; n > 0 && len(b) >= 16; n-- {
				v := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[i:])) }
				boxes = append(boxes, Box{X1: v(0), Y1: v(4), X2: v(8), Y2: v(12), Score: v(1), Class: int32(b[3]) % 2})
				b = b[16:]
			}
			ids := k.Update(at, boxes)
			if len(ids) != len(boxes) || len(k.tracks) > k.conf.Max {
				t.Fatalf("%d ids for %d boxes, %d tracks", len(ids), len(boxes), len(k.tracks))
			}
			seen := map[int64]bool{}
			for _, id := range ids {
				if id == 0 {
					continue
				}
				if seen[id] || id <= highest && !last[id] {
					t.Fatalf("id %d twice", id)
				}
				seen[id] = true
			}
			clear(last)
			for _, tr := range k.tracks {
				last[tr.id] = true
				highest = max(highest, tr.id)
				for _, v := range tr.at {
					if math.IsNaN(v) || math.IsInf(v, 0) {
						t.Fatalf("a track at %v", tr.at)
					}
				}
			}
		}
	})
}

// Apart has boxes side by side; in packed each box overlaps many others.
func BenchmarkUpdate(b *testing.B) {
	for _, how := range []struct {
		name  string
		kind  string
		reach float64 // of the picture for 256 boxes of 45 pixels, pixels
	}{{"iou/apart", "", 0}, {"iou/packed", "", 200}, {"bytetrack/apart", ByteTrack, 0},
		{"bytetrack/packed", ByteTrack, 200}} {
		for _, n := range []int{10, 100, 200, 256} {
			b.Run(fmt.Sprint(how.name, "/", n), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(5, 6))
				k, boxes, at := New(Config{Kind: how.kind}), make([]Box, n), time.Duration(0)
				b.ReportAllocs()
				for b.Loop() {
					at += time.Second / 30
					for i := range boxes {
						x, y := float32(50*(i%16))+2*rng.Float32(), float32(50*(i/16))+2*rng.Float32()
						if how.reach > 0 {
							x, y = float32(how.reach*rng.Float64()), float32(how.reach*rng.Float64())
						}
						boxes[i] = Box{X1: x, Y1: y, X2: x + 45, Y2: y + 45, Score: float32(i%10+1) / 10}
					}
					k.Update(at, boxes)
				}
			})
		}
	}
}
