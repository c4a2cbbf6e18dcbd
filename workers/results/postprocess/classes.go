package postprocess

import "math"

// maxClass is the limit of classes: float32 represents all integers up to 1<<24.
const maxClass = 1 << 24

// top returns the index of the highest finite value and the value, or -1 without a finite value; of equal values the
// first.
func top(values []float32) (int, float32) {
	at, most := -1, float32(math.Inf(-1))
	for i, v := range values {
		if v > most && v <= math.MaxFloat32 {
			at, most = i, v
		}
	}
	return at, most
}

// softmaxSum returns the sum of exp(v - values[at]) over the finite values v, the inverse of the softmax of
// values[at]. The summation stops when the sum is above enough.
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
