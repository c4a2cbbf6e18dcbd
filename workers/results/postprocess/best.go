package postprocess

import "slices"

// candidate is a possible result with a score; x1 to y2 are the corners of a box, if any, in pixels of the model's
// input.
type candidate struct {
	x1, y1, x2, y2 float32
	score          float32
	class, index   int32
}

// order sorts by descending score, and equal scores by ascending index.
func order(a, b candidate) int {
	switch {
	case a.score > b.score:
		return -1
	case a.score < b.score:
		return 1
	}
	return int(a.index - b.index)
}

// best keeps the best candidates, at most limit, of all candidates added by ascending index. The candidates are
// unsorted; a full best is a heap with the worst candidate first.
type best struct {
	candidates []candidate
	limit      int
}

func newBest(limit int) best { return best{make([]candidate, 0, limit), limit} }

// accepts reports whether best would keep a candidate with this score and an index above all others.
func (b *best) accepts(score float32) bool {
	return len(b.candidates) < b.limit || score > b.candidates[0].score
}

// add keeps h. The caller calls accepts first.
func (b *best) add(h candidate) {
	if len(b.candidates) == b.limit {
		b.candidates[0] = h
		b.sink(0)
		return
	}
	b.candidates = append(b.candidates, h)
	if len(b.candidates) == b.limit {
		for i := b.limit/2 - 1; i >= 0; i-- {
			b.sink(i)
		}
	}
}

// sink moves the candidate at i down until none below is worse.
func (b *best) sink(i int) {
	for {
		worst := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(b.candidates); c++ {
			if order(b.candidates[c], b.candidates[worst]) > 0 {
				worst = c
			}
		}
		if worst == i {
			return
		}
		b.candidates[i], b.candidates[worst] = b.candidates[worst], b.candidates[i]
		i = worst
	}
}

// drain returns the candidates, best first, and empties b. The candidates are valid until the next add.
func (b *best) drain() []candidate {
	candidates := b.candidates
	b.candidates = b.candidates[:0]
	slices.SortFunc(candidates, order)
	return candidates
}

// suppress returns at most limit candidates, best first, without each candidate that overlaps a better candidate of
// the same class by more than iou, as measured by overlap. candidates are sorted, and overwritten.
func suppress(candidates []candidate, iou float64, limit int,
	overlap func(a, b *candidate, iou float64) bool) []candidate {
	if iou >= 1 {
		return candidates[:min(limit, len(candidates))]
	}
	kept := candidates[:0]
	for i := range candidates {
		if len(kept) == limit {
			break
		}
		h, free := &candidates[i], true
		for j := 0; j < len(kept) && free; j++ {
			free = kept[j].class != h.class || !overlap(&kept[j], h, iou)
		}
		if free {
			kept = append(kept, *h)
		}
	}
	return kept
}

// overlap reports whether the intersection of two boxes is more than iou of their
// union. Empty boxes do not overlap.
func overlap(a, b *candidate, iou float64) bool {
	w := float64(min(a.x2, b.x2)) - float64(max(a.x1, b.x1))
	h := float64(min(a.y2, b.y2)) - float64(max(a.y1, b.y1))
	if w <= 0 || h <= 0 {
		return false
	}
	return w*h > iou*(a.area()+b.area()-w*h)
}

func (h *candidate) area() float64 {
	return (float64(h.x2) - float64(h.x1)) * (float64(h.y2) - float64(h.y1))
}
