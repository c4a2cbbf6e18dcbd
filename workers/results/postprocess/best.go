package postprocess

import "slices"

// hit is something with a score; x1 to y2 are its box in pixels of the model's
// input, if it has one.
type hit struct {
	x1, y1, x2, y2 float32
	score          float32
	class, index   int32
}

// order puts the higher score first, and of equal ones that which came first.
func order(a, b hit) int {
	switch {
	case a.score > b.score:
		return -1
	case a.score < b.score:
		return 1
	}
	return int(a.index - b.index)
}

// best keeps the limit best of the hits that are added to it by ascending index.
// It does not sort: once full, it is a heap with the worst in front.
type best struct {
	hits  []hit
	limit int
}

func newBest(limit int) best { return best{make([]hit, 0, limit), limit} }

// takes says whether a hit with this score, and an index past the others', would
// be kept.
func (b *best) takes(score float32) bool {
	return len(b.hits) < b.limit || score > b.hits[0].score
}

// add keeps h. Ask takes first.
func (b *best) add(h hit) {
	if len(b.hits) == b.limit {
		b.hits[0] = h
		b.sink(0)
		return
	}
	b.hits = append(b.hits, h)
	if len(b.hits) == b.limit {
		for i := b.limit/2 - 1; i >= 0; i-- {
			b.sink(i)
		}
	}
}

// sink moves the hit at i down until none below is worse.
func (b *best) sink(i int) {
	for {
		worst := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(b.hits); c++ {
			if order(b.hits[c], b.hits[worst]) > 0 {
				worst = c
			}
		}
		if worst == i {
			return
		}
		b.hits[i], b.hits[worst] = b.hits[worst], b.hits[i]
		i = worst
	}
}

// drain returns the hits, best first, and forgets them. They are valid until the
// next one is added.
func (b *best) drain() []hit {
	hits := b.hits
	b.hits = b.hits[:0]
	slices.SortFunc(hits, order)
	return hits
}

// suppress returns at most limit of the hits, best first, without those that
// overlap a better one of their class by more than iou. hits are sorted, and
// overwritten.
func suppress(hits []hit, iou float64, limit int) []hit {
	if iou >= 1 {
		return hits[:min(limit, len(hits))]
	}
	kept := hits[:0]
	for _, h := range hits {
		if len(kept) == limit {
			break
		}
		if !slices.ContainsFunc(kept, func(k hit) bool { return k.class == h.class && overlap(&k, &h, iou) }) {
			kept = append(kept, h)
		}
	}
	return kept
}

// overlap says whether the intersection of two boxes is more than iou of their
// union. Empty boxes overlap nothing.
func overlap(a, b *hit, iou float64) bool {
	w := float64(min(a.x2, b.x2)) - float64(max(a.x1, b.x1))
	h := float64(min(a.y2, b.y2)) - float64(max(a.y1, b.y1))
	if w <= 0 || h <= 0 {
		return false
	}
	return w*h > iou*(a.area()+b.area()-w*h)
}

func (h *hit) area() float64 {
	return (float64(h.x2) - float64(h.x1)) * (float64(h.y2) - float64(h.y1))
}
