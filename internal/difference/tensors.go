package difference

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"millrace/internal/oip"
)

// Tensor is the difference of one output over all compared frames.
type Tensor struct {
	Name   string  `json:"name"`
	Frames int     `json:"frames"` // compared
	Other  int     `json:"other"`  // frames not compared: shapes or datatypes differ, or only one result has it
	Max    float64 `json:"max_abs"`
	Mean   float64 `json:"mean_abs"` // over all numbers

	sum, numbers float64
}

func (t *Tensor) finish() {
	if t.numbers > 0 {
		t.Mean = t.sum / t.numbers
	}
}

// addTensors compares the outputs of one frame by name, and reports whether none
// differs by more than the tolerance.
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

// add compares two tensors number by number. BYTES and BOOL tensors differ by 1 or 0
// as a whole. ok is false for tensors that cannot be compared: shapes or datatypes
// differ, or different numbers are not finite.
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
			d := math.Abs(number(a.Datatype, x) - number(a.Datatype, y))
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

// number converts an element.
func number(d string, b []byte) float64 {
	le := binary.LittleEndian
	switch d {
	case oip.Uint8:
		return float64(b[0])
	case oip.Int8:
		return float64(int8(b[0]))
	case oip.Uint16:
		return float64(le.Uint16(b))
	case oip.Int16:
		return float64(int16(le.Uint16(b)))
	case oip.Uint32:
		return float64(le.Uint32(b))
	case oip.Int32:
		return float64(int32(le.Uint32(b)))
	case oip.Uint64:
		return float64(le.Uint64(b))
	case oip.Int64:
		return float64(int64(le.Uint64(b)))
	case oip.FP16:
		return float16(le.Uint16(b))
	case oip.BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	case oip.FP32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case oip.FP64:
		return math.Float64frombits(le.Uint64(b))
	}
	return math.NaN()
}

// float16 reads an IEEE 754 half: 1 bit sign, 5 bits exponent, 10 bits fraction.
func float16(h uint16) float64 {
	exp, frac := int(h>>10&0x1f), float64(h&0x3ff)
	var v float64
	switch exp {
	case 0:
		v = math.Ldexp(frac, -24)
	case 0x1f:
		v = math.Inf(1)
		if frac != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+frac, exp-25)
	}
	if h>>15 != 0 {
		return -v
	}
	return v
}
