//go:build !nometrics

package tracing

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// distribution counts whole numbers for a histogram that is both classic and native, fast enough for seven histograms
// per frame: add takes two atomic additions and allocates nothing. client_golang's histogram takes several times as
// long, because of a map of native buckets and variable resolution. The methods are safe for concurrent use.
type distribution struct {
	bounds []float64                // of the classic buckets
	below  [nativeBuckets + 1]uint8 // by native bucket: number of lower classic buckets
	unit   float64                  // value of 1: 1e-9 for nanoseconds reported in seconds

	// cells are divided by the bounds of both the native and the classic buckets. The cell of native bucket i (bucket
	// 0 ends at nativeLeast) and of classic bucket k is at i+k: from one cell to the next, either the native or the
	// classic bucket advances.
	cells   []atomic.Uint64
	sum     atomic.Uint64
	created time.Time

	mu        sync.Mutex
	exemplars []*dto.Exemplar // of the classic buckets
	newest    []*dto.Exemplar // of all, the oldest first
}

// The buckets of a native histogram: between two powers of two lie 8 buckets, each 2^(1/8) times as wide as the
// previous bucket, from nativeLeast to nativeMost. The last bucket also has all larger values. See
// https://prometheus.io/docs/specs/native_histograms.
const (
	nativeSchema  = 3
	octavesBelow  = 20                                            // 1: microseconds
	octavesAbove  = 32                                            // 1: 4 GiB
	nativeBuckets = (octavesBelow + octavesAbove) << nativeSchema // of positive numbers
	nativeLeast   = 1.0 / (1 << octavesBelow)                     // the zero bucket ends here
	nativeOffset  = octavesBelow<<nativeSchema - 1                // index of the bucket 0, which ends at 1
	maxExemplars  = 10                                            // of a native histogram
)

// nativeBounds divide the mantissas of math.Frexp, from 0.5 to 1.
var nativeBounds = func() (b [1 << nativeSchema]float64) {
	for i := range b {
		b[i] = math.Exp2(float64(i)/(1<<nativeSchema) - 1)
	}
	return b
}()

// nativeFrom has, by the first three bits of a mantissa, the number of nativeBounds below all mantissas with these
// bits.
var nativeFrom = func() (from [1 << nativeSchema]uint8) {
	for i := range from {
		least := 0.5 + float64(i)/(2<<nativeSchema)
		for int(from[i]) < len(nativeBounds) && nativeBounds[from[i]] < least {
			from[i]++
		}
	}
	return from
}()

func newDistribution(bounds []float64, unit float64) *distribution {
	d := &distribution{bounds: bounds, unit: unit, cells: make([]atomic.Uint64, nativeBuckets+1+len(bounds)),
		created: time.Now()}
	for i := 1; i <= nativeBuckets; i++ {
		above := math.Exp2(float64(i-nativeOffset-2) / (1 << nativeSchema)) // lower bound of bucket i
		for int(d.below[i]) < len(bounds) && bounds[d.below[i]] < above*(1-1e-9) {
			d.below[i]++
		}
	}
	return d
}

// add counts n, with the trace of its frame unless trace is "".
func (d *distribution) add(n uint64, trace string) {
	v := float64(n) * d.unit
	i := nativeBucket(v)
	bucket := int(d.below[i])
	for bucket < len(d.bounds) && v > d.bounds[bucket] {
		bucket++
	}
	d.cells[i+bucket].Add(1)
	if n > 0 {
		d.sum.Add(n)
	}
	if trace != "" {
		d.exemplify(bucket, v, trace)
	}
}

