package client

// Histogram counts values in buckets. Counts[i] is the number of values above Bounds[i-1] and up to Bounds[i]; Counts
// may have one more element than Bounds, for values above the last bound. Both end with the last nonempty bucket, and
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

// Since returns the counts since an earlier reply. If the counters have been reset in between, for example by loading
// the model again, Since returns all of h.
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

// Quantile returns the value not exceeded by a share q, 0 to 1, of the values, by linear interpolation in the bucket;
// 0 without values, and the last bound for a quantile above the last bound.
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
