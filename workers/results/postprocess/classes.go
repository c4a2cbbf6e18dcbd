package postprocess

import "math"

// maxClass is above the last integer up to which float32 has every integer.
const maxClass = 1 << 24

// top returns the index of the highest finite value and that value, or -1 when none is
// finite. Of equal values it is the first.
func top(values []float32) (int, float32) {
	at, most := -1, float32(math.Inf(-1))
	for i, v := range values {
		if v > most && v <= math.MaxFloat32 {
			at, most = i, v
		}
	}
	return at, most
}

// softmaxSum returns the sum of exp(v - values[at]) over the finite values: 1 divided
// by it is the softmax of values[at]. It stops when the sum is above enough.
func softmaxSum(values []float32, at int, enough float64) float64 {
	sum := 1.0
	for i, v := range values {
		if i != at && finite(v) {
			sum += math.Exp(float64(v) - float64(values[at]))
			if sum > enough {
				break
			}
		}
	}
	return sum
}
