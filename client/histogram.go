package client

// Histogram counts values in buckets. Counts[i] is the number of values above
// Bounds[i-1] and up to Bounds[i]; Counts may have one element more than Bounds, for
// values above the last bound. Both end with the last bucket that is not empty, and
// bucket i has the same bounds in every reply.
type Histogram struct {
	Bounds []uint64 `json:"bounds"`
	Counts []uint64 `json:"counts"`
	Sum    uint64   `json:"sum"`
}

// Count returns how many values were counted.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Since returns what was counted since an earlier reply. When the
// counters have begun again since, as those of a model that was loaded again, all of h
// is returned.
func (h Histogram) Since(earlier Histogram) Histogram {
	if len(earlier.Counts) > len(h.Counts) || earlier.Sum > h.Sum {
		return h
	}
	out := Histogram{Bounds: h.Bounds, Counts: append([]uint64{}, h.Counts...), Sum: h.Sum - earlier.Sum}
	for i, n := range earlier.Counts {
		if n > out.Counts[i] {
			return h
		}
		out.Counts[i] -= n
	}
	return out
}

// Quantile returns a value that a share q, 0 to 1, of the values does not exceed, by
// linear interpolation in its bucket; 0 when there are none, and the last bound when it
// is above that.
func (h Histogram) Quantile(q float64) float64 {
	rank := q * float64(h.Count())
	if rank <= 0 {
		return 0
	}
	var below uint64
	for i, n := range h.Counts {
		if float64(below+n) < rank || n == 0 {
			below += n
			continue
		}
		if i >= len(h.Bounds) {
			break
		}
		low := 0.0
		if i > 0 {
			low = float64(h.Bounds[i-1])
		}
		return low + (float64(h.Bounds[i])-low)*(rank-float64(below))/float64(n)
	}
	if len(h.Bounds) == 0 {
		return 0
	}
	return float64(h.Bounds[len(h.Bounds)-1])
}
