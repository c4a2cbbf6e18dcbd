package difference

import (
	"bytes"
	"math"
	"slices"

	"millrace/internal/oip"
)

// Tensor is the difference of one output over all compared frames.
type Tensor struct {
	Name   string  `json:"name"`
	Frames int     `json:"frames"` // compared
	Other  int     `json:"other"`  // frames not compared: shapes or datatypes differ, or an output is missing
	Max    float64 `json:"max_abs"`
	Mean   float64 `json:"mean_abs"` // over all numbers

	sum, numbers float64
}

func (t *Tensor) finish() {
	if t.numbers > 0 {
		t.Mean = t.sum / t.numbers
	}
}

// addTensors compares the outputs of one frame by name, and reports whether all differ by at most the tolerance.
func addTensors(all map[string]*Tensor, a, b []oip.Tensor, tolerance float64) bool {
	agree := true
	of := func(name string) *Tensor {
		if all[name] == nil {
			all[name] = &Tensor{Name: name}
		}
		return all[name]
	}
	rest := slices.Clone(b)
	for i := range a {
		t := of(a[i].Name)
		k := slices.IndexFunc(rest, func(o oip.Tensor) bool { return o.Name == a[i].Name })
		if k < 0 {
			t.Other++
			agree = false
			continue
		}
		most, ok := t.add(&a[i], &rest[k])
		agree = agree && ok && most <= tolerance
		rest = slices.Delete(rest, k, k+1)
	}
	for i := range rest {
		of(rest[i].Name).Other++
		agree = false
	}
	return agree
}

// add compares two tensors number by number. BYTES and BOOL tensors differ by 1 or 0 as a whole. ok is false for
// incomparable tensors: shapes or datatypes differ, or different numbers are not finite.
func (t *Tensor) add(a, b *oip.Tensor) (most float64, ok bool) {
	if a.Datatype != b.Datatype || !slices.Equal(a.Shape, b.Shape) {
		t.Other++
		return 0, false
	}
	sum, n := 0.0, 1
	if size := oip.SizeOf(a.Datatype); size <= 0 || a.Datatype == oip.Bool {
		if !bytes.Equal(a.Data, b.Data) {
			sum, most = 1, 1
		}
	} else {
		n = min(len(a.Data), len(b.Data)) / size
		for i := range n {
			x, y := a.Data[i*size:(i+1)*size], b.Data[i*size:(i+1)*size]
			if bytes.Equal(x, y) { // NaN too
				continue
			}
			d := math.Abs(oip.Number(a.Datatype, x) - oip.Number(a.Datatype, y))
			if math.IsNaN(d) || math.IsInf(d, 0) {
				t.Other++
				return 0, false
			}
			sum += d
			most = max(most, d)
		}
	}
	t.Frames++
	t.Max = max(t.Max, most)
	t.sum += sum
	t.numbers += float64(n)
	return most, true
}
