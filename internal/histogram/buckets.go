package histogram

import "math/bits"

// The bounds of Buckets: every value up to 1<<subBits has its own bucket, and each power of two above is divided into
// 1<<subBits buckets, so that a bucket is at most a quarter as wide as its lower bound.
const (
	subBits    = 2
	largestBit = 26 // the last bound is 1<<largestBit
	numBuckets = 1<<subBits + (largestBit-subBits)<<subBits
)

// Buckets counts whole numbers, such as microseconds or rows, in buckets with fixed bounds. The zero value is empty.
// Adding allocates nothing. Buckets is for one goroutine at a time.
type Buckets struct {
	counts [numBuckets + 1]uint64 // the last: values above the last bound
	sum    uint64
}

// Add counts v.
func (b *Buckets) Add(v uint64) {
	b.counts[bucketOf(v)]++
	b.sum += v
}

// bucketOf returns the index of the first bucket with a bound of at least v.
func bucketOf(v uint64) int {
	if v <= 1<<subBits {
		return max(int(v), 1) - 1
	}
	v-- // bounds belong to the bucket below
	if v >= 1<<largestBit {
		return numBuckets
	}
	octave := bits.Len64(v) - 1 - subBits
	return octave<<subBits + int(v>>octave)
}

// boundOf returns the largest value of the bucket i.
func boundOf(i int) uint64 {
	if i < 1<<subBits {
		return uint64(i) + 1
	}
	octave := i>>subBits - 1
	return uint64(i&(1<<subBits-1)+1<<subBits+1) << octave
}

// Snapshot is the counts of a Buckets. Counts[i] is the number of values above Bounds[i-1] and up to Bounds[i];
// Counts may have one element more than Bounds, for values above the last bound. Both end with the last bucket that
// is not empty.
type Snapshot struct {
	Bounds []uint64
	Counts []uint64
	Sum    uint64
}

// Snapshot returns the counts.
func (b *Buckets) Snapshot() Snapshot {
	n := len(b.counts)
	for n > 0 && b.counts[n-1] == 0 {
		n--
	}
	s := Snapshot{Bounds: make([]uint64, min(n, numBuckets)), Counts: append([]uint64{}, b.counts[:n]...), Sum: b.sum}
	for i := range s.Bounds {
		s.Bounds[i] = boundOf(i)
	}
	return s
}