// nativeBucket returns the native bucket of v: bucket 0 ends at nativeLeast.
func nativeBucket(v float64) int {
	if v <= nativeLeast {
		return 0
	}
	// As math.Frexp, for numbers neither 0 nor subnormal: 0.5 <= fraction < 1.
	const mantissaBits, bias, half = 52, 1022, 1022 << 52
	bits := math.Float64bits(v)
	exponent, mantissa := int(bits>>mantissaBits)-bias, bits&(1<<mantissaBits-1)
	fraction := math.Float64frombits(mantissa | half)
	i := int(nativeFrom[mantissa>>(mantissaBits-nativeSchema)])
	for i < len(nativeBounds) && fraction > nativeBounds[i] {
		i++
	}
	return min(1+nativeOffset+(exponent-1)<<nativeSchema+i, nativeBuckets)
}

func (d *distribution) exemplify(bucket int, v float64, trace string) {
	name := "trace_id"
	e := &dto.Exemplar{Label: []*dto.LabelPair{{Name: &name, Value: &trace}}, Value: &v, Timestamp: timestamppb.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.exemplars == nil {
		d.exemplars = make([]*dto.Exemplar, len(d.bounds)+1)
	}
	d.exemplars[bucket] = e
	if len(d.newest) == maxExemplars {
		d.newest = slices.Delete(d.newest, 0, 1)
	}
	d.newest = append(d.newest, e)
}

// empty reports whether nothing was counted.
func (d *distribution) empty() bool {
	for i := range d.cells {
		if d.cells[i].Load() != 0 {
			return false
		}
	}
	return true
}

// read returns the counts of the native and of the classic buckets.
func (d *distribution) read() (native [nativeBuckets + 1]uint64, classic []uint64) {
	classic = make([]uint64, len(d.bounds)+1)
	i, k := 0, 0
	for c := range d.cells {
		n := d.cells[c].Load()
		native[i] += n
		classic[k] += n
		if k < len(d.bounds) && (i == nativeBuckets || k < int(d.below[i+1])) { // the bound is in bucket i
			k++
		} else {
			i++
		}
	}
	return native, classic
}

// write returns the histogram of a sample.
func (d *distribution) write() *dto.Histogram {
	h := &dto.Histogram{Schema: new(int32(nativeSchema)), ZeroThreshold: new(nativeLeast),
		CreatedTimestamp: timestamppb.New(d.created)}
	d.mu.Lock()
	defer d.mu.Unlock()
	native, classic := d.read()
	var below uint64
	for i, bound := range d.bounds {
		below += classic[i]
		b := &dto.Bucket{CumulativeCount: new(below), UpperBound: new(bound)}
		if d.exemplars != nil {
			b.Exemplar = d.exemplars[i]
		}
		h.Bucket = append(h.Bucket, b)
	}
	h.SampleSum = new(float64(d.sum.Load()) * d.unit)
	zero := native[0]
	count := zero
	var last uint64
	end := -1 // of the buckets written
	for i := range nativeBuckets {
		n := native[1+i]
		if n == 0 {
			continue
		}
		if gap := i - end; end < 0 || gap > 2 { // shorter gaps take less as empty buckets
			place := int32(i - nativeOffset)
			if end >= 0 {
				place = int32(gap)
			}
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &place, Length: new(uint32)})
			end = i
		}
		span := h.PositiveSpan[len(h.PositiveSpan)-1]
		for ; end < i; end++ {
			h.PositiveDelta, last = append(h.PositiveDelta, -int64(last)), 0
			*span.Length++
		}
		h.PositiveDelta, last = append(h.PositiveDelta, int64(n)-int64(last)), n
		*span.Length++
		end++
		count += n
	}
	h.ZeroCount, h.SampleCount = &zero, &count
	// a bucket without a bound is implied except for its exemplar
	if d.exemplars != nil && d.exemplars[len(d.bounds)] != nil {
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: &count, UpperBound: new(math.Inf(1)),
			Exemplar: d.exemplars[len(d.bounds)]})
	}
	h.Exemplars = slices.Clone(d.newest)
	return h
}

// sample is a distribution as a metric.
type sample struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	values *distribution
}

// Desc implements prometheus.Metric.
func (s sample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s sample) Write(out *dto.Metric) error {
	out.Label, out.Histogram = s.labels, s.values.write()
	return nil
}
