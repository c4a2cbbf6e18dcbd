package difference

import (
	"cmp"
	"math"
	"slices"

	"millrace/internal/overlay"
)

// Boxes is the difference between the boxes of two models. Drift is the distance
// between the centres of two matched boxes, in pixels of the frame as sent. Changes
// of scores are B's minus A's.
type Boxes struct {
	A         int     `json:"a"`
	B         int     `json:"b"`
	Matched   int     `json:"matched"` // of the same class
	Changed   int     `json:"changed"` // overlapping, of another class
	OnlyA     int     `json:"only_a"`
	OnlyB     int     `json:"only_b"`
	IoU       float64 `json:"mean_iou"`
	Drift     float64 `json:"mean_drift_px"`
	MaxDrift  float64 `json:"max_drift_px"`
	Score     float64 `json:"mean_score_change"`
	MaxScore  float64 `json:"max_score_change"` // the largest by absolute value
	withScore int
}

// Differ returns the number of boxes that differ. A changed class counts once.
func (d *Boxes) Differ() int { return d.Changed + d.OnlyA + d.OnlyB }

// add compares the boxes of one frame, calls matched with each pair, and returns the number of different boxes.
// Matching is greedy: each box of A, by descending score, takes the box of B with the largest IoU of at least iou,
// first among the boxes of the same class, then among all unmatched boxes.
func (d *Boxes) add(a, b []overlay.Box, iou float64, matched func(a, b *overlay.Box)) (differ int) {
	before := d.Differ()
	d.A += len(a)
	d.B += len(b)
	a = slices.Clone(a)
	// boxes without a score last
	slices.SortStableFunc(a, func(x, y overlay.Box) int { return cmp.Compare(y.Score, x.Score) })
	taken := make([]bool, len(b))
	choose := func(x *overlay.Box, classes bool) int {
		at, best := -1, iou
		for k := range b {
			if o := overlap(x, &b[k]); !taken[k] && o >= best && (at < 0 || o > best) &&
				(!classes || sameClass(&x.Class, &b[k].Class)) {
				at, best = k, o
			}
		}
		if at >= 0 {
			taken[at] = true
		}
		return at
	}
	var unmatched []overlay.Box
	for i := range a {
		if k := choose(&a[i], true); k >= 0 {
			d.match(&a[i], &b[k])
			matched(&a[i], &b[k])
		} else {
			unmatched = append(unmatched, a[i])
		}
	}
	changed := 0
	for i := range unmatched {
		if choose(&unmatched[i], false) >= 0 {
			changed++
		}
	}
	d.Changed += changed
	d.OnlyA += len(unmatched) - changed
	d.OnlyB += len(b) - (len(a) - len(unmatched)) - changed
	return d.Differ() - before
}

func (d *Boxes) match(a, b *overlay.Box) {
	d.Matched++
	d.IoU += overlap(a, b)
	drift := math.Hypot(a.X1+a.X2-b.X1-b.X2, a.Y1+a.Y2-b.Y1-b.Y2) / 2
	d.Drift += drift
	d.MaxDrift = max(d.MaxDrift, drift)
	if s := b.Score - a.Score; !math.IsNaN(s) && !math.IsInf(s, 0) {
		d.withScore++
		d.Score += s
		if math.Abs(s) > math.Abs(d.MaxScore) {
			d.MaxScore = s
		}
	}
}

// finish turns the sums into means.
func (d *Boxes) finish() {
	if d.Matched > 0 {
		d.IoU /= float64(d.Matched)
		d.Drift /= float64(d.Matched)
	}
	if d.withScore > 0 {
		d.Score /= float64(d.withScore)
	}
}

// sameClass compares labels, or else numbers. A box without a class matches any.
func sameClass(a, b *overlay.Class) bool {
	switch {
	case a.Label != "" && b.Label != "":
		return a.Label == b.Label
	case a.Number >= 0 && b.Number >= 0:
		return a.Number == b.Number
	}
	return true
}

// overlap is the intersection over union of two boxes, 0 to 1. For boxes without an area, overlap is 1 if they are
// equal, else 0.
func overlap(a, b *overlay.Box) float64 {
	area := func(x1, y1, x2, y2 float64) float64 { return max(x2-x1, 0) * max(y2-y1, 0) }
	both := area(max(a.X1, b.X1), max(a.Y1, b.Y1), min(a.X2, b.X2), min(a.Y2, b.Y2))
	either := area(a.X1, a.Y1, a.X2, a.Y2) + area(b.X1, b.Y1, b.X2, b.Y2) - both
	if either > 0 {
		return both / either
	}
	if a.X1 == b.X1 && a.Y1 == b.Y1 && a.X2 == b.X2 && a.Y2 == b.Y2 {
		return 1
	}
	return 0
}
