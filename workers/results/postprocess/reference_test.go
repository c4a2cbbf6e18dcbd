package postprocess

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"millrace/stream"
)

// The functions below select boxes in the slow and simple way: sort all boxes, compare each pair.
type plain struct {
	box   [4]float64
	score float32
	class int
}

func selectPlainly(all []plain, threshold, iou float64, limit int) []plain {
	var list []plain
	for _, b := range all {
		if b.score >= float32(threshold) && !math.IsInf(float64(b.score), 0) && b.box[0] <= b.box[2] &&
			b.box[1] <= b.box[3] {
			list = append(list, b)
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].score > list[j].score })
	list = list[:min(len(list), maxCandidates)]
	removed := make([]bool, len(list))
	var kept []plain
	for i, b := range list {
		if removed[i] || len(kept) == limit {
			continue
		}
		kept = append(kept, b)
		for j := i + 1; j < len(list); j++ {
			if list[j].class == b.class && plainIoU(b.box, list[j].box) > iou {
				removed[j] = true
			}
		}
	}
	return kept
}

func plainIoU(a, b [4]float64) float64 {
	w, h := math.Min(a[2], b[2])-math.Max(a[0], b[0]), math.Min(a[3], b[3])-math.Max(a[1], b[1])
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h / ((a[2]-a[0])*(a[3]-a[1]) + (b[2]-b[0])*(b[3]-b[1]) - w*h)
}

// compare checks a result of some rows against the plainly selected boxes.
func compare(t *testing.T, got map[string]stream.Tensor, at Mapping, rows [][]plain) {
	t.Helper()
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r))
	}
	var boxes, scores []float32
	var classes []int64
	for _, r := range rows {
		for i := range longest {
			if i >= len(r) {
				boxes, scores, classes = append(boxes, 0, 0, 0, 0), append(scores, 0), append(classes, -1)
				continue
			}
			for k, v := range r[i].box {
				m, size := at.X, at.Width
				if k%2 == 1 {
					m, size = at.Y, at.Height
				}
				if size > 0 {
					v = math.Min(math.Max(v*m[0]+m[1], 0), float64(size))
				}
				boxes = append(boxes, float32(v))
			}
			scores, classes = append(scores, r[i].score), append(classes, int64(r[i].class))
		}
	}
	boxList := got["boxes"]
	if v := boxList.Float32s(); !near(v, boxes, 0.01) {
		t.Fatalf("boxes %v, want %v", v, boxes)
	}
	wantFloats(t, got["scores"], scores...)
	if c, ok := got["classes"]; ok {
		wantInts(t, c, classes...)
	}
}

// odd returns a score between 0 and 1, or an invalid score.
func odd(rng *rand.Rand) float32 {
	switch rng.IntN(40) {
	case 0:
		return nan
	case 1:
		return inf
	case 2:
		return -rng.Float32()
	case 3:
		return float32(rng.IntN(3)) / 2 // equal scores
	}
	return rng.Float32()
}

// share returns a number from 0 to 1; some are equal.
func share(rng *rand.Rand) float32 {
	if rng.IntN(10) == 0 {
		return float32(rng.IntN(3)) / 2
	}
	return rng.Float32()
}

// place returns a box on integer pixels, for exact results of both implementations.
func place(rng *rand.Rand) (cx, cy, w, h float32) {
	return float32(rng.IntN(640)), float32(rng.IntN(640)), float32(2 * rng.IntN(60)), float32(2 * rng.IntN(60))
}

func TestYoloMatchesReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for run := range 60 {
		n, classes, rows := 1+rng.IntN(400), 1+rng.IntN(6), 1+rng.IntN(3)
		if run == 0 {
			n = 5000 // more than maxCandidates
		}
		c := YOLO{Threshold: 0.05 + 0.9*rng.Float64(), IoU: 0.1 + rng.Float64()*0.8, Max: 1 + rng.IntN(200)}
		for _, layout := range []string{"v5", "v8"} {
			c.Layout = layout
			var raw []float32
			var want [][]plain
			for range rows {
				var list []plain
				var own []float32
				for range n {
					cx, cy, w, h := place(rng)
					b := plain{box: [4]float64{float64(cx - w/2), float64(cy - h/2), float64(cx + w/2),
						float64(cy + h/2)}}
					own = append(own, cx, cy, w, h)
					object := float32(1)
					if layout == "v5" {
						object = share(rng)
						own = append(own, object)
					}
					for k := range classes {
						s := share(rng)
						own = append(own, s)
						if finite(s) && s*object > b.score && object >= float32(c.Threshold) {
							b.score, b.class = s*object, k
						}
					}
					list = append(list, b)
				}
				if layout == "v8" {
					own = turn(own, 4+classes)
				}
				raw = append(raw, own...)
				want = append(want, selectPlainly(list, c.Threshold, c.IoU, c.Max))
			}
			shape := []int{n, 5 + classes}
			if layout == "v8" {
				shape = []int{4 + classes, n}
			}
			at := []Mapping{{}, letterbox}[run%2]
			got := answer(t, decoder(t, Config{YOLO: &c}, modelOf(spec("o", shape...))), at,
				tensor("o", raw, rows, shape[0], shape[1]))
			compare(t, got, at, want)
		}
	}
}

func TestBoxesMatchReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for run := range 90 {
		n, classes := 1+rng.IntN(300), 2+rng.IntN(4)
		if run < 3 {
			n = 4420
		}
		c := Boxes{Boxes: "b", Threshold: 0.05 + 0.9*rng.Float64(), IoU: 0.1 + rng.Float64()*0.8,
			Max: 1 + rng.IntN(100), Background: rng.IntN(2) == 0,
			Activation: []string{"none", "softmax", "sigmoid"}[run%3]}
		var places, scores []float32
		var list []plain
		for range n {
			cx, cy, w, h := place(rng)
			places = append(places, cx-w/2, cy-h/2, cx+w/2, cy+h/2)
			b := plain{box: [4]float64{float64(cx - w/2), float64(cy - h/2), float64(cx + w/2), float64(cy + h/2)},
				class: -1}
			own := make([]float32, classes)
			sum := 0.0
			for k := range own {
				own[k] = odd(rng)
				if c.Activation != "none" {
					own[k] = 6*own[k] - 3
				}
				if finite(own[k]) {
					sum += math.Exp(float64(own[k]))
				}
			}
			for k, v := range own {
				s := v
				switch {
				case !finite(v) || k == 0 && c.Background:
					continue
				case c.Activation == "softmax":
					s = float32(math.Exp(float64(v)) / sum)
				case c.Activation == "sigmoid":
					s = float32(1 / (1 + math.Exp(-float64(v))))
				}
				if b.class < 0 || s > b.score {
					b.score, b.class = s, k
				}
			}
			if c.Background {
				b.class--
			}
			scores = append(scores, own...)
			list = append(list, b)
		}
		d := decoder(t, Config{Boxes: &c}, modelOf(spec("s", n, classes), spec("b", n, 4)))
		got := answer(t, d, letterbox, tensor("s", scores, 1, n, classes), tensor("b", places, 1, n, 4))
		compare(t, got, letterbox, [][]plain{selectPlainly(list, c.Threshold, c.IoU, c.Max)})
	}
}

func TestRankMatchesReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		n, k := 1+rng.IntN(300), 1+rng.IntN(40)
		v := make([]float32, n)
		var index []int
		for i := range v {
			if v[i] = odd(rng); finite(v[i]) {
				index = append(index, i)
			}
		}
		slices.SortStableFunc(index, func(a, b int) int {
			if v[a] == v[b] {
				return 0
			} else if v[a] > v[b] {
				return -1
			}
			return 1
		})
		var want []int64
		for i := range min(k, n) {
			if i < len(index) {
				want = append(want, int64(index[i]))
			} else {
				want = append(want, -1)
			}
		}
		got := answer(t, decoder(t, Config{Classify: &Classify{TopK: min(k, n), Activation: "sigmoid"}},
			modelOf(spec("o", n))), Mapping{}, tensor("o", v, 1, n))
		wantInts(t, got["classes"], want...)
	}
}

func TestReaching(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 2000 {
		v := make([]float32, rng.IntN(100))
		for i := range v {
			if rng.IntN(20) == 0 {
				v[i] = 2 * odd(rng)
			}
		}
		least := rng.Float32() + 1e-30
		from := rng.IntN(len(v) + 1)
		want := from
		for want < len(v) && !(v[want] >= least) {
			want++
		}
		if got := reaching(v, from, least); got != want {
			t.Fatalf("%d, want %d: %v from %d in %v", got, want, least, from, v)
		}
	}
}

func TestOutside(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 2000 {
		v := make([]float32, rng.IntN(100))
		for i := range v {
			if v[i] = rng.Float32(); rng.IntN(30) == 0 {
				v[i] = []float32{1, 0, float32(math.Copysign(0, -1)), 1 + scoreSlack, -scoreSlack, 1.01, -0.01, nan,
					inf, -inf, 58}[rng.IntN(11)]
			}
		}
		want := 0
		for want < len(v) && v[want] >= -scoreSlack && v[want] <= 1+scoreSlack {
			want++
		}
		if got := firstOutOfRange(v); got != want {
			t.Fatalf("%d, want %d: %v", got, want, v)
		}
	}
}

func TestMasksMatchReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{1, 7, tile, 2*tile + 3} {
		const classes = 5
		v := make([]float32, classes*n)
		for i := range v {
			v[i] = odd(rng)
		}
		want := make([]byte, n)
		for i := range want {
			most := float32(math.Inf(-1))
			for c := range classes {
				if s := v[c*n+i]; finite(s) && s > most {
					most, want[i] = s, byte(c)
				}
			}
		}
		got := answer(t, decoder(t, Config{Masks: &Masks{}}, modelOf(spec("o", classes, 1, n))), Mapping{},
			tensor("o", v, 1, classes, 1, n))
		if !slices.Equal(got["mask"].Data, want) {
			t.Errorf("%d pixels differ", n)
		}
	}
}
