//go:build !nometrics

package tracing

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// reference is client_golang's histogram of the same buckets.
func reference(bounds []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "x", Buckets: bounds, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: nativeLeast,
	})
}

// All buckets equal client_golang's for the same values, including bounds of buckets.
func TestDistributionIsLikeClientGolangs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name   string
		unit   float64
		bounds []float64
		value  func() uint64
	}{
		{"empty", 1e-9, stageBuckets, nil},
		{"spread", 1e-9, stageBuckets, func() uint64 { return uint64(math.Exp(r.Float64() * math.Log(1e14))) }},
		{"close", 1e-9, stageBuckets, func() uint64 { return uint64(1e6 * (1 + r.ExpFloat64())) }},
		{"on a classic bound", 1e-9, stageBuckets, func() uint64 {
			return uint64(math.Round(stageBuckets[r.IntN(len(stageBuckets))] * 1e9))
		}},
		{"several bounds in a native bucket", 1e-9, []float64{1e-7, 5e-7, 1e-3, 1.01e-3, 1.02e-3, 1.03e-3, 2e-3, 1},
			func() uint64 {
				return uint64(math.Exp(r.Float64() * math.Log(1e10)))
			}},
		{"rows", 1, rowBuckets, func() uint64 { return r.Uint64N(64) }},
		{"powers of two", 1, rowBuckets, func() uint64 { return 1 << r.IntN(20) }},
		{"zero", 1, rowBuckets, func() uint64 { return 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ref := newDistribution(c.bounds, c.unit), reference(c.bounds)
			for range 3000 {
				if c.value != nil {
					n := c.value()
					d.add(n, "")
					ref.Observe(float64(n) * c.unit)
				}
			}
			var want dto.Metric
			if err := ref.Write(&want); err != nil {
				t.Fatal(err)
			}
			got, h := d.write(), want.Histogram
			if sum := h.GetSampleSum(); math.Abs(got.GetSampleSum()-sum) > 1e-9*sum {
				t.Errorf("sum %v, want %v", got.GetSampleSum(), sum)
			}
			got.SampleSum, got.CreatedTimestamp = h.SampleSum, h.CreatedTimestamp
			if !proto.Equal(got, h) {
				t.Errorf("got  %v\nwant %v", got, h)
			}
		})
	}
}

// A value beyond the last native bucket counts in the last native bucket and in no classic bucket.
func TestLargestValuesOfDistribution(t *testing.T) {
	d := newDistribution(rowBuckets, 1)
	d.add(math.MaxUint64, "")
	h := d.write()
	if h.GetSampleCount() != 1 || len(h.PositiveDelta) != 1 || h.Bucket[len(h.Bucket)-1].GetCumulativeCount() != 0 {
		t.Errorf("%v", h)
	}
	d = newDistribution([]float64{1, 1 << 33, 1 << 40}, 1) // two bounds in the last native bucket
	d.add(1<<36, "")
	if b := d.write().Bucket; b[1].GetCumulativeCount() != 0 || b[2].GetCumulativeCount() != 1 {
		t.Errorf("%v", b)
	}
}

func TestDistributionAllocatesNothing(t *testing.T) {
	d := newDistribution(stageBuckets, 1e-9)
	if n := testing.AllocsPerRun(100, func() { d.add(3e6, "") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDistribution(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		d := newDistribution(stageBuckets, 1e-9)
		for i := range b.N {
			d.add(uint64(1e6+i&0xfffff), "")
		}
	})
	b.Run("client_golang", func(b *testing.B) {
		ref := reference(stageBuckets)
		for i := range b.N {
			ref.Observe(float64(1e6+i&0xfffff) * 1e-9)
		}
	})
}
